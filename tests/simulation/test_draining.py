"""A master that is drained: what waits for the next one, what goes elsewhere, and what goes on."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_model.errors import BrokerDraining, RequestTimedOut
from ternmq_model.message import Message
from ternmq_model.queue import MessageQueue
from ternmq_model.stored_message import StoredMessage
from ternmq_model.transaction import Resolution
from ternmq_producer.config import ProducerConfig
from ternmq_producer.producer import Producer
from ternmq_producer.transactions.transaction_producer import TransactionProducer
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting import service_methods
from ternmq_testing.time.virtual_time import run_in_virtual_time, until
from tests.support.simulated_cluster import NAMESERVER, SimulatedCluster, simulated_cluster
from tests.support.simulated_replicas import promote, replicated, status_of

TOPIC: Final = "A"
PATIENT: Final = ProducerConfig(send_timeout_s=20)


async def drain(cluster: SimulatedCluster, name: str = "a", *, is_draining: bool = True) -> None:
    """Do what `ternmq broker drain` or `undrain` does."""
    values = {"broker.draining": str(is_draining).lower()}
    await cluster.ask(
        name, service_methods.UPDATE_SETTINGS, admin.UpdateSettingsRequest(values=values)
    )


@asynccontextmanager
async def drained(
    *brokers: str, config: ProducerConfig | None = None
) -> AsyncGenerator[tuple[SimulatedCluster, Producer]]:
    """Give a cluster whose broker "a" is drained, and a producer that has sent to it before."""
    async with simulated_cluster(brokers=brokers or ("a",)) as cluster:
        await cluster.put_topic(TOPIC)
        async with cluster.producer(config=config) as producer:
            for number in range(8):  # every broker of the topic has a stream
                await producer.send(Message(TOPIC, b"before %d" % number))
            await drain(cluster)
            yield cluster, producer


async def execute(_message: Message, _argument: object) -> Resolution:
    return Resolution.COMMIT


async def check(_message: StoredMessage) -> Resolution:
    return Resolution.UNKNOWN


@asynccontextmanager
async def every_verb(
    cluster: SimulatedCluster, producer: Producer
) -> AsyncGenerator[Sequence[Coroutine[Any, Any, object]]]:
    """Give a send of each kind: ten messages in all."""
    async with TransactionProducer(
        "payers",
        execute=execute,
        check=check,
        nameserver=NAMESERVER,
        env=cluster.environment("payers"),
        config=PATIENT,
    ) as payers:
        yield (
            producer.send(Message(TOPIC, b"plain")),
            producer.send(Message(TOPIC, b"keyed", sharding_key="k")),
            producer.send(Message(TOPIC, b"placed"), queue=MessageQueue(TOPIC, "a", 1)),
            producer.send_many([Message(TOPIC, b"many %d" % number) for number in range(3)]),
            producer.send_batch([Message(TOPIC, b"batch %d" % number) for number in range(2)]),
            producer.send_one_way(Message(TOPIC, b"one way")),
            payers.send(Message(TOPIC, b"paid")),
        )


async def bodies(cluster: SimulatedCluster) -> list[bytes]:
    """Return what lies in the topic after what was sent before."""
    records = [record.body for _, record in await cluster.records(TOPIC)]
    return sorted(body for body in records if not body.startswith(b"before"))


EVERYTHING: Final = sorted(
    b"plain|keyed|placed|many 0|many 1|many 2|batch 0|batch 1|one way|paid".split(b"|")
)


def test_sends_of_every_kind_wait_for_the_promoted_slave() -> None:
    async def main() -> None:
        async with (
            drained("a", "a-1", config=PATIENT) as (cluster, producer),
            every_verb(cluster, producer) as sends,
        ):
            sending = asyncio.gather(*sends)
            await asyncio.sleep(1)
            assert await bodies(cluster) == []
            await replicated(cluster)
            await cluster.stop("a")
            await promote(cluster, "a-1")
            await sending
            await until(lambda: _all_there(cluster))
            assert await bodies(cluster) == EVERYTHING
            assert producer.statistics().one_way_failures == 0

    run_in_virtual_time(main())


async def _all_there(cluster: SimulatedCluster) -> bool:
    return len(await bodies(cluster)) >= len(EVERYTHING)


def test_sends_of_every_kind_go_on_when_broker_is_undrained() -> None:
    async def main() -> None:
        async with (
            drained(config=PATIENT) as (cluster, producer),
            every_verb(cluster, producer) as sends,
        ):
            sending = asyncio.gather(*sends)
            await asyncio.sleep(5)
            assert not sending.done()
            assert await bodies(cluster) == []
            assert (await status_of(cluster, "a")).is_draining
            await drain(cluster, is_draining=False)
            await sending
            await until(lambda: _all_there(cluster))
            assert await bodies(cluster) == EVERYTHING
            assert not (await status_of(cluster, "a")).is_draining

    run_in_virtual_time(main())


def test_send_to_draining_broker_waits_its_time_and_names_draining() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with drained() as (_, producer):
            for key in ("", "k"):
                began_s = loop.time()
                with pytest.raises(
                    BrokerDraining, match=r"the broker is draining.*GO_AWAY"
                ) as told:
                    await producer.send(Message(TOPIC, b"x", sharding_key=key))
                assert 2.9 < loop.time() - began_s < 3.2
                assert told.value.retryable
                assert not told.value.may_have_happened

    run_in_virtual_time(main())


def test_sends_that_wait_ask_a_draining_broker_now_and_then() -> None:
    async def main() -> None:
        async with drained() as (_, producer):
            before = producer.statistics().brokers["a"].retries
            sends = [producer.send(Message(TOPIC, b"x", sharding_key=k)) for k in ("", "k")]
            await asyncio.gather(*sends, return_exceptions=True)
            assert producer.statistics().brokers["a"].retries - before < 200

    run_in_virtual_time(main())


def test_drain_is_logged_once_while_another_broker_takes_the_messages(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "ternmq_producer")

    async def main() -> None:
        async with drained("a", "b") as (cluster, producer):
            for _ in range(2):
                for number in range(100):
                    await producer.send(Message(TOPIC, b"%d" % number))
                    await asyncio.sleep(0.1)
                await drain(cluster, is_draining=False)
                await asyncio.sleep(1.5)  # it is avoided for 1 s
                for _ in range(8):
                    await producer.send(Message(TOPIC, b"between"))
                await drain(cluster)

    run_in_virtual_time(main())
    said = [each for each in caplog.records if each.getMessage().startswith("broker accepts no me")]
    assert [each.levelno for each in said] == [logging.INFO] * 2


def test_broker_that_stops_after_draining_stays_away_until_it_is_reached() -> None:
    async def main() -> None:
        async with drained("a", config=PATIENT) as (cluster, producer):
            sending = asyncio.create_task(producer.send(Message(TOPIC, b"x", sharding_key="k")))
            await asyncio.sleep(0.5)
            cluster.kill("a")
            while producer.is_connected:
                await asyncio.sleep(0.01)
            for _ in range(300):
                assert not producer.is_connected
                await asyncio.sleep(0.01)
            await cluster.start("a")
            await sending

    run_in_virtual_time(main())


@pytest.mark.parametrize("key", ["", "k"])
def test_send_whose_time_ends_while_a_draining_broker_is_asked_is_in_doubt(key: str) -> None:
    async def main() -> None:
        async with drained() as (cluster, producer):
            sending = asyncio.create_task(producer.send(Message(TOPIC, b"x", sharding_key=key)))
            await asyncio.sleep(2.7)
            cluster.network.partition("a", "producer", one_way=True)
            with pytest.raises(RequestTimedOut, match=r"no answer in time.*draining") as told:
                await sending
            assert told.value.may_have_happened

    run_in_virtual_time(main())


def test_ends_of_transactions_leave_nothing_to_be_cut_after_a_switch_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with (
            simulated_cluster(brokers=("a", "a-1")) as cluster,
            TransactionProducer(
                "payers",
                execute=execute,
                check=check,
                nameserver=NAMESERVER,
                env=cluster.environment("payers"),
            ) as payers,
        ):
            await cluster.put_topic(TOPIC)
            await replicated(cluster)
            await payers.send(Message(TOPIC, b"paid"))
            await drain(cluster)
            await cluster.stop("a")
            await promote(cluster, "a-1")
            await cluster.start("a")
            await replicated(cluster)

    run_in_virtual_time(main())
    assert not [each for each in caplog.messages if "log was cut" in each]


def test_slave_that_is_promoted_takes_messages_whatever_its_settings_say() -> None:
    async def main() -> None:
        async with (
            simulated_cluster(brokers=("a",)) as cluster,
            cluster.producer(config=PATIENT) as producer,
        ):
            await cluster.put_topic(TOPIC)
            await producer.send(Message(TOPIC, b"before"))
            await cluster.start("a-1", draining=True)
            await replicated(cluster)
            await cluster.stop("a")
            await promote(cluster, "a-1")
            await producer.send(Message(TOPIC, b"x"))
            assert not (await status_of(cluster, "a-1")).is_draining

    run_in_virtual_time(main())


def test_sends_prefer_a_broker_that_is_not_draining() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with drained("a", "b") as (_, producer):
            for number in range(20):
                began_s = loop.time()
                result = await producer.send(Message(TOPIC, b"%d" % number))
                assert result.queue.broker_name == "b"
                assert loop.time() - began_s < 0.1
            results = await producer.send_many([Message(TOPIC, b"x") for _ in range(100)])
            assert {result.queue.broker_name for result in results} == {"b"}
            assert producer.statistics().brokers["a"].failures < 30

    run_in_virtual_time(main())


def test_restarted_master_has_forgotten_that_it_was_draining() -> None:
    async def main() -> None:
        async with drained() as (cluster, producer):
            await cluster.stop("a")
            await cluster.start("a")
            await producer.send(Message(TOPIC, b"x"))

    run_in_virtual_time(main())


def test_consumers_retries_delays_and_transactions_go_on_while_broker_drains() -> None:
    async def main() -> None:
        heard: list[bytes] = []
        is_over = asyncio.Event()

        async def slow(_message: Message, _argument: object) -> Resolution:
            await is_over.wait()
            return Resolution.COMMIT

        async def listen(message: StoredMessage) -> bool:
            heard.append(message.body)
            return message.body != b"again" or message.reconsume_times > 0

        config = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)
        async with (
            simulated_cluster(brokers=("a", "a-1")) as cluster,
            cluster.producer() as producer,
            TransactionProducer(
                "payers",
                execute=slow,
                check=check,
                nameserver=NAMESERVER,
                env=cluster.environment("payers"),
            ) as payers,
        ):
            await cluster.put_topic(TOPIC)
            paying = asyncio.create_task(payers.send(Message(TOPIC, b"paid")))
            await producer.send(Message(TOPIC, b"late", delay_level=2))
            await producer.send(Message(TOPIC, b"again"))
            await asyncio.sleep(0.5)
            await drain(cluster)
            is_over.set()
            async with PushConsumer(
                "g",
                TOPIC,
                listener=listen,
                config=config,
                nameserver=NAMESERVER,
                env=cluster.environment("c"),
            ):
                await paying
                await until(lambda: sorted(heard) == [b"again", b"again", b"late", b"paid"])
            await replicated(cluster)

    run_in_virtual_time(main())
