"""One client process of `messaging.py`, which starts it.

    python benchmarks/load_filtering.py needle --nameserver HOST:PORT

Prints figures as JSON lines.
"""

import argparse
import asyncio
import os
import statistics
import time
from typing import Final

from benchmarks.patterns import BODY_BYTES, MANY, tell
from ternmq import (
    AdminClient,
    Message,
    Producer,
    PullConsumer,
    TopicConfig,
    sql,
)

TOPIC: Final = "haystack"
SENT_TOPIC: Final = "beside"
QUEUES: Final = 4
"""On each broker."""

BACKLOG: Final = 300_000
NEEDLES: Final = 100
"""One message in so many is wanted."""

CONDITION: Final = (
    "amount >= 0 AND region <> 'none' AND price BETWEEN 0.5 AND 1e9"
    " AND kind IN ('order', 'refund') AND serial = {serial}"
)
"""On five properties; the last one decides, so that every message costs all five."""

PACE_PER_S: Final = 1000
PACED_S: Final = 10
WARM_S: Final = 2
GIVE_UP_AFTER_S: Final = 120.0


async def fill(nameserver: str) -> None:
    """Leave a backlog of messages with five properties, and a topic to send to."""
    async with AdminClient(nameserver=nameserver) as admin:
        for topic in (TOPIC, SENT_TOPIC):
            await admin.create_topic(TopicConfig(topic, read_queues=QUEUES, write_queues=QUEUES))
    body = os.urandom(BODY_BYTES)
    messages = [
        Message(
            TOPIC,
            body,
            tags="TagA",
            properties={
                "amount": str(number),
                "region": ("eu", "us", "jp")[number % 3],
                "price": f"{number % 1000 + 1}.25",
                "kind": ("order", "refund")[number % 2],
                "serial": str(number % NEEDLES),
            },
        )
        for number in range(MANY)
    ]
    async with Producer("fillers", nameserver=nameserver) as producer:
        for _ in range(BACKLOG // MANY):
            await producer.send_many(messages)


async def pass_all(consumer: PullConsumer) -> int:
    """Read from the first message of every queue to the last; return how many came."""
    queues = consumer.assignment()
    await consumer.seek_to_begin()
    ends = await consumer.end_offsets(queues)
    found = 0
    while any((consumer.position(queue) or 0) < end for queue, end in ends.items()):
        found += len(await consumer.poll(timeout_s=0.05))
    return found


async def needle(nameserver: str) -> None:
    """Find one message in a hundred: how many are looked at in a second."""
    async with PullConsumer(nameserver=nameserver) as consumer:
        condition = sql(CONDITION.format(serial=7))
        consumer.assign(await consumer.queues(TOPIC), condition)
        await pass_all(consumer)  # whatever is not in memory is now
        begun_s = time.perf_counter()
        found = await pass_all(consumer)
        took_s = time.perf_counter() - begun_s
    assert found == BACKLOG // NEEDLES, found
    tell("sql.evaluated", BACKLOG / took_s)


async def nothing(nameserver: str) -> None:
    """Look for what is not there, again and again, until killed."""
    async with PullConsumer(nameserver=nameserver) as consumer:
        consumer.assign(await consumer.queues(TOPIC), sql(CONDITION.format(serial=NEEDLES)))
        await pass_all(consumer)
        print("ready", flush=True)
        while True:
            assert not await pass_all(consumer)


async def send(nameserver: str) -> None:
    """Send a thousand messages a second, and tell how long each took to be acknowledged."""
    took_ms: list[float] = []
    body = os.urandom(BODY_BYTES)

    async def one(producer: Producer) -> None:
        begun_s = time.perf_counter()
        await producer.send(Message(SENT_TOPIC, body))
        took_ms.append((time.perf_counter() - begun_s) * 1e3)

    async with Producer("pacers", nameserver=nameserver) as producer, asyncio.TaskGroup() as group:
        begun_s = time.perf_counter()
        for count in range(PACE_PER_S * PACED_S):
            ahead_s = begun_s + count / PACE_PER_S - time.perf_counter()
            if ahead_s > 0:
                await asyncio.sleep(ahead_s)
            group.create_task(one(producer))
    counted = took_ms[PACE_PER_S * WARM_S :]
    tell("beside.p50", statistics.median(counted))
    tell("beside.p99", statistics.quantiles(counted, n=100)[98])


LOADS: Final = {"fill": fill, "needle": needle, "nothing": nothing, "send": send}


async def main(name: str, nameserver: str) -> None:
    """Run one load."""
    async with asyncio.timeout(GIVE_UP_AFTER_S):
        await LOADS[name](nameserver)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("load", choices=LOADS)
    parser.add_argument("--nameserver", required=True, metavar="HOST:PORT")
    chosen = parser.parse_args()
    asyncio.run(main(chosen.load, chosen.nameserver))
