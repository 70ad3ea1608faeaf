"""Blocking clients and event loops of the caller's own, one after the other in one process."""

import subprocess
import sys
from pathlib import Path

from tests.support.processes import running_dev

SCRIPT = """
import asyncio, sys
from ternmq import BlockingProducer, BlockingPullConsumer, Message, Producer

nameserver = sys.argv[1]

async def send():
    async with Producer("p", nameserver=nameserver) as producer:
        for _ in range(50):
            await producer.send(Message("mixed", b"x"))

for _ in range(4):
    with BlockingProducer("p", nameserver=nameserver) as producer:
        producer.send_many([Message("mixed", b"x")] * 100)
    with BlockingPullConsumer("g", nameserver=nameserver) as consumer:
        consumer.assign(consumer.queues("mixed"))
        while consumer.poll(timeout_s=0.1):
            pass
        asyncio.run(send())
    asyncio.run(send())
left_open = BlockingProducer("p", nameserver=nameserver)
left_open.__enter__()
left_open.send(Message("mixed", b"x"))
print("done")
"""


def test_event_loops_start_and_stop_silently(tmp_path: Path) -> None:
    with running_dev(tmp_path) as dev:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, dev.nameserver],
            capture_output=True, text=True, timeout=150,
        )  # fmt: skip
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)
