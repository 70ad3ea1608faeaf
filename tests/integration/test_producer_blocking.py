"""The blocking producer, over gRPC, from plain threads."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from ternmq_client.blocking_client import BlockingClient
from ternmq_client.config import ClientConfig
from ternmq_model.errors import ClosedError, IllegalMessage, Unreachable
from ternmq_model.message import Message, SendManyFailed, SendStatus
from ternmq_producer.blocking_producer import BlockingProducer
from ternmq_producer.config import ProducerConfig
from tests.support.toy_cluster import ToyCluster
from tests.support.toy_log import TOPIC


@pytest.fixture
def cluster() -> Iterator[ToyCluster]:
    with BlockingClient(cluster := ToyCluster(queues=2, is_real=True)):
        yield cluster


def test_every_verb_blocks_until_its_result(cluster: ToyCluster) -> None:
    with BlockingProducer("writers", nameserver=cluster.nameserver) as producer:
        assert producer.send(Message(TOPIC, b"one")).status is SendStatus.SEND_OK
        many = producer.send_many([Message(TOPIC, b"%d" % number) for number in range(100)])
        assert len({result.message_id for result in many}) == 100
        futures = [producer.enqueue(Message(TOPIC, b"later")) for _ in range(20)]
        producer.flush()
        assert all(future.done() for future in futures)
        with ThreadPoolExecutor(8) as pool:
            results = list(pool.map(producer.send, [Message(TOPIC, b"thread")] * 50))
        assert len({result.message_id for result in results}) == 50
        with pytest.raises(IllegalMessage):
            producer.send(Message(TOPIC, b"", tags="\x01"))
    assert len(cluster.first.bodies) == 171
    with pytest.raises(ClosedError):
        producer.send(Message(TOPIC, b"late"))


def test_unreachable_nameserver_is_an_error_not_a_wait() -> None:
    config = ProducerConfig(send_timeout_s=1)
    client = ClientConfig(nameservers=("127.0.0.1:1",), connect_timeout_s=0.5)
    with BlockingProducer("writers", client=client, config=config) as producer:
        with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1"):
            producer.send(Message(TOPIC, b"x"))
        with pytest.raises(Unreachable):
            producer.enqueue(Message(TOPIC, b"x"))
        with pytest.raises(SendManyFailed, match="1 of 1"):
            producer.send_many([Message(TOPIC, b"x")])
