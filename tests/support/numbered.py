"""Numbered messages on a simulated cluster, for what consumers make of the members of one name.

async with numbered() as (cluster, messages):
    await messages.send(200)
    await start_slave(cluster)
    async with messages.consumer():
        await until(messages.all_heard)
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_model.stored_message import StoredMessage
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting import service_methods
from tests.support.simulated_cluster import NAMESERVER, SimulatedCluster, simulated_cluster

TOPIC: Final = "A"
GROUP: Final = "g"
FIRST: Final = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET, workers=1)


@dataclass
class NumberedMessages:
    """Messages of the topic: their bodies are 0, 1, 2 and so on. Made by `numbered`.

    Attributes:
        sent: Bodies, as they were acknowledged.
        heard: Messages, as listeners got them.
    """

    cluster: SimulatedCluster
    queues: int
    sent: list[bytes] = field(default_factory=list[bytes])
    heard: list[StoredMessage] = field(default_factory=list[StoredMessage])

    async def send(self, count: int, *, to: str = "a") -> None:
        """Send messages to a master, to one queue after the other."""
        client = await self.cluster.connect(to)
        for _ in range(count):
            body = b"%d" % len(self.sent)
            await client.send(TOPIC, body, queue_id=len(self.sent) % self.queues)
            self.sent.append(body)
        await client.connection.close()

    async def listen(self, message: StoredMessage) -> bool:
        """Take a message."""
        self.heard.append(message)
        await asyncio.sleep(0.01)
        return True

    def consumer(
        self, host: str = "c1", config: PushConsumerConfig = FIRST, **more: Any
    ) -> PushConsumer:
        """Return a consumer of the group on a host of its own, not entered."""
        more.setdefault("listener", self.listen)
        env = self.cluster.environment(host)
        return PushConsumer(GROUP, TOPIC, nameserver=NAMESERVER, config=config, env=env, **more)

    def all_heard(self) -> bool:
        """Tell whether listeners got every message."""
        return {message.body for message in self.heard} == set(self.sent)

    async def committed(self, name: str) -> list[int]:
        """Return the group's offset in each queue as a member has it."""
        requests = [
            groups.QueryOffsetRequest(group=GROUP, topic=TOPIC, queue_id=queue_id)
            for queue_id in range(self.queues)
        ]
        asked = [
            await self.cluster.ask(name, service_methods.QUERY_OFFSET, each) for each in requests
        ]
        return [reply.offset for reply in asked]


@asynccontextmanager
async def numbered(
    *, queues: int = 2, **settings: Any
) -> AsyncGenerator[tuple[SimulatedCluster, NumberedMessages]]:
    """Give a cluster whose only broker "a" has the topic, and its messages: none yet.

    Args:
        queues: Of the topic.
        settings: Of every broker.
    """
    async with simulated_cluster(brokers=("a",), durable_nameservers=False, **settings) as cluster:
        await cluster.put_topic(TOPIC, queues)
        yield cluster, NumberedMessages(cluster, queues)
