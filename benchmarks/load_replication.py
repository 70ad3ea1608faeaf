"""One process that sends so many messages a second until its standard input ends.

    python benchmarks/load_replication.py --nameserver HOST:PORT --per-s 10000

It prints `ready` when the first second is sent, and at the end, as JSON, how many a second were
acknowledged after that, and how long one took.
"""

import argparse
import asyncio
import os
import statistics
import sys
import time
from typing import Final

from benchmarks.patterns import BODY_BYTES, tell
from ternmq import AdminClient, Message, Producer, TopicConfig

TOPIC: Final = "paced"
QUEUES: Final = 8
TURN_S: Final = 0.01


async def main(nameserver: str, per_s: int) -> None:
    """Send until told to end."""
    async with AdminClient(nameserver=nameserver) as admin:
        await admin.create_topic(TopicConfig(TOPIC, read_queues=QUEUES, write_queues=QUEUES))
    over = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    body, taken_ms = os.urandom(BODY_BYTES), list[float]()
    turn = round(per_s * TURN_S)

    async def send(producer: Producer) -> None:
        begun_s = time.perf_counter()
        answers = [await producer.enqueue(Message(TOPIC, body)) for _ in range(turn)]
        await asyncio.gather(*answers)
        taken_ms.append((time.perf_counter() - begun_s) * 1e3)

    async with Producer("pacers", nameserver=nameserver) as producer, asyncio.TaskGroup() as group:
        begun_s, counted_s, turns = time.perf_counter(), 0.0, 0
        while not over.done():
            group.create_task(send(producer))
            turns += 1
            if turns == round(1 / TURN_S):
                taken_ms.clear()
                counted_s = time.perf_counter()
                print("ready", flush=True)
            await asyncio.sleep(max(begun_s + turns * TURN_S - time.perf_counter(), 0))
        tell("paced.rate", len(taken_ms) * turn / (time.perf_counter() - counted_s))
    tell("paced.p50", statistics.median(taken_ms))
    tell("paced.p99", statistics.quantiles(taken_ms, n=100)[98])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nameserver", required=True, metavar="HOST:PORT")
    parser.add_argument("--per-s", type=int, required=True)
    chosen = parser.parse_args()
    asyncio.run(main(chosen.nameserver, chosen.per_s))
