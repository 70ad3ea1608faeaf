"""One of the demo's consumers: a process of its own that reports what it consumed.

Lines on standard output are JSON: first which queues of the topic it was assigned, again when that
changes, and then one line for each batch. A batch is reported before it counts as consumed, so that
a consumer that is killed has reported at least everything that its group will not see again.
"""

import asyncio
import json
import sys
from collections.abc import Sequence
from contextlib import suppress

from flights import TOPIC
from ternmq import PushConsumer, PushConsumerConfig, StoredMessage, run

GROUP = "flight-statistics"


async def report(messages: Sequence[StoredMessage]) -> None:
    """Tell the demo what this batch holds. On the loop, so that lines do not get mixed up."""
    rows = [
        (
            message.queue_offset,
            message.sharding_key,
            message.tags,
            message.properties.get("departure_delay"),
        )
        for message in messages
    ]
    tell({"queue": messages[0].queue.queue_id, "rows": rows})


def tell(line: object) -> None:
    """Write one line, whole and at once."""
    sys.stdout.write(json.dumps(line, separators=(",", ":")) + "\n")
    sys.stdout.flush()


async def main(nameserver: str) -> None:
    """Consume until standard input ends, or a signal comes."""
    config = PushConsumerConfig(order_per_queue=True)
    async with PushConsumer(
        GROUP, TOPIC, batch_listener=report, nameserver=nameserver, config=config
    ) as consumer:
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        loop.add_reader(sys.stdin.fileno(), ended.set)
        assigned: list[int] = []
        while not ended.is_set():
            # The group's retry topic has a queue, too, from some moment after the group began.
            now = [queue.queue_id for queue in consumer.assignment() if queue.topic == TOPIC]
            if now != assigned:
                assigned = now
                tell({"assigned": assigned})
            with suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    await ended.wait()


if __name__ == "__main__":
    run(main(sys.argv[1]))
