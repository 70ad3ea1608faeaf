"""Retries over streams that break at any moment: nothing twice, nothing lost, keys in order."""

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from ternmq_model.message import Message, SendResult, SendStatus
from ternmq_producer.config import ProducerConfig
from ternmq_producer.producer import Producer
from ternmq_store.config import FlushMode
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.examples import seeds
from tests.support.history import Outcome, make_body
from tests.support.simulated_cluster import CLUSTER_STORE, SimulatedCluster, simulated_cluster
from tests.support.toy_broker import ToyBroker
from tests.support.toy_cluster import ToyCluster
from tests.support.toy_sending import Answer, SentBatch

TOPIC = "orders"
PATIENT = ProducerConfig(send_timeout_s=60, attempts_max=30)
SEEDS = seeds(5, soak=200)


async def break_things(cluster: SimulatedCluster, ending: str) -> None:
    """Cut streams for some seconds of virtual time, and end a broker now and then."""
    random = cluster.random
    for _ in range(12):
        await asyncio.sleep(random.random() * 0.05)
        name = random.choice(cluster.running)
        if ending == "cut" or random.random() < 0.7:
            cluster.network.cut("producer", name)
            continue
        getattr(cluster, ending)(name)
        await asyncio.sleep(random.random() * 2)
        await cluster.start(name)


async def check_places(cluster: SimulatedCluster, results: list[SendResult]) -> None:
    """Every sender was told where its message lies."""
    told = {
        (result.queue, result.queue_offset, result.physical_offset): result.message_id
        for result in results
    }
    lying = {
        (queue, message.queue_offset, message.physical_offset): message.message_id
        for queue, message in await cluster.records(TOPIC)
    }
    assert told.items() <= lying.items()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("ending", ["cut", "kill", "lose_power"])
def test_broken_streams_leave_every_message_once_and_in_order(ending: str, seed: int) -> None:
    async def main() -> None:
        config = replace(PATIENT, duplicates_allowed=ending == "cut")
        async with (
            simulated_cluster(seed) as cluster,
            cluster.producer(config=config) as producer,
        ):
            await cluster.put_topic(TOPIC)
            breaking = cluster.tasks.spawn(break_things(cluster, ending), "break")
            results: list[SendResult] = []

            async def send_some(key: str) -> None:
                while not breaking.done():
                    for answer in await asyncio.gather(
                        *(cluster.send(producer, TOPIC, key=key) for _ in range(10))
                    ):
                        assert isinstance(answer, SendResult), answer
                        results.append(answer)
                    if len(cluster.running) < 2:
                        await asyncio.sleep(0.05)  # no stream breaks until the broker is back

            await asyncio.gather(*(send_some(key) for key in ("", "", "a", "b")))
            await check_places(cluster, results)
            await cluster.scan(TOPIC)
            cluster.history.check([], seed=seed)

    run_in_virtual_time(main())


@pytest.mark.parametrize("seed", SEEDS)
def test_concurrent_messages_in_doubt_are_stored_once(seed: int) -> None:
    async def main() -> None:
        async with (
            simulated_cluster(seed, mode=FlushMode.ASYNC) as cluster,
            cluster.producer(config=PATIENT) as producer,
        ):
            await cluster.put_topic(TOPIC)
            breaking = cluster.tasks.spawn(break_things(cluster, "cut"), "break")
            results: list[SendResult] = []
            while not breaking.done():
                messages: list[Message] = []
                for _ in range(150):
                    name = cluster.next_id()
                    cluster.history.note_sent(name, TOPIC, Outcome.STORED)
                    messages.append(Message(TOPIC, make_body(name, 200)))
                results += await producer.send_many(messages)
            await check_places(cluster, results)
            await cluster.scan(TOPIC)
            cluster.history.check([], seed=seed)

    run_in_virtual_time(main())


def test_message_in_doubt_is_an_error_without_index_or_duplicates() -> None:
    async def main() -> None:
        store = replace(CLUSTER_STORE, index_enabled=False)
        config = replace(PATIENT, duplicates_allowed=False)
        async with (
            simulated_cluster(1, brokers=["a"], store=store) as cluster,
            cluster.producer(config=config) as producer,
        ):
            await cluster.send(producer, TOPIC)
            sending = cluster.tasks.spawn(cluster.send(producer, TOPIC), "send")
            await asyncio.sleep(0.001)
            cluster.network.cut("producer", "a")
            answer = await sending
            assert not isinstance(answer, SendResult)
            assert answer.may_have_happened
            again = await cluster.send(producer, TOPIC)
            assert isinstance(again, SendResult)
            assert again.status is SendStatus.SEND_OK

    run_in_virtual_time(main())


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "fields", [{"delay_level": 1}, {"deliver_after_ms": 1500}], ids=["level", "timer"]
)
def test_delayed_messages_in_doubt_are_stored_once(fields: dict[str, Any], seed: int) -> None:
    async def main() -> None:
        async with (
            simulated_cluster(seed) as cluster,
            cluster.producer(config=PATIENT) as producer,
        ):
            await cluster.put_topic(TOPIC)
            breaking = cluster.tasks.spawn(break_things(cluster, "cut"), "break")
            while not breaking.done():
                answers = await asyncio.gather(
                    *(cluster.send(producer, TOPIC, **fields) for _ in range(10))
                )
                assert all(isinstance(answer, SendResult) for answer in answers)
            await asyncio.sleep(10)
            await cluster.scan(TOPIC)
            cluster.history.check([], seed=seed)

    run_in_virtual_time(main())


async def leave(cluster: ToyCluster, broker: ToyBroker, producer: Producer) -> None:
    """Let `broker` end in order; the producer learns at once that it is gone from the route."""
    cluster.put_topic(
        "flights", 4, [each.name for each in cluster.brokers.values() if each is not broker]
    )
    await cluster.stop(broker)
    producer.client.ask_route_again("flights")


@pytest.mark.parametrize("verb", ["send", "send_many", "send_batch"])
def test_lone_message_follows_a_changed_route(verb: str) -> None:
    async def main() -> None:
        async with ToyCluster(brokers=2) as cluster, cluster.producer() as producer:
            sent = Message("flights", b"alone")
            await producer.send(sent)
            leaving: list[asyncio.Task[None]] = []

            def silent_once(broker: ToyBroker, _: SentBatch) -> Answer:
                if leaving:
                    return Answer()
                leaving.append(asyncio.create_task(leave(cluster, broker, producer)))
                return Answer(is_silent=True)

            for broker in cluster.brokers.values():
                broker.sending.answer = partial(silent_once, broker)
            if verb == "send":
                await producer.send(sent)
            elif verb == "send_many":
                await producer.send_many([sent])
            else:
                await producer.send_batch([sent])
            assert leaving

    run_in_virtual_time(main())
