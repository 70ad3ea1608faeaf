"""Delay of timed messages while very many wait.

    python benchmarks/timed.py                    # 1,000,000 within an hour, watched for 5 minutes
    python benchmarks/timed.py --messages 50000 --span-s 180 --watch-s 10 --mode async

It fills a broker of its own, waits for the first times, and prints what the broker tells of the
lateness: against the time that was asked for, up to the delivered record's store time.
"""

import argparse
import asyncio
import os
import time
from pathlib import Path
from typing import Final

from benchmarks.machine import describe, resident_mib
from benchmarks.services import dev
from ternmq import AdminClient, Message, Producer, TopicConfig

TOPIC: Final = "timed"
BATCH: Final = 5_000
FILL_PER_S: Final = 15_000
"""Slower than a machine fills: the first time is not to come before the last message."""


async def measure(nameserver: str, process_id: int, options: argparse.Namespace) -> None:
    """Fill, wait, watch."""
    async with (
        AdminClient(nameserver=nameserver) as admin,
        Producer("benchmark-timed", nameserver=nameserver) as producer,
    ):
        await admin.create_topic(TopicConfig(TOPIC, read_queues=8, write_queues=8))
        (broker,) = await admin.brokers()
        bodies = [os.urandom(1024) for _ in range(64)]
        resident = resident_mib(process_id)
        begun_s = time.time()
        first_ms = int((begun_s + 5 + options.messages / FILL_PER_S) * 1000)
        step_ms = options.span_s * 1000 / options.messages
        for begin in range(0, options.messages, BATCH):
            await producer.send_many(
                [
                    Message(TOPIC, bodies[n % 64], deliver_at_ms=first_ms + int(n * step_ms))
                    for n in range(begin, min(begin + BATCH, options.messages))
                ]
            )
        took_s = time.time() - begun_s
        waiting = (await admin.broker_status(broker)).waiting
        print(f"stored     {options.messages / took_s:>12,.0f} msg/s, {waiting.timed:,} wait")
        print(f"memory     {resident_mib(process_id) - resident:>12,.1f} MiB more")
        await asyncio.sleep(max(first_ms / 1000 - time.time(), 0) + options.watch_s)
        waiting = (await admin.broker_status(broker)).waiting
        print(f"delivered  {waiting.delivered:>12,} in {options.watch_s} s")
        print(
            f"late       {waiting.late_p50_ms:>12,} ms p50, {waiting.late_p99_ms:,} ms p99, "
            f"{waiting.late_max_ms:,} ms at most"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--span-s", type=int, default=3_600)
    parser.add_argument("--watch-s", type=int, default=300)
    parser.add_argument("--mode", choices=("sync", "async"), default="sync")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"))
    given = parser.parse_args()
    print(*describe(given.folder), sep="\n")
    with dev(given.folder, given.mode) as running:
        asyncio.run(measure(running.nameserver, running.process_id, given))
