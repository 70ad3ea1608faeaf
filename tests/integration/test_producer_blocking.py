"""The blocking producer, over gRPC, from plain threads."""

from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from random import Random

import pytest

from ternmq_client.blocking import BlockingFace
from ternmq_client.config import ClientConfig
from ternmq_model.address import Address
from ternmq_model.errors import ClosedError, IllegalMessage, Unreachable
from ternmq_model.message import Message, SendManyFailed, SendStatus
from ternmq_producer.blocking import BlockingProducer
from ternmq_producer.config import ProducerConfig
from ternmq_remoting import contracts
from ternmq_remoting.grpc_network import GrpcNetwork
from ternmq_remoting.rpc import Identity, unary
from tests.support.memory_network import MemoryNetwork
from tests.support.send_cluster import TOPIC, SendCluster, SendingBroker


@asynccontextmanager
async def _serving(served: list[SendCluster]) -> AsyncGenerator[None]:
    """Serve a toy broker, which is its own NameServer, on a free port."""
    broker = SendingBroker("broker-0", 2)
    random = Random(1)
    cluster = SendCluster(MemoryNetwork(random), random, [broker])
    handlers = [*broker.handlers(), unary(contracts.GET_TOPIC_ROUTE, cluster.get_topic_route)]
    async with GrpcNetwork().serve(
        handlers, Address("127.0.0.1", 0), identity=Identity("toy", "broker-0", 0, 0)
    ) as server:
        cluster.addresses["broker-0"] = server.address
        cluster.nameserver_address = str(server.address)
        cluster.put_route(TOPIC, 2)
        served.append(cluster)
        yield


@pytest.fixture
def cluster() -> Iterator[SendCluster]:
    served: list[SendCluster] = []
    with BlockingFace(_serving(served)):
        yield served[0]


def test_every_verb_blocks_until_it_knows(cluster: SendCluster) -> None:
    with BlockingProducer("writers", nameserver=cluster.nameserver_address) as producer:
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
    assert len(cluster.brokers[0].bodies) == 171
    with pytest.raises(ClosedError):
        producer.send(Message(TOPIC, b"late"))


def test_nobody_there_is_an_error_not_a_wait() -> None:
    config = ProducerConfig(send_timeout_s=1)
    client = ClientConfig(nameservers=("127.0.0.1:1",), connect_timeout_s=0.5)
    with BlockingProducer("writers", client=client, config=config) as producer:
        with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1"):
            producer.send(Message(TOPIC, b"x"))
        with pytest.raises(Unreachable):
            producer.enqueue(Message(TOPIC, b"x"))
        with pytest.raises(SendManyFailed, match="1 of 1"):
            producer.send_many([Message(TOPIC, b"x")])
