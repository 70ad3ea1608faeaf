"""The containers that users start in their tests."""

import asyncio
import subprocess
import time
from collections.abc import Generator
from typing import Final

import pytest

from ternmq import (
    BlockingProducer,
    ConsumeFrom,
    Message,
    ProducerConfig,
    PushConsumerConfig,
    StoredMessage,
)
from ternmq.testing.containers import TernMQCluster, TernMQContainer
from ternmq_model.errors import TernError, UsageError
from ternmq_model.message import SendStatus

FIRST: Final = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)
SOON_S: Final = 60.0
PAUSE_S: Final = 2.0


@pytest.fixture(scope="module")
def mq() -> Generator[TernMQContainer]:
    with TernMQContainer().with_settings(flush_mode="sync") as container:
        yield container


@pytest.fixture(scope="module")
def cluster() -> Generator[TernMQCluster]:
    with TernMQCluster(brokers=2, slaves=1) as containers:
        yield containers


def test_container_shows_what_an_application_did(mq: TernMQContainer) -> None:
    consumed: list[bytes] = []
    with mq.installed(), BlockingProducer("shop", nameserver="mq.example.com:9876") as producer:
        for number in range(20):
            producer.send(Message("shown", b"%d" % number, properties={"amount": f"{number}"}))
        assert len(mq.leaks()) == 1
    assert mq.leaks() == []
    mq.expect("shown", count=4, where="amount > 15")
    with pytest.raises(AssertionError, match="expected 21 messages in 'shown', found 20"):
        mq.expect("shown", count=21)

    def consume(message: StoredMessage) -> None:
        consumed.append(message.body)

    with mq.push_consumer("readers", "shown", listener=consume, config=FIRST):
        mq.settled(timeout_s=SOON_S)
        assert sorted(consumed, key=int) == [b"%d" % number for number in range(20)]
        assert mq.lag("readers") == 0
    assert mq.dead_letters("readers") == []
    assert "topic shown: 20 messages\ngroup readers: lag 0, 0 dead letters" in mq.report()
    assert abs(mq.now() - time.time()) < SOON_S


def test_container_finds_what_a_test_leaves_behind(mq: TernMQContainer) -> None:
    with mq.producer("shop") as producer:
        producer.send(Message("left", b"book"))

    async def main() -> None:
        async with mq.asynchronous.push_consumer("breaks", "left", config=FIRST) as consumer:
            async for _ in consumer:
                break

    asyncio.run(main())
    (queue,) = {each.queue for each in mq.messages("left")}
    assert mq.leaks() == [f"group breaks took 1 messages of {queue} and never answered"]
    assert mq.leaks("clients") == []
    with pytest.raises(UsageError, match="leaks is 'fail', 'clients' or 'ignore', not 'all'"):
        mq.leaks("all")


def test_container_keeps_its_messages_and_address_after_a_crash(mq: TernMQContainer) -> None:
    address = mq.get_nameserver()
    with mq.producer("shop") as producer:
        producer.send(Message("kept", b"before"))
        mq.broker().crash()
        assert not mq.broker().is_running
        with pytest.raises(UsageError, match="broker broker-a does not run"):
            mq.broker().crash()
        mq.broker().restart()
        producer.send(Message("kept", b"after"))
    assert [message.body for message in mq.messages("kept")] == [b"before", b"after"]
    assert mq.get_nameserver() == address


def test_container_names_what_it_cannot_do(mq: TernMQContainer) -> None:
    for owner, missing in (
        *((mq, name) for name in ("advance", "freeze", "drop_answers", "partition")),
        *((mq.broker(), name) for name in ("refuse", "disk_full")),
    ):
        with pytest.raises(AttributeError, match=rf"no '{missing}'.* ternmq\.testing\.Cluster has"):
            getattr(owner, missing)
    assert not hasattr(mq, "expects")
    with pytest.raises(UsageError, match="no broker 'broker-b': there are broker-a"):
        mq.broker("broker-b")
    with pytest.raises(UsageError, match="no setting 'flash_mode'"):
        mq.with_settings(flash_mode="sync")
    with pytest.raises(UsageError, match="the containers do not run"):
        TernMQContainer().get_nameserver()


def test_paused_container_answers_when_it_goes_on(mq: TernMQContainer) -> None:
    with mq.producer("shop", config=ProducerConfig(send_timeout_s=PAUSE_S)) as producer:
        producer.send(Message("paused", b"before"))
        mq.broker().pause()
        with pytest.raises(TernError):
            producer.send(Message("paused", b"meanwhile"))
        mq.heal()
        producer.send(Message("paused", b"after"))
    bodies = [message.body for message in mq.messages("paused")]
    assert bodies[0] == b"before"
    assert bodies[-1] == b"after"


def test_cluster_serves_while_a_broker_is_down(cluster: TernMQCluster) -> None:
    assert [each.name for each in cluster.brokers] == [
        *("broker-a", "broker-a-1", "broker-b", "broker-b-1"),
    ]

    async def main() -> None:
        containers = cluster.asynchronous
        async with containers.producer("shop") as producer:
            sent = [await producer.send(Message("served", b"%d" % n)) for n in range(8)]
            assert {each.status for each in sent} == {SendStatus.SEND_OK}, "slaves follow"
            assert {each.queue.broker_name for each in sent} == {"broker-a", "broker-b"}
            await containers.broker("broker-a").crash()
            sent = [await producer.send(Message("served", b"%d" % n)) for n in range(8, 12)]
            assert {each.queue.broker_name for each in sent} == {"broker-b"}
            await containers.broker("broker-a").restart()
        containers.expect("served", count=12)
        await containers.settled(timeout_s=SOON_S)

    asyncio.run(main())


def test_cluster_removes_its_containers_and_network(cluster: TernMQCluster) -> None:
    with TernMQCluster(cluster.broker().container.image) as other:
        network, broker = other.network.name, other.broker().container.get_container_id()
        assert broker in printed("ps", "--quiet", "--no-trunc")
        assert network in printed("network", "ls")
    assert broker not in printed("ps", "--all", "--quiet", "--no-trunc")
    assert network not in printed("network", "ls")


def printed(*command: str) -> str:
    return subprocess.run(["docker", *command], check=True, capture_output=True, text=True).stdout
