"""Sending patterns of applications, as loads for a producer and for the bare path."""

import asyncio
import json
import os
import statistics
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, Protocol

from benchmarks.figures import SENDING

BODY_BYTES: Final = 1024
SMALL_BYTES: Final = 128

MANY: Final = 20_000
"""Messages of one call of `send_many`."""

SENDERS: Final = {"awaiting-16": 16, "awaiting-64": 64, "awaiting-256": 256}

PENDING_MAX: Final = 8192
"""Messages that a pipelining sender has under way; beyond it waits for the older half."""

WARM_UP: Final = 0.2
"""Part of a measurement that runs before it and does not count."""

Send = Callable[[], Awaitable[object]]
Enqueue = Callable[[], Awaitable[Awaitable[object]]]


class Sender(Protocol):
    """Measured loads. Each method returns the function that does the work, without a wrapper."""

    def send_of(self, body: bytes) -> Send:
        """Return what sends one message with `body` and waits for its answer."""
        ...

    def enqueue_of(self, body: bytes) -> Enqueue:
        """Return what takes one message with `body` and tells later what became of it."""
        ...

    def many_of(self, bodies: Sequence[bytes]) -> Send:
        """Return what sends one message with each of `bodies` and waits for all answers."""
        ...

    def columns_of(self, buffer: bytes, size: int) -> Send:
        """Return what sends one message with each `size` bytes and waits for all answers."""
        ...


def tell(name: str, value: float) -> None:
    """Report one figure to who started this process."""
    print(json.dumps({"name": name, "value": value}), flush=True)


def told(lines: Iterable[str]) -> Mapping[str, float]:
    """Return the figures that a process reported."""
    reports = [json.loads(line) for line in lines if line.startswith("{")]
    return {report["name"]: float(report["value"]) for report in reports}


async def measure(sender: Sender, only: Collection[str], scale: float) -> None:
    """Report the figures of sending.

    Args:
        sender: Client to measure.
        only: Names of measurements; empty = all.
        scale: Factor on the numbers of messages.
    """
    body = os.urandom(BODY_BYTES)
    for name in SENDING:
        if only and name not in only:
            continue
        if name == "alone":
            await _measure_alone(sender.send_of(body), int(5_000 * scale))
        elif name in SENDERS:
            send, count = sender.send_of(body), int(100_000 * scale)
            await awaiting(send, SENDERS[name], int(count * WARM_UP))
            tell(name, await awaiting(send, SENDERS[name], count))
        elif name == "pipelined":
            enqueue, count = sender.enqueue_of(body), int(200_000 * scale)
            await pipelined(enqueue, int(count * WARM_UP))
            tell(name, await pipelined(enqueue, count))
        else:
            size, count = (SMALL_BYTES, 800_000) if name.endswith("128") else (BODY_BYTES, 300_000)
            if name.startswith("send-columns"):
                send = sender.columns_of(os.urandom(size * MANY), size)
            else:
                send = sender.many_of([os.urandom(size) for _ in range(MANY)])
            await many(send, MANY)
            tell(name, await many(send, scaled(count, scale)))


async def _measure_alone(send: Send, count: int) -> None:
    await alone(send, int(count * WARM_UP))
    p50, p99 = await alone(send, count)
    tell("alone.p50", p50)
    tell("alone.p99", p99)


async def alone(send: Send, count: int, *, pace_s: float = 0.0) -> tuple[float, float]:
    """Return p50 and p99 of sends one after the other, in microseconds.

    Args:
        send: Function that sends one message.
        count: Number of messages.
        pace_s: Time between the begins of two sends, s. 0 = each follows the answer before.
    """
    taken_us: list[float] = []
    due_s = time.perf_counter()
    for _ in range(count):
        if pace_s:
            due_s += pace_s
            await asyncio.sleep(max(0, due_s - time.perf_counter()))
        begun_s = time.perf_counter()
        await send()
        taken_us.append((time.perf_counter() - begun_s) * 1e6)
    return statistics.median(taken_us), statistics.quantiles(taken_us, n=100)[98]


async def awaiting(send: Send, senders: int, count: int) -> float:
    """Return messages a second of `senders` tasks that each await every send."""
    each = count // senders

    async def work() -> None:
        for _ in range(each):
            await send()

    begun_s = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(senders):
            group.create_task(work())
    return each * senders / (time.perf_counter() - begun_s)


async def pipelined(enqueue: Enqueue, count: int) -> float:
    """Return messages a second of one task that takes the results later."""
    pending: deque[Awaitable[object]] = deque()
    begun_s = time.perf_counter()
    for _ in range(count):
        pending.append(await enqueue())
        if len(pending) >= PENDING_MAX:
            await asyncio.gather(*(pending.popleft() for _ in range(PENDING_MAX // 2)))
    await asyncio.gather(*pending)
    return count / (time.perf_counter() - begun_s)


async def many(send: Send, count: int) -> float:
    """Return messages a second of calls that send `MANY` each, one call after the other."""
    begun_s = time.perf_counter()
    for _ in range(count // MANY):
        await send()
    return count // MANY * MANY / (time.perf_counter() - begun_s)


def scaled(count: int, scale: float) -> int:
    """Return about `count * scale` messages: as many as some calls of `send_many` send."""
    return max(1, round(count * scale / MANY)) * MANY
