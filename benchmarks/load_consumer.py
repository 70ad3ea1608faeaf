"""One consumer process that measures how fast it takes a backlog; bench.py starts it.

    python benchmarks/load_consumer.py push --nameserver HOST:PORT --count 500000

Prints one JSON line: messages a second from the first batch, which does not count, to the last.
Every body is read.
"""

import argparse
import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from benchmarks.figures import CONSUMING
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
        self._add(len(messages))

    async def take_columns(self, batch: Any) -> None:
        """Read every body of an Arrow batch."""
        body = batch.column("body")
        if body.nbytes < BODY_BYTES * len(body):
            raise ValueError("that is not what was sent")
        self._add(len(body))

    def _add(self, count: int) -> None:
        if not self.count:
            self._first = count
            self._begun_s = time.perf_counter()
        self.count += count
        if self.count >= self._wanted:
            self._ended_s = time.perf_counter()
            self.done.set()

    def rate(self) -> float:
        """Return messages a second."""
        return (self.count - self._first) / (self._ended_s - self._begun_s)


async def push(kind: str, nameserver: str, meter: Meter, group: str) -> None:
    """Let a `PushConsumer` have the backlog."""
    config = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)
    listener: Mapping[str, Any] = {"batch_listener": meter.take}
    if kind == "push-columns":
        listener = {"columns_listener": meter.take_columns}
    async with PushConsumer(group, BACKLOG_TOPIC, nameserver=nameserver, config=config, **listener):
        await meter.done.wait()


async def pull(kind: str, nameserver: str, meter: Meter, group: str) -> None:
    """Poll the backlog with a `PullConsumer`."""
    columns = ("body",) if kind == "pull-bodies" else ()
    async with PullConsumer(group, nameserver=nameserver) as consumer:
        queues = await consumer.queues(BACKLOG_TOPIC)
        assert len(queues) == QUEUES
        consumer.assign(queues)
        for queue in queues:
            consumer.seek(queue, 0)
        while not meter.done.is_set():
            if kind == "pull":
                await meter.take(await consumer.poll())
            else:
                await meter.take_columns(await consumer.poll_columns(columns=columns))


async def main(kind: str, nameserver: str, count: int) -> None:
    """Take `count` messages as a group that never consumed."""
    meter = Meter(count)
    consume = push if kind.startswith("push") else pull
    async with asyncio.timeout(GIVE_UP_AFTER_S):
        await consume(kind, nameserver, meter, f"{kind}-readers-{os.getpid()}")
    tell(kind, meter.rate())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=CONSUMING)
    parser.add_argument("--nameserver", required=True, metavar="HOST:PORT")
    parser.add_argument("--count", type=int, required=True, help="messages to wait for")
    chosen = parser.parse_args()
    asyncio.run(main(chosen.kind, chosen.nameserver, chosen.count))
