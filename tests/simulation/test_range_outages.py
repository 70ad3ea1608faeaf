"""Reading ranges of queues while brokers come and go."""

import asyncio

from ternmq_client.config import ClientConfig
from ternmq_client.instance import ClientInstance
from ternmq_consumer.scan import ScanOptions, pull_range
from ternmq_model.message import Message, SendResult
from ternmq_model.queue import MessageQueue
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.simulated_cluster import NAMESERVER, simulated_cluster

TOPIC = "flights"


def test_broker_that_returned_is_found_though_a_known_route_lacks_it() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a", "b")) as cluster:
            await cluster.put_topic(TOPIC, queues=1)
            async with cluster.producer() as producer:
                for name in "ab":
                    queue = MessageQueue(TOPIC, name, 0)
                    sent = await producer.send(Message(TOPIC, b"x"), queue=queue)
                    assert isinstance(sent, SendResult)
            await cluster.stop("b")
            config = ClientConfig(nameservers=(NAMESERVER,))
            async with ClientInstance(config, env=cluster.environment("worker")) as client:

                async def read(broker_name: str) -> int:
                    queue = MessageQueue(TOPIC, broker_name, 0)
                    pieces = pull_range(client, queue, 0, 1, ScanOptions(retry_timeout_s=5))
                    return sum([piece.next_offset async for piece in pieces])

                assert await read("a") == 1
                await asyncio.sleep(7)  # until the route is no longer young
                await cluster.start("b")
                assert await read("b") == 1

    run_in_virtual_time(main())
