"""Push consumers in a simulated cluster, on virtual time."""

import asyncio
from collections.abc import Sequence

from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.listener import ConsumeStatus
from ternmq_consumer.push import PushConsumer
from ternmq_model.stored_message import StoredMessage
from tests.support.toy_cluster import TOPIC, ToyCluster, toy_cluster
from tests.support.virtual_time import run_in_virtual_time

FIRST = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)


def fill(cluster: ToyCluster, per_queue: int, tags: Sequence[str] = ("",)) -> int:
    """Store messages in every queue and return how many."""
    for queue in cluster.queues:
        for number in range(per_queue):
            cluster.append(queue, b"body", tags[number % len(tags)])
    return per_queue * len(cluster.queues)


def test_every_message_of_a_backlog_is_consumed_and_committed() -> None:
    async def main() -> None:
        async with toy_cluster(queues=4) as cluster:
            count = fill(cluster, 300)
            seen: list[StoredMessage] = []
            async with PushConsumer(
                "g",
                TOPIC,
                listener=seen.append,
                nameserver=cluster.nameserver,
                config=FIRST,
                env=cluster.environment("c1"),
            ) as consumer:
                await consumer.assigned()
                assert consumer.assignment() == cluster.queues
                while len(seen) < count:
                    await asyncio.sleep(0.01)
            assert len({(message.queue, message.queue_offset) for message in seen}) == count
            assert len(seen) == count
            assert all(cluster.committed("g", queue) == 300 for queue in cluster.queues)

    run_in_virtual_time(main())


__all__ = ["ConsumeStatus"]
