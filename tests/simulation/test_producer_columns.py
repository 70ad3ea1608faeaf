"""`send_columns` stores the same bytes as `send_many`, and refuses the same rows."""

import asyncio
from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ternmq_client.interceptors import SendEvent
from ternmq_model.errors import IllegalMessage, IllegalName, SendVetoed, TopicNotFound, UsageError
from ternmq_model.message import Message, SendManyFailed
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_producer.batch.column_results import ColumnResults, SendColumnsFailed
from ternmq_producer.config import ProducerConfig
from ternmq_producer.producer import Producer
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.examples import examples
from tests.support.toy_cluster import ToyCluster
from tests.support.toy_log import TOPIC
from tests.support.toy_sending import Answer

BUSY = int(ResponseCode.SYSTEM_BUSY)
TEXT = st.text("ab \x01\x02é|", max_size=3)
WORD = st.text("abé", min_size=1, max_size=40)
ROW = st.fixed_dictionaries(
    {
        "body": st.one_of(
            st.binary(max_size=300), st.integers(0, 9000).map(lambda size: b"ab" * size)
        ),
        "tags": st.one_of(st.just(""), WORD, TEXT),
        "keys": st.lists(st.one_of(WORD, TEXT), max_size=3),
        "properties": st.dictionaries(st.one_of(WORD, TEXT, st.just("TAGS")), WORD, max_size=3),
        "sharding_key": st.one_of(st.just(""), st.sampled_from(["k1", "k2", "schlüssel"])),
    }
)
AGAIN = st.lists(st.none() | st.just("w\x02DELAY\x013") | TEXT, max_size=12)
"""Values for the first property of some rows a second time, which only Arrow's maps can have."""


def as_arrow(rows: list[dict[str, Any]], again: dict[int, str]) -> pa.RecordBatch:
    """Return rows as a batch with the names and types of Spark's columns.

    Args:
        rows: Fields of the messages.
        again: Values, by row, of the row's first property in front of it.
    """
    pairs = [list(row["properties"].items()) for row in rows]
    for row, value in again.items():
        pairs[row].insert(0, (pairs[row][0][0], value))
    return pa.RecordBatch.from_pydict(
        {
            "body": pa.array([row["body"] for row in rows], pa.binary()),
            "tags": pa.array([row["tags"] or None for row in rows], pa.string()),
            "keys": pa.array([row["keys"] for row in rows], pa.list_(pa.string())),
            "properties": pa.array(pairs, pa.map_(pa.string(), pa.string())),
            "shardingKey": pa.array([row["sharding_key"] for row in rows], pa.large_string()),
        }
    )


def as_lists(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return rows as lists, by the arguments of `send_columns`."""
    return {
        "bodies": [row["body"] for row in rows],
        "tags": [row["tags"] for row in rows],
        "keys": [row["keys"] for row in rows],
        "properties": [row["properties"] for row in rows],
        "sharding_keys": [row["sharding_key"] or None for row in rows],
    }


async def stored_by(send: Any, brokers: int = 2) -> tuple[dict[Any, Any], Any]:
    """Return the stored messages by queue after `send`, without unique keys, and its outcome."""
    async with ToyCluster(brokers=brokers) as cluster, cluster.producer() as producer:
        try:
            outcome = await send(producer)
        except (SendManyFailed, SendColumnsFailed) as failed:
            outcome = failed
        stored = defaultdict[Any, list[Any]](list)
        for broker in cluster.brokers.values():
            for batch in broker.sending.batches:
                for record in batch.records:
                    pairs = {k: v for k, v in record.properties.items() if k != "UNIQ_KEY"}
                    stored[record.queue].append(
                        (record.stored_body, list(pairs.items()), record.sys_flag, record.flag)
                    )
        return dict(stored), outcome


def _by_key(stored: dict[Any, Any]) -> dict[Any, Any]:
    """Return stored messages by queue and sharding key: those without one have no order."""
    by_key = defaultdict[Any, list[str]](list)
    for queue, records in stored.items():
        for record in records:
            by_key[queue, dict(record[1]).get("__SHARDINGKEY")].append(str(record))
    return {place: each if place[1] else sorted(each) for place, each in by_key.items()}


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(ROW, max_size=12), st.none() | AGAIN)
@example(
    [{"body": b"", "tags": "", "keys": [], "properties": {"a": "b"}, "sharding_key": ""}],
    ["w\x02DELAY\x013"],
)
@example(
    [
        {"body": b"", "tags": tag, "keys": ["kk"], "properties": {}, "sharding_key": key}
        for tag, key in (("x", "ss"), ("yy", "s"))
    ],
    None,
)
@example(
    [
        {
            "body": b"x",
            "tags": "",
            "keys": [],
            "properties": {"id": "123", "user": "7"},
            "sharding_key": "",
        }
    ],
    [None],
)
def test_columns_store_the_same_as_messages(
    rows: list[dict[str, Any]], values: list[str | None] | None
) -> None:
    again = {
        row: value
        for row, value in enumerate((values or [])[: len(rows)])
        if value is not None and rows[row]["properties"]
    }

    async def main() -> None:
        messages = [Message(TOPIC, **row) for row in rows]
        for row in again:  # refused, whatever the value that would hide the other one
            messages[row] = replace(messages[row], properties={"TAGS": "x"})

        async def send_many(producer: Producer) -> object:
            return await producer.send_many(messages)

        many, results = await stored_by(send_many)

        async def send(producer: Producer) -> ColumnResults:
            if values is not None:
                return await producer.send_columns(TOPIC, as_arrow(rows, again))
            return await producer.send_columns(TOPIC, **as_lists(rows))

        columns, outcome = await stored_by(send)
        assert _by_key(columns) == _by_key(many)
        answers: list[object] = list(getattr(results, "results", ()))
        expected = {
            index: str(each) for index, each in enumerate(answers) if isinstance(each, Exception)
        }
        found = outcome.results if isinstance(outcome, SendColumnsFailed) else outcome
        errors = {row: str(error) for row, error in found.errors.items()}
        assert errors.keys() == expected.keys()
        assert {row: errors[row] for row in errors.keys() - again} == {
            row: expected[row] for row in expected.keys() - again
        }
        assert (found.statuses == -1).nonzero()[0].tolist() == sorted(expected)

    run_in_virtual_time(main())


def test_rows_without_order_are_encoded_to_the_same_bytes() -> None:
    bodies = [b"b" * (number % 190) for number in range(600)]

    async def many(producer: Producer) -> None:
        await producer.send_many([Message(TOPIC, body, "t") for body in bodies])

    async def columns(producer: Producer) -> None:
        results = await producer.send_columns(TOPIC, pa.array(bodies), tags="t")
        assert len(results) == 600
        assert results.broker_names == ("broker-0",)
        assert set(results.queue_ids.tolist()) == {0, 1, 2, 3}
        assert (results.statuses == 0).all()
        assert results.queue_offsets.max() == 149
        assert len(set(results.unique_keys.tolist())) == 600

    async def sent_by(send: Any) -> list[bytes]:
        async with ToyCluster() as cluster, cluster.producer() as producer:
            await send(producer)
            return [batch.data for batch in cluster.first.sending.batches]

    assert run_in_virtual_time(sent_by(columns)) == run_in_virtual_time(sent_by(many))


def test_rows_with_sharding_keys_stay_in_their_queue_and_order_through_failures() -> None:
    async def main() -> None:
        config = ProducerConfig(batch_bytes=8192, retry_delay_s=0.01)
        async with ToyCluster(brokers=2) as cluster, cluster.producer(config) as producer:
            answers = iter([Answer(), Answer(breaks=True), Answer(code=BUSY)])
            for broker in cluster.brokers.values():
                broker.sending.answer = lambda _: next(answers, Answer())
            keys = [f"k{number % 5}" for number in range(400)]
            bodies = [b"%d" % number for number in range(400)]
            await producer.send_columns(TOPIC, bodies, sharding_keys=pa.array(keys), timeout_s=60)
            seen = dict[str, list[int]]()
            for queue in cluster.queues:
                for message in cluster.brokers[queue.broker_name].messages(queue):
                    numbers = seen.setdefault(message.sharding_key, [])
                    number = int(message.body)
                    if number not in numbers:  # a broken stream may have stored it before
                        numbers.append(number)
            assert seen == {
                f"k{key}": [number for number in range(400) if number % 5 == key]
                for key in range(5)
            }

    run_in_virtual_time(main())


def test_queue_ids_choose_queues_and_unknown_ones_are_refused() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, cluster.producer() as producer:
            with pytest.raises(SendColumnsFailed) as caught:
                await producer.send_columns(TOPIC, [b"a", b"b", b"c"], queue_ids=[3, None, 9])
            results = caught.value.results
            assert results.queue_ids.tolist()[0] == 3
            assert list(results.errors) == [2]
            assert "no broker has this queue" in str(results.errors[2])
            masked = np.ma.array([3, 9], mask=[False, True], dtype=np.uint64)
            results = await producer.send_columns(TOPIC, [b"a", b"b"], queue_ids=masked)
            assert results.queue_ids.tolist()[0] == 3
            assert not results.errors
            results = await producer.send_columns(TOPIC, [b"d"], queue_ids=2)
            assert results.queue_ids.tolist() == [2]
        async with ToyCluster(brokers=2) as cluster, cluster.producer() as producer:
            with pytest.raises(SendColumnsFailed, match="2 brokers have this queue"):
                await producer.send_columns(TOPIC, [b"a"], queue_ids=np.array([1]))

    run_in_virtual_time(main())


def test_bodies_may_lie_in_one_buffer() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, cluster.producer() as producer:
            text = pa.chunked_array([["x", "yy"], [], ["zzz"]])
            for bodies in (
                (b"xyyzzz", [0, 1, 3, 6]),
                (bytearray(b"xyyzzz"), np.array([0, 1, 3, 6])),
                text,
                pa.Table.from_arrays([text], ["body"]),
                text.combine_chunks().cast(pa.large_string()),
                text.cast(pa.string_view()),
                text.cast(pa.binary_view()),
                pa.array([b"--", b"x", b"yy", b"zzz"])[1:],
            ):
                await producer.send_columns(TOPIC, bodies)
            await producer.send_columns(TOPIC, pa.array([b"ab", b"cd"], pa.binary(2))[1:])
            sent = [body for batch in cluster.first.sending.batches for body in batch.bodies]
            assert sent == [b"x", b"yy", b"zzz"] * 8 + [b"cd"]

    run_in_virtual_time(main())


A = pa.array(["a"])
WRONG_KINDS: list[tuple[dict[str, Any], str]] = [
    ({"bodies": b"abc"}, "bodies is bytes, must be"),
    ({"bodies": pa.array([1, 2])}, "bodies is an Arrow array of int64"),
    ({"bodies": (b"abc", [0, 5])}, "offsets must ascend"),
    ({"bodies": (b"abc", [])}, "offsets are empty"),
    ({"bodies": ("abc", [0, 1])}, "str is no buffer"),
    ({"bodies": [b"a"], "tags": ["a", "b"]}, "tags has 2 values for 1 messages"),
    ({"bodies": [b"a"], "tags": 5}, "tags is int, must be"),
    ({"bodies": [b"a"], "keys": "k"}, "keys is str, must be"),
    ({"bodies": [b"a"], "tags": [["x"]]}, "each value must be a text"),
    ({"bodies": [b"a"], "queue_ids": [1.5]}, "queue_ids must be whole numbers"),
    ({"bodies": [b"a"], "queue_ids": -7}, "is no queue id"),
    (
        {"bodies": [b"a"], "queue_ids": np.array([2**64 - 1], np.uint64)},
        "18446744073709551615 does not fit into 64 bits",
    ),
    (
        {"bodies": (b"abc", np.ma.array([0, 1, 2], mask=[False, True, False]))},
        "offsets must ascend",
    ),
    ({"bodies": [b"a"], "properties": pa.array(["x"])}, "must be one of maps"),
    ({"bodies": pa.table({"value": ["x"]})}, "no column 'body', only value"),
    ({"bodies": pa.table([A, A], ["body", "body"])}, "several columns 'body'"),
    ({"bodies": pa.table([A, A, A], ["body", "tags", "tags"])}, "several columns 'tags'"),
    ({"bodies": [b"a"], "queue_ids": pa.array([1 << 63], pa.uint64())}, "cannot convert to int64"),
    ({"bodies": pa.table({"body": ["x"], "tags": ["t"]}), "tags": "t"}, "give one"),
]


@pytest.mark.parametrize(("columns", "said"), WRONG_KINDS)
def test_columns_of_a_wrong_kind_are_refused(columns: dict[str, Any], said: str) -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, cluster.producer() as producer:
            with pytest.raises(UsageError, match=said):
                await producer.send_columns(TOPIC, **columns)
            with pytest.raises(IllegalName):
                await producer.send_columns("no topic", [b""])
            assert not cluster.first.sending.batches

    run_in_virtual_time(main())


def test_illegal_rows_are_refused_and_the_others_sent() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, cluster.producer() as producer:
            with pytest.raises(SendColumnsFailed, match="4 of 5") as caught:
                await producer.send_columns(
                    TOPIC,
                    pa.array([b"a", None, b"c", b"d", b"e"]),
                    keys=pa.array([["k"], ["k"], ["a b"], [None], None]),
                    tags=["t", "t", "t", "t", "a||b"],
                )
            assert all(
                type(each) is IllegalMessage for each in caught.value.results.errors.values()
            )
            assert not caught.value.may_have_happened
            with pytest.raises(SendColumnsFailed, match=r"1 of 2 messages failed; .*body is str"):
                await producer.send_columns(TOPIC, [b"f", "g"])
            with pytest.raises(SendColumnsFailed, match=r"1 of 2 .*body is bytearray"):
                await producer.send_columns(TOPIC, (b"h", bytearray(b"i")))
            sent = [body for batch in cluster.first.sending.batches for body in batch.bodies]
            assert sent == [b"a", b"f", b"h"]

    run_in_virtual_time(main())


class Marking:
    """Interceptor that marks messages, refuses one, and records the outcomes."""

    def __init__(self) -> None:
        self.events: list[SendEvent] = []

    def before_send(self, message: Message) -> Message:
        if message.body == b"no":
            raise ValueError("not this one")
        return replace(message, properties={**message.properties, "seen": "yes"})

    def after_send(self, event: SendEvent) -> None:
        self.events.append(event)


def with_interceptors(cluster: ToyCluster, *interceptors: Marking) -> Producer:
    """Return a producer of `cluster` with interceptors."""
    return Producer(
        "senders",
        nameserver=cluster.nameserver,
        interceptors=interceptors,
        env=cluster.environment(),
    )


def test_interceptors_see_every_row() -> None:
    async def main() -> None:
        marking = Marking()
        async with ToyCluster() as cluster, with_interceptors(cluster, marking) as producer:
            with pytest.raises(SendColumnsFailed) as caught:
                await producer.send_columns(
                    TOPIC,
                    [b"a", b"no", b"b", b"c"],
                    tags="t",
                    keys=[["k", "l"]] * 4,
                    queue_ids=[1, 1, 1, 99],
                )
            errors = caught.value.results.errors
            assert isinstance(errors[1], SendVetoed)
            assert list(errors) == [1, 3]
            (records,) = [batch.records for batch in cluster.first.sending.batches]
            assert [(each.body, each.queue.queue_id, each.keys) for each in records] == [
                (b"a", 1, ["k", "l"]),
                (b"b", 1, ["k", "l"]),
            ]
            assert all(each.properties["seen"] == "yes" for each in records)
            seen = {event.message.body: event.error for event in marking.events}
            assert seen == {b"a": None, b"b": None, b"c": errors[3]}

    run_in_virtual_time(main())


def test_interceptors_see_rows_of_a_topic_without_a_route() -> None:
    async def main() -> None:
        marking = Marking()
        async with ToyCluster() as cluster, with_interceptors(cluster, marking) as producer:
            with pytest.raises(SendColumnsFailed, match="3 of 3") as caught:
                await producer.send_columns("nowhere", [b"a", b"no", b"b"])
            errors = caught.value.results.errors
            assert isinstance(errors[1], SendVetoed)
            seen = {event.message.body: event.error for event in marking.events}
            assert seen == {b"a": errors[0], b"b": errors[2]}
            assert all(isinstance(error, TopicNotFound) for error in seen.values())

    run_in_virtual_time(main())


@pytest.mark.parametrize("sharding_key", ["", "k1"])
def test_sharding_key_among_the_properties_chooses_no_queue(sharding_key: str) -> None:
    properties = {"a": "1", "__SHARDINGKEY": "k2"}

    async def queue_ids_by(*interceptors: Marking) -> tuple[list[int], list[object]]:
        async with ToyCluster() as cluster, with_interceptors(cluster, *interceptors) as producer:
            results = await producer.send_columns(
                TOPIC, [b"x"] * 4, sharding_keys=sharding_key, properties=properties
            )
            messages = [event.message for each in interceptors for event in each.events]
            return results.queue_ids.tolist(), [
                (message.sharding_key, message.properties) for message in messages
            ]

    async def main() -> None:
        plain, _ = await queue_ids_by()
        seen, fields = await queue_ids_by(Marking())
        assert len(set(plain)) == len(set(seen)) == (1 if sharding_key else 4)
        assert not sharding_key or plain == seen
        assert fields == [(sharding_key, {**properties, "seen": "yes"})] * 4

    run_in_virtual_time(main())


@pytest.mark.parametrize("interceptors", [[], [Marking()]])
@pytest.mark.parametrize("order", [{"sharding_keys": "k"}, {"queue_ids": 1}])
def test_columns_that_wait_for_their_route_keep_their_order(
    interceptors: list[Marking], order: dict[str, Any]
) -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, with_interceptors(cluster, *interceptors) as producer:
            sending = asyncio.create_task(producer.send_columns(TOPIC, [b"1", b"2"], **order))
            await asyncio.sleep(0)
            queue = MessageQueue(TOPIC, "broker-0", 1) if "queue_ids" in order else None
            sharding_key = order.get("sharding_keys", "")
            last = Message(TOPIC, b"3", sharding_key=sharding_key)
            result = await producer.send(last, queue=queue)
            await sending
            stored = cluster.first.messages(result.queue)
            assert [each.body for each in stored] == [b"1", b"2", b"3"]

    run_in_virtual_time(main())


@pytest.mark.parametrize("verb", ["send_many", "send_columns", "send_columns in order"])
def test_wait_for_buffer_space_is_part_of_the_timeout(verb: str) -> None:
    body = b"x" * (400 << 10)

    async def send(producer: Producer, timeout_s: float) -> object:
        if verb == "send_many":
            return await producer.send_many([Message(TOPIC, body)], timeout_s=timeout_s)
        keys = "k" if "order" in verb else None
        return await producer.send_columns(TOPIC, [body], sharding_keys=keys, timeout_s=timeout_s)

    async def main() -> None:
        config = ProducerConfig(buffer_bytes=600 << 10, compression=None)
        async with ToyCluster() as cluster, cluster.producer(config) as producer:
            answers = iter([Answer(delay_s=2)])
            cluster.first.sending.answer = lambda _: next(answers, Answer(is_silent=True))
            began_s = asyncio.get_running_loop().time()
            first = asyncio.create_task(send(producer, 60))
            await asyncio.sleep(0.01)
            with pytest.raises((SendManyFailed, SendColumnsFailed)):
                await send(producer, 3)
            assert asyncio.get_running_loop().time() - began_s == pytest.approx(3, abs=0.1)
            await first

    run_in_virtual_time(main())


def test_cancelled_columns_leave_no_trace() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, cluster.producer() as producer:
            await producer.send_columns(TOPIC, [b"first"])
            cluster.first.sending.answer = lambda _: Answer(delay_s=1)
            sending = asyncio.create_task(producer.send_columns(TOPIC, [b"x" * 9] * 5000))
            await asyncio.sleep(0.01)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            await asyncio.sleep(2.5)
            assert producer.buffered_bytes == 0

    run_in_virtual_time(main())
