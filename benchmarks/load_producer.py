"""One producer process that measures how fast it sends; bench.py starts it.

    python benchmarks/load_producer.py --nameserver HOST:PORT --only pipelined

Lines on standard output are JSON: each figure once it is known.
"""

import argparse
import asyncio
import os
from collections.abc import Collection, Sequence
from typing import Final

import numpy as np

from benchmarks.figures import BACKLOG, SENDING
from benchmarks.patterns import BODY_BYTES, MANY, Enqueue, Send, many, measure, scaled, tell
from benchmarks.telemetry_load import discarded
from ternmq import AdminClient, ClientConfig, Message, Producer, Telemetry, TopicConfig

TOPIC: Final = "benchmark"
BACKLOG_TOPIC: Final = "backlog"
QUEUES: Final = 8


class ProducerSender:
    """Sends through a `Producer`, each message made when it is sent (for `send_many`: before)."""

    def __init__(self, producer: Producer, topic: str = TOPIC) -> None:
        self._producer = producer
        self._topic = topic

    def send_of(self, body: bytes) -> Send:
        """Return what sends one message with `body` and waits for its answer."""
        send, topic = self._producer.send, self._topic
        return lambda: send(Message(topic, body, tags="TagA"))

    def enqueue_of(self, body: bytes) -> Enqueue:
        """Return what takes one message with `body` and tells later what became of it."""
        enqueue, topic = self._producer.enqueue, self._topic
        return lambda: enqueue(Message(topic, body, tags="TagA"))

    def many_of(self, bodies: Sequence[bytes]) -> Send:
        """Return what sends one message with each of `bodies` and waits for all answers."""
        batch = [Message(self._topic, body, tags="TagA") for body in bodies]
        return lambda: self._producer.send_many(batch)

    def columns_of(self, buffer: bytes, size: int) -> Send:
        """Return what sends one message with each `size` bytes and waits for all answers."""
        bodies = (buffer, np.arange(0, len(buffer) + 1, size))
        return lambda: self._producer.send_columns(self._topic, bodies, tags="TagA")


async def main(
    nameserver: str, only: Collection[str], scale: float, telemetry: Telemetry | None
) -> None:
    """Make the topics, then measure, or leave a backlog for consumers."""
    client = ClientConfig(nameservers=(nameserver,), telemetry=telemetry)
    async with AdminClient(nameserver=nameserver) as admin:
        for topic in (TOPIC, BACKLOG_TOPIC):
            await admin.create_topic(TopicConfig(topic, read_queues=QUEUES, write_queues=QUEUES))
    async with Producer("benchmark-producers", client=client) as producer:
        if "fill" in only:
            buffer = os.urandom(BODY_BYTES * MANY)
            send = ProducerSender(producer, BACKLOG_TOPIC).columns_of(buffer, BODY_BYTES)
            tell("fill", await many(send, scaled(BACKLOG, scale)))
        else:
            await measure(ProducerSender(producer), only, scale)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nameserver", required=True, metavar="HOST:PORT")
    parser.add_argument("--only", action="append", default=[], choices=[*SENDING, "fill"])
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the numbers")
    parser.add_argument("--telemetry", choices=["metrics", "traces"], help="by OpenTelemetry")
    chosen = parser.parse_args()
    kind = None if chosen.telemetry is None else discarded(chosen.telemetry)
    asyncio.run(main(chosen.nameserver, chosen.only, chosen.scale, kind))
