"""One client process of `messaging.py`, which starts it.

    python benchmarks/load_messaging.py consume-one --nameserver HOST:PORT

Prints figures as JSON lines. Times are of the machine's monotonic clock, which all processes share.
"""

import argparse
import asyncio
import os
import statistics
import struct
import time
from typing import Final

from benchmarks.load_consumer import Meter
from benchmarks.patterns import BODY_BYTES, MANY, tell
from ternmq import (
    AdminClient,
    ConsumeFrom,
    Message,
    Producer,
    PushConsumer,
    PushConsumerConfig,
    Resolution,
    StoredMessage,
    TopicConfig,
    TransactionProducer,
)

TOPIC: Final = "messaging"
PACED_TOPIC: Final = "paced"
QUEUES: Final = 4
"""On each broker."""

BACKLOG: Final = 500_000
SENDERS: Final = 64
TRANSACTIONS_EACH: Final = 500
"""By each sender; a fifth more before, unmeasured."""

PACE_PER_S: Final = 1000
PACED_S: Final = 20
WARM_S: Final = 2
"""Duration of the paced load before times count, s."""

_TIME: Final = struct.Struct(">d")
FROM_FIRST: Final = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)
GIVE_UP_AFTER_S: Final = 120.0


async def create(nameserver: str, topic: str) -> None:
    """Create a topic on every broker."""
    async with AdminClient(nameserver=nameserver) as admin:
        await admin.create_topic(TopicConfig(topic, read_queues=QUEUES, write_queues=QUEUES))


async def fill(nameserver: str) -> None:
    """Leave a backlog."""
    await create(nameserver, TOPIC)
    body = os.urandom(BODY_BYTES)
    messages = [Message(TOPIC, body, tags="TagA") for _ in range(MANY)]
    async with Producer("fillers", nameserver=nameserver) as producer:
        for _ in range(BACKLOG // MANY):
            await producer.send_many(messages)


async def consume_batch(nameserver: str) -> None:
    """Take the backlog with a batch listener."""
    meter = Meter(BACKLOG)
    async with PushConsumer(
        "readers", TOPIC, batch_listener=meter.take, nameserver=nameserver, config=FROM_FIRST
    ):
        await meter.done.wait()
    tell("consume-batch", meter.rate())


async def consume_one(nameserver: str) -> None:
    """Take the backlog with a listener that is called with each message."""
    meter = Meter(BACKLOG)

    async def listen(message: StoredMessage) -> None:
        await meter.take((message,))

    async with PushConsumer(
        "readers", TOPIC, listener=listen, nameserver=nameserver, config=FROM_FIRST
    ):
        await meter.done.wait()
    tell("consume-one", meter.rate())


async def receive(nameserver: str) -> None:
    """Receive what `pace` sends, and tell how long it was on its way."""
    await create(nameserver, PACED_TOPIC)
    taken_ms: list[float] = []
    done = asyncio.Event()

    async def listen(message: StoredMessage) -> None:
        taken_ms.append((time.perf_counter() - _TIME.unpack_from(message.body)[0]) * 1e3)
        if len(taken_ms) >= PACE_PER_S * PACED_S:
            done.set()

    async with PushConsumer(
        "receivers", PACED_TOPIC, listener=listen, nameserver=nameserver, config=FROM_FIRST
    ) as consumer:
        await consumer.assigned()
        print("ready", flush=True)
        await done.wait()
    counted = taken_ms[PACE_PER_S * WARM_S :]
    tell("end-to-end.p50", statistics.median(counted))
    tell("end-to-end.p99", statistics.quantiles(counted, n=100)[98])


async def pace(nameserver: str) -> None:
    """Send so many messages a second, each at its time."""
    filler = os.urandom(BODY_BYTES - _TIME.size)
    async with Producer("pacers", nameserver=nameserver) as producer, asyncio.TaskGroup() as group:
        begun_s = time.perf_counter()
        for count in range(PACE_PER_S * PACED_S):
            ahead_s = begun_s + count / PACE_PER_S - time.perf_counter()
            if ahead_s > 0:
                await asyncio.sleep(ahead_s)
            body = _TIME.pack(time.perf_counter()) + filler
            group.create_task(producer.send(Message(PACED_TOPIC, body, tags="TagA")))


async def transactions(nameserver: str) -> None:
    """Commit transactions whose local part is nothing, and await each end."""
    await create(nameserver, TOPIC)
    body = os.urandom(BODY_BYTES)

    async def execute(message: Message, argument: object) -> Resolution:
        return Resolution.COMMIT

    async def check(message: StoredMessage) -> Resolution:
        raise AssertionError("a transaction was asked for")

    async with TransactionProducer(
        "payers", execute=execute, check=check, nameserver=nameserver
    ) as producer:

        async def send(count: int) -> None:
            for _ in range(count):
                result = await producer.send(Message(TOPIC, body, tags="TagA"))
                assert result.is_confirmed, result

        for share in (TRANSACTIONS_EACH // 5, TRANSACTIONS_EACH):
            begun_s = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                for _ in range(SENDERS):
                    group.create_task(send(share))
            taken_s = time.perf_counter() - begun_s
    tell("transactions", SENDERS * TRANSACTIONS_EACH / taken_s)


LOADS: Final = {
    "transactions": transactions,
    "fill": fill,
    "consume-batch": consume_batch,
    "consume-one": consume_one,
    "receive": receive,
    "pace": pace,
}


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
