"""Place of a test of behaviours: a cluster of some kind, and names that no other test has."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, Final

from ternmq import (
    AdminClient,
    ClientConfig,
    ConsumeFrom,
    Credentials,
    Message,
    Producer,
    ProducerConfig,
    PullConsumer,
    PushConsumer,
    PushConsumerConfig,
    SendResult,
    TopicConfig,
)
from ternmq_consumer.subscriptions import Subscriptions
from ternmq_testing.cluster.cluster import Cluster

SOON_S: Final = 150.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where one test works."""

    nameserver: str
    topic: str
    group: str
    operator: Credentials | None = None
    """Credentials of administrators, where applications are none."""

    in_process: Cluster | None = None
    """The cluster where it is one of this process: only with the marks that need it."""

    @property
    def cluster(self) -> Cluster:
        """The cluster of this process, whose time and faults a test with a mark may use."""
        assert self.in_process is not None, "the test has no mark that needs such a cluster"
        return self.in_process

    def producer(self, **settings: Any) -> Producer:
        """Return a producer, not entered, with these settings."""
        config = replace(ProducerConfig(), **settings)
        return Producer(self.group, nameserver=self.nameserver, config=config)

    def consumer(
        self,
        listener: Callable[[Any], Any] | None = None,
        *,
        topics: Subscriptions = "",
        group: str = "",
        **settings: Any,
    ) -> PushConsumer:
        """Return a push consumer from the first message on, not entered."""
        config = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)
        return PushConsumer(
            group or self.group,
            topics or self.topic,
            listener=listener,
            nameserver=self.nameserver,
            config=replace(config, **settings),
        )

    def reader(self, group: str = "") -> PullConsumer:
        """Return a pull consumer, not entered."""
        return PullConsumer(group, nameserver=self.nameserver)

    def admin(self) -> AdminClient:
        """Return an admin client, not entered."""
        client = ClientConfig(nameservers=(self.nameserver,), credentials=self.operator)
        return AdminClient(client=client)

    async def create_topic(self, queues: int = 4) -> None:
        """Create the topic at every broker."""
        async with self.admin() as admin:
            await admin.create_topic(TopicConfig(self.topic, queues, queues))

    async def fill(self, *bodies: bytes, key: str = "") -> list[SendResult]:
        """Send messages one after the other; with `key`, to one queue."""
        async with self.producer() as producer:
            return [
                await producer.send(Message(self.topic, body, sharding_key=key)) for body in bodies
            ]

    def run(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run the test's coroutine, which has to end soon."""

        async def limited() -> None:
            async with asyncio.timeout(SOON_S):
                await main()

        asyncio.run(limited())


async def eventually(is_so: Callable[[], bool | Awaitable[bool]]) -> None:
    """Wait until `is_so` tells that it is; the test's own limit ends the waiting."""
    while True:
        found = is_so()
        if found if isinstance(found, bool) else await found:
            return
        await asyncio.sleep(0.02)
