"""Producers over brokers and streams that fail: what is tried again, where, and what is told."""

import asyncio
import logging
from random import Random

import pytest

from ternmq_model.errors import (
    BrokerBusy,
    ConnectionLost,
    MessageRefused,
    PermissionRefused,
    RequestTimedOut,
    TernError,
    Unreachable,
)
from ternmq_model.message import Message, SendManyFailed, SendResult, SendStatus
from ternmq_model.response_code import ResponseCode
from ternmq_producer.config import ProducerConfig
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.toy_cluster import ToyCluster
from tests.support.toy_log import TOPIC
from tests.support.toy_sending import Answer, SentBatch

BUSY = int(ResponseCode.SYSTEM_BUSY)
ILLEGAL = int(ResponseCode.MESSAGE_ILLEGAL)


def message(body: bytes = b"x", key: str = "") -> Message:
    return Message(TOPIC, body, tags="TagA", sharding_key=key)


def once(first: Answer) -> "Answers":
    return Answers([first])


class Answers:
    """Gives these answers one after the other, then stores."""

    def __init__(self, answers: list[Answer]) -> None:
        self.left = answers

    def __call__(self, _: SentBatch) -> Answer:
        return self.left.pop(0) if self.left else Answer()


def test_busy_broker_is_retried_after_a_pause() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, cluster.producer() as producer:
            cluster.first.sending.answer = Answers([Answer(code=BUSY), Answer(code=BUSY)])
            result = await producer.send(message())
            assert result.status is SendStatus.SEND_OK
            first, _, third = cluster.first.sending.batches
            assert not third.is_retry
            assert third.at_s > first.at_s
            ids = [
                (batch.records[0].message_id, batch.records[0].born_at_ms)
                for batch in (first, third)
            ]
            assert ids[0] == ids[1]

    run_in_virtual_time(main())


def test_last_refusal_is_raised_after_three_attempts() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, cluster.producer() as producer:
            cluster.first.sending.answer = lambda _: Answer(code=BUSY)
            with pytest.raises(BrokerBusy, match="broker-0: toy") as told:
                await producer.send(message())
            assert not told.value.may_have_happened
            assert len(cluster.first.sending.batches) == 3

    run_in_virtual_time(main())


@pytest.mark.parametrize("answer", [Answer(code=BUSY), Answer(breaks=True)])
@pytest.mark.parametrize("attempts", [1, 2])
def test_every_send_verb_makes_as_many_attempts_as_allowed(attempts: int, answer: Answer) -> None:
    async def main() -> None:
        config = ProducerConfig(attempts_max=attempts)
        async with ToyCluster() as cluster, cluster.producer(config) as producer:
            batches = cluster.first.sending.batches
            cluster.first.sending.answer = lambda _: answer
            for send in (
                producer.send(message()),
                producer.send_batch([message(), message()]),
                producer.send_many([message(), message()]),
            ):
                batches.clear()
                with pytest.raises((TernError, SendManyFailed)):
                    await send
                assert len(batches) == attempts
            assert producer.buffered_bytes == 0

    run_in_virtual_time(main())


def test_messages_refused_by_one_broker_go_to_another() -> None:
    async def main() -> None:
        async with ToyCluster(brokers=2) as cluster, cluster.producer() as producer:
            cluster.first.sending.answer = lambda _: Answer(code=BUSY)
            results = [await producer.send(message()) for _ in range(10)]
            assert {result.queue.broker_name for result in results} == {"broker-1"}
            many = await producer.send_many([message(b"%d" % n) for n in range(2000)])
            assert {result.queue.broker_name for result in many} == {"broker-1"}
            assert len(cluster.brokers["broker-1"].bodies) == 2010

    run_in_virtual_time(main())


def test_messages_of_a_batch_succeed_or_fail_singly() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, cluster.producer() as producer:
            await producer.send(message())
            cluster.first.sending.answer = once(Answer(refused={0: ILLEGAL, 2: BUSY}))
            answers = await asyncio.gather(
                *(producer.send(message(b"%d" % n)) for n in range(4)), return_exceptions=True
            )
            assert isinstance(answers[0], MessageRefused)
            assert all(isinstance(answer, SendResult) for answer in answers[1:])
            assert sorted(cluster.first.bodies) == [b"1", b"2", b"3", b"x"]

    run_in_virtual_time(main())


def test_send_many_names_the_failed_messages() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, cluster.producer() as producer:
            await producer.send(message())
            cluster.first.sending.answer = once(Answer(refused={1: ILLEGAL}))
            sent = [message(b"%d" % n) for n in range(4)] + [Message("bad topic", b"x")]
            with pytest.raises(SendManyFailed, match="2 of 5") as told:
                await producer.send_many(sent)
            kinds = [isinstance(result, TernError) for result in told.value.results]
            assert kinds == [False, True, False, False, True]

    run_in_virtual_time(main())


def test_stored_but_unconfirmed_is_a_result_not_an_error() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, cluster.producer() as producer:
            cluster.first.sending.answer = lambda _: Answer(code=10)
            assert (await producer.send(message())).status is SendStatus.FLUSH_DISK_TIMEOUT
            (result,) = await producer.send_many([message()])
            assert result.status is SendStatus.FLUSH_DISK_TIMEOUT

    run_in_virtual_time(main())


@pytest.mark.parametrize("stores", [True, False])
@pytest.mark.parametrize("key", ["", "key"])
def test_lost_answer_is_asked_for_again_at_the_same_broker(stores: bool, key: str) -> None:
    async def main() -> None:
        async with ToyCluster(brokers=2) as cluster, cluster.producer() as producer:
            for broker in cluster.brokers.values():
                broker.sending.answer = once(Answer(breaks=True, stores=stores))
            result = await producer.send(message(key=key))
            (broker,) = [broker for broker in cluster.brokers.values() if broker.sending.batches]
            assert result.queue.broker_name == broker.name
            first, second = broker.sending.batches
            assert (first.is_retry, second.is_retry) == (False, True)
            assert second.data == first.data

    run_in_virtual_time(main())


def test_lost_answer_is_an_error_when_duplicates_are_forbidden() -> None:
    async def main() -> None:
        config = ProducerConfig(duplicates_allowed=False)
        async with ToyCluster() as cluster, cluster.producer(config) as producer:
            cluster.first.sending.answer = once(Answer(breaks=True))
            with pytest.raises(ConnectionLost) as told:
                await producer.send(message())
            assert told.value.may_have_happened
            await producer.send(message(b"second"))
            assert sorted(cluster.first.bodies) == [b"second", b"x"]
            cluster.first.sending.answer = once(Answer(breaks=True))
            with pytest.raises(SendManyFailed, match="3 of 3") as many:
                await producer.send_many([message()] * 3)
            assert many.value.may_have_happened

    run_in_virtual_time(main())


def test_messages_behind_broken_stream_are_neither_lost_nor_doubled() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, cluster.producer() as producer:
            await producer.send(message())
            broker = cluster.first
            broker.sending.answer = Answers(
                [Answer(delay_s=0.05), Answer(delay_s=0.05, breaks=True)]
            )

            async def write(number: int) -> SendResult:
                await asyncio.sleep(number * 0.001)
                return await producer.send(message(b"%d" % number))

            await asyncio.gather(*(write(number) for number in range(100)))
            retried = [
                body for batch in broker.sending.batches if batch.is_retry for body in batch.bodies
            ]
            fresh = [
                body
                for batch in broker.sending.batches
                if not batch.is_retry
                for body in batch.bodies
            ]
            assert retried
            assert sorted(fresh[1:]) == sorted(b"%d" % n for n in range(100))
            assert set(broker.bodies) == {b"x", *(b"%d" % n for n in range(100))}

    run_in_virtual_time(main())


def test_absent_broker_is_left_out_and_its_messages_go_elsewhere() -> None:
    async def main() -> None:
        async with ToyCluster(brokers=2) as cluster, cluster.producer() as producer:
            await producer.send_many([message() for _ in range(100)])
            await cluster.stop(cluster.first)
            results = [await producer.send(message(b"%d" % n)) for n in range(20)]
            assert {result.queue.broker_name for result in results} == {"broker-1"}
            many = await producer.send_many([message() for _ in range(1000)])
            assert {result.queue.broker_name for result in many} == {"broker-1"}
            await cluster.start(cluster.first)
            await asyncio.sleep(2)
            results = [await producer.send(message()) for _ in range(16)]
            assert len({result.queue.broker_name for result in results}) == 2

    run_in_virtual_time(main())


def test_ordered_message_waits_for_its_own_broker() -> None:
    async def main() -> None:
        config = ProducerConfig(attempts_max=10)
        async with ToyCluster(brokers=2) as cluster, cluster.producer(config) as producer:
            first = await producer.send(message(key="key"))
            (broker,) = [
                each for each in cluster.brokers.values() if each.name == first.queue.broker_name
            ]
            await cluster.stop(broker)
            task = asyncio.ensure_future(producer.send(message(b"late", key="key")))
            await asyncio.sleep(0.3)
            assert not task.done()
            await cluster.start(broker)
            assert (await task).queue == first.queue

    run_in_virtual_time(main())


@pytest.mark.parametrize("key", ["", "key"])
@pytest.mark.parametrize("brokers", [1, 2])
def test_messages_wait_for_absent_brokers_until_their_timeout(key: str, brokers: int) -> None:
    async def main() -> None:
        config = ProducerConfig(send_timeout_s=8)
        loop = asyncio.get_running_loop()
        async with ToyCluster(brokers=brokers) as cluster, cluster.producer(config) as producer:
            await producer.send(message(key=key))
            for broker in cluster.brokers.values():
                await cluster.stop(broker)
            waiting = [
                asyncio.ensure_future(producer.send(message(b"%d" % n, key))) for n in range(20)
            ]
            many = asyncio.ensure_future(producer.send_many([message(b"m", key)] * 20))
            await asyncio.sleep(6)
            for broker in cluster.brokers.values():
                await cluster.start(broker)
            began_s = loop.time()
            await asyncio.gather(*waiting)
            await many
            assert loop.time() - began_s < 2
            bodies = sorted(body for broker in cluster.brokers.values() for body in broker.bodies)
            assert bodies == sorted([b"x", *(b"%d" % n for n in range(20)), *[b"m"] * 20])
            for broker in cluster.brokers.values():
                await cluster.stop(broker)
            began_s = loop.time()
            with pytest.raises(Unreachable, match="broker-") as told:
                await producer.send(message(key=key))
            assert loop.time() - began_s == pytest.approx(8, abs=0.1)
            assert not told.value.may_have_happened

    run_in_virtual_time(main())


def test_stopped_broker_is_reported_unreachable() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, cluster.producer() as producer:
            await cluster.stop(cluster.first)
            with pytest.raises(Unreachable, match="broker-0") as told:
                await producer.send(message())
            assert not told.value.may_have_happened
            with pytest.raises(SendManyFailed, match="100 of 100"):
                await producer.send_many([message() for _ in range(100)])

    run_in_virtual_time(main())


def test_silent_broker_costs_the_send_timeout_and_no_more() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, cluster.producer() as producer:
            broker = cluster.first
            await producer.send(message())
            broker.sending.answer = once(Answer(is_silent=True))
            began_s = asyncio.get_running_loop().time()
            first = asyncio.ensure_future(producer.send(message(b"first")))
            await asyncio.sleep(1)
            late = asyncio.ensure_future(producer.send(message(b"late")))
            with pytest.raises(RequestTimedOut, match="no answer in time") as told:
                await first
            assert told.value.may_have_happened
            assert asyncio.get_running_loop().time() - began_s == pytest.approx(3, abs=0.01)
            # The stream was given up with the first message: a new one serves the late one.
            assert (await late).status is SendStatus.SEND_OK
            assert (await producer.send(message())).status is SendStatus.SEND_OK

    run_in_virtual_time(main())


def test_unwritten_message_is_reported_unsent() -> None:
    async def main() -> None:
        config = ProducerConfig(batches_unanswered_max=1)
        async with ToyCluster() as cluster, cluster.producer(config) as producer:
            await producer.send(message())
            cluster.first.sending.answer = once(Answer(delay_s=1))
            first = asyncio.ensure_future(producer.send(message(b"first")))
            await asyncio.sleep(0.01)
            with pytest.raises(RequestTimedOut, match="not sent in time") as told:
                await producer.send(message(b"second"), timeout_s=0.2)
            assert not told.value.may_have_happened
            with pytest.raises(SendManyFailed) as many:
                await producer.send_many([message(b"third")] * 2, timeout_s=0.2)
            assert not many.value.may_have_happened
            await first
            await producer.flush()
            assert sorted(cluster.first.bodies) == [b"first", b"x"]

    run_in_virtual_time(main())


def test_waiting_for_buffer_space_ends_at_the_timeout() -> None:
    async def main() -> None:
        config = ProducerConfig(buffer_bytes=1000, send_timeout_s=0.5)
        async with ToyCluster() as cluster, cluster.producer(config) as producer:
            cluster.first.sending.answer = lambda _: Answer(delay_s=0.4)
            first = asyncio.ensure_future(producer.send(message(b"x" * 700)))
            await asyncio.sleep(0.01)
            with pytest.raises(RequestTimedOut, match="buffer space"):
                await producer.send(message(b"y" * 700), timeout_s=0.1)
            await first

    run_in_virtual_time(main())


def test_impossible_reply_breaks_the_stream_and_is_retried() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, cluster.producer() as producer:
            broker = cluster.first
            broker.sending.answer = once(Answer(refused={7: BUSY}))
            assert (await producer.send(message())).status is SendStatus.SEND_OK
            assert [batch.is_retry for batch in broker.sending.batches] == [False, True]

    run_in_virtual_time(main())


def test_refused_stream_is_reported_with_its_reason() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, cluster.producer() as producer:
            broker = cluster.first
            broker.sending.opened.status.code = ResponseCode.NO_PERMISSION
            broker.sending.opened.status.remark = "this broker may not be written"
            with pytest.raises(PermissionRefused, match="may not be written"):
                await producer.send(message())

    run_in_virtual_time(main())


def test_routes_are_kept_while_the_nameserver_is_away(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, cluster.producer() as producer:
            await producer.send(message())
            cluster.network.partition("client", "nameserver")
            for _ in range(4):
                await asyncio.sleep(30)
                await producer.send(message())
            with pytest.raises(Unreachable, match="nameserver"):
                await producer.send(Message("other", b"x"))
            cluster.network.heal()
            cluster.put_topic("other", 1)
            await producer.send(Message("other", b"x"))

    with caplog.at_level(logging.WARNING):
        run_in_virtual_time(main())
    assert sum("routes retained, no nameserver answers" in text for text in caplog.messages) == 1


async def _storm(cluster: ToyCluster, random: Random, seconds: float) -> None:
    """Cut, refuse and stop at random."""
    end_s = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < end_s:
        await asyncio.sleep(random.uniform(0.05, 0.4))
        broker = random.choice(list(cluster.brokers.values()))
        what = random.randrange(4)
        if what == 0:
            cluster.network.cut(broker.name)
        elif what == 1:
            broker.sending.answer = once(Answer(code=BUSY))
        elif what == 2:
            broker.sending.answer = once(Answer(breaks=True, stores=random.random() < 0.5))
        elif broker.name in cluster.servers:
            await cluster.stop(broker)
            await asyncio.sleep(random.uniform(0.0, 0.3))
            await cluster.start(broker)


@pytest.mark.parametrize("seed", range(6))
def test_answers_stay_true_and_keys_stay_ordered_during_faults(seed: int) -> None:
    async def main() -> None:
        random = Random(seed)
        config = ProducerConfig(attempts_max=8, send_timeout_s=5)
        async with ToyCluster(brokers=3, seed=seed, latency_s=0.003) as cluster:
            acknowledged: list[bytes] = []
            failed: dict[bytes, TernError] = {}

            async def write(key: str, count: int) -> None:
                for number in range(count):
                    body = f"{key}/{number}".encode()
                    keyed = key if key.startswith("key") else ""
                    try:
                        await producer.send(message(body, keyed))
                    except TernError as error:
                        failed[body] = error
                    else:
                        acknowledged.append(body)
                    await asyncio.sleep(random.uniform(0, 0.05))

            async with cluster.producer(config) as producer:
                storm = asyncio.ensure_future(_storm(cluster, random, 8))
                await asyncio.gather(
                    *(write(f"key{n}", 150) for n in range(8)),
                    *(write(f"any{n}", 150) for n in range(8)),
                )
                many = [message(f"many/{n}".encode()) for n in range(3000)]
                try:
                    await producer.send_many(many)
                except SendManyFailed as partly:
                    for one, result in zip(many, partly.results, strict=True):
                        if isinstance(result, TernError):
                            failed[one.body] = result
                        else:
                            acknowledged.append(one.body)
                else:
                    acknowledged.extend(one.body for one in many)
                await storm
            assert any(
                batch.is_retry
                for broker in cluster.brokers.values()
                for batch in broker.sending.batches
            )
            stored = {body for broker in cluster.brokers.values() for body in broker.bodies}
            assert set(acknowledged) <= stored
            for body, error in failed.items():
                assert body not in stored or error.may_have_happened, (body, error)
            assert len(acknowledged) + len(failed) == 16 * 150 + 3000
            assert len(acknowledged) > 5000
            for broker in cluster.brokers.values():
                for queue in broker.queues:
                    newest: dict[bytes, int] = {}
                    seen: set[bytes] = set()
                    for record in broker.messages(queue):
                        key, _, number = record.body.partition(b"/")
                        if key.startswith(b"key") and record.body not in seen:
                            seen.add(record.body)
                            assert int(number) > newest.get(key, -1)
                            newest[key] = int(number)

    run_in_virtual_time(main())
