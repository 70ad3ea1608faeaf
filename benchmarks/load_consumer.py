"""One consumer process that measures how fast it takes a backlog; bench.py starts it.

    python benchmarks/load_consumer.py push --nameserver HOST:PORT --count 500000

Prints one JSON line: messages a second from the first batch, which does not count, to the last.
Every body is read.
"""

import argparse
import asyncio
import os
import time
from collections.abc import Sequence
from typing import Final

from benchmarks.load_producer import BACKLOG_TOPIC, QUEUES
from benchmarks.patterns import BODY_BYTES, tell
from ternmq import ConsumeFrom, PullConsumer, PushConsumer, PushConsumerConfig, StoredMessage

GIVE_UP_AFTER_S: Final = 60.0


class Meter:
    """Counts what comes; done when everything has come."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._first = 0
        self._begun_s = 0.0
        self._ended_s = 0.0
        self.count = 0
        self.done = asyncio.Event()

    async def take(self, messages: Sequence[StoredMessage]) -> None:
        """Read every body."""
        if any([len(message.body) != BODY_BYTES for message in messages]):
            raise ValueError("that is not what was sent")
        if not self.count:
            self._first = len(messages)
            self._begun_s = time.perf_counter()
        self.count += len(messages)
        if self.count >= self._wanted:
            self._ended_s = time.perf_counter()
            self.done.set()

    def rate(self) -> float:
        """Return messages a second."""
        return (self.count - self._first) / (self._ended_s - self._begun_s)


async def push(nameserver: str, meter: Meter, group: str) -> None:
    """Let a `PushConsumer` have the backlog."""
    config = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)
    async with PushConsumer(
        group, BACKLOG_TOPIC, batch_listener=meter.take, nameserver=nameserver, config=config
    ):
        await meter.done.wait()


async def pull(nameserver: str, meter: Meter, group: str) -> None:
    """Poll the backlog with a `PullConsumer`."""
    async with PullConsumer(group, nameserver=nameserver) as consumer:
        queues = await consumer.queues(BACKLOG_TOPIC)
        assert len(queues) == QUEUES
        consumer.assign(queues)
        for queue in queues:
            consumer.seek(queue, 0)
        while not meter.done.is_set():
            await meter.take(await consumer.poll())


async def main(kind: str, nameserver: str, count: int) -> None:
    """Take `count` messages as a group that never consumed."""
    meter = Meter(count)
    consume = {"push": push, "pull": pull}[kind]
    async with asyncio.timeout(GIVE_UP_AFTER_S):
        await consume(nameserver, meter, f"{kind}-readers-{os.getpid()}")
    tell(kind, meter.rate())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("push", "pull"))
    parser.add_argument("--nameserver", required=True, metavar="HOST:PORT")
    parser.add_argument("--count", type=int, required=True, help="messages to wait for")
    chosen = parser.parse_args()
    asyncio.run(main(chosen.kind, chosen.nameserver, chosen.count))
