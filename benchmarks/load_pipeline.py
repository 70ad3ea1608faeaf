"""One client process of `send_beside.py`, which starts it.

    python benchmarks/load_pipeline.py scan --nameserver HOST:PORT

Goes on until it is killed.
"""

import argparse
import asyncio
import os
from typing import Final

from benchmarks.load_filtering import TOPIC
from benchmarks.patterns import BODY_BYTES
from ternmq import AdminClient, Message
from ternmq_consumer.scan import BlockingScanner
from ternmq_model.queue import MessageQueue
from ternmq_model.transaction import Resolution
from ternmq_producer.staging import StagedMessages, StagingProducer

STAGED_TOPIC: Final = "staged"
CHUNK: Final = 8192
CHUNKS: Final = 24
"""Number of messages in a batch: 196,608 rows."""


async def _queues(nameserver: str) -> list[tuple[MessageQueue, int]]:
    """Return the queues of the backlog and where each ends."""
    async with AdminClient(nameserver=nameserver) as admin:
        described = await admin.describe_topic(TOPIC)
    return [(one.queue, one.max_offset) for one in described.queues]


def scan(nameserver: str) -> None:
    """Scan the whole backlog, with every column, again and again."""
    queues = asyncio.run(_queues(nameserver))
    with BlockingScanner(nameserver) as scanner:
        print("ready", flush=True)
        while True:
            for queue, end in queues:
                for batch in scanner.scan(queue, 0, end):
                    assert batch.data


async def commit(nameserver: str) -> None:
    """Stage a batch and commit it, again and again."""
    body = os.urandom(BODY_BYTES)
    async with StagingProducer("committers", nameserver=nameserver) as producer:
        print("ready", flush=True)
        while True:
            staged = StagedMessages()
            for _ in range(CHUNKS):
                messages = [Message(STAGED_TOPIC, body, tags="TagA") for _ in range(CHUNK)]
                staged += await producer.stage(messages, staged_for="batch/0", immunity_s=600)
            await producer.states(staged)
            await producer.end(staged, Resolution.COMMIT)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("load", choices=("scan", "commit"))
    parser.add_argument("--nameserver", required=True, metavar="HOST:PORT")
    chosen = parser.parse_args()
    if chosen.load == "scan":
        scan(chosen.nameserver)
    else:
        asyncio.run(commit(chosen.nameserver))
