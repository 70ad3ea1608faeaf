"""Half messages of columns on a simulated cluster."""

import pytest

from ternmq_client.config import ClientConfig
from ternmq_client.message_kind import MessageKind
from ternmq_client.tracing.trace_records import MessageSent, decode
from ternmq_model.errors import UsageError
from ternmq_model.message import Message
from ternmq_model.names import TRACE_TOPIC
from ternmq_model.transaction import Resolution, TransactionState
from ternmq_producer.staging import StageFailed, StagingProducer, decode_staged, encode_staged
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.simulated_cluster import NAMESERVER, SimulatedCluster, simulated_cluster

TOPIC = "flights"
OPEN, COMMIT = TransactionState.OPEN, Resolution.COMMIT


def producer_of(cluster: SimulatedCluster) -> StagingProducer:
    return StagingProducer("sink", nameserver=NAMESERVER, env=cluster.environment("sink"))


async def seen(cluster: SimulatedCluster) -> list[bytes]:
    """Return the bodies of all that can be read, sorted."""
    return sorted(message.body for _, message in await cluster.records(TOPIC))


def test_staged_columns_are_the_same_half_messages() -> None:
    async def main() -> None:
        async with simulated_cluster() as cluster, producer_of(cluster) as producer:
            await cluster.put_topic(TOPIC)
            bodies = [b"%d" % number for number in range(3000)]
            tags = ["even" if number % 2 == 0 else None for number in range(3000)]
            staged = await producer.stage_columns(
                TOPIC, bodies, tags=tags, keys=["k"] * 3000, staged_for="q/1", immunity_s=60
            )
            assert len(staged) == 3000
            assert await producer.states(staged) == [OPEN] * 3000
            assert await seen(cluster) == []
            await producer.end(decode_staged(encode_staged(staged)), COMMIT)
            assert await seen(cluster) == sorted(bodies)
            message = Message(TOPIC, b"x", "even", ["k"])
            one = await producer.stage([message], staged_for="q/1", immunity_s=60)
            await producer.end(one, COMMIT)
            found = {message.body: message for _, message in await cluster.records(TOPIC)}
            ids = {"UNIQ_KEY", "__transactionId__", "REAL_QID"}
            kept = [
                {name: text for name, text in found[body].properties.items() if name not in ids}
                for body in (b"2", b"x")
            ]
            assert kept[0] == kept[1]
            assert found[b"1"].tags == ""

    run_in_virtual_time(main())


def test_columns_with_an_illegal_row_report_it_and_what_is_staged() -> None:
    async def main() -> None:
        async with simulated_cluster() as cluster, producer_of(cluster) as producer:
            await cluster.put_topic(TOPIC)
            with pytest.raises(StageFailed) as failed:
                await producer.stage_columns(
                    TOPIC, [b"a", b"b", b"c"], tags=["t", "a||b", None], staged_for="q/1"
                )
            assert failed.value.first == 1
            assert not failed.value.reason.may_have_happened
            staged = failed.value.staged
            assert await producer.states(staged) == [OPEN] * 2
            await producer.end(staged, COMMIT)
            assert await seen(cluster) == [b"a", b"c"]
            with pytest.raises(UsageError, match="tags has 1 values for 2 messages"):
                await producer.stage_columns(TOPIC, [b"a", b"b"], tags=["t"], staged_for="q/1")

    run_in_virtual_time(main())


def test_staged_columns_are_traced_as_half_messages() -> None:
    async def main() -> None:
        async with simulated_cluster(trace_topic_enabled=True) as cluster:
            await cluster.put_topic(TOPIC)
            client = ClientConfig(nameservers=(NAMESERVER,), trace=True)
            traced = StagingProducer("sink", client=client, env=cluster.environment("sink"))
            async with traced as producer:
                staged = await producer.stage_columns(
                    TOPIC, [b"a", b"b"], tags="t", keys=["k", "l"], staged_for="q/1"
                )
                assert await producer.states(staged) == [OPEN] * 2
                await producer.end(staged, COMMIT)
            found = [message for _, message in await cluster.records(TOPIC)]
            assert sorted((one.body, one.tags, *one.keys) for one in found) == [
                (b"a", "t", "k"), (b"b", "t", "l"),
            ]  # fmt: skip
            traces = [message for _, message in await cluster.records(TRACE_TOPIC)]
            records = [one for trace in traces for one in decode(trace.body.decode())]
            assert {one.message_id for one in records} == {one.message_id for one in staged}
            assert all(
                isinstance(one, MessageSent) and one.kind is MessageKind.TRANSACTION_HALF
                for one in records
            )

    run_in_virtual_time(main())
