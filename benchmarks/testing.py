"""Speed of `ternmq.testing`: opens, moves of time, tests and explorations. Prints a table.

    python benchmarks/testing.py [--rounds 21] [--seeds 200] [--tests 100] [--only ladder]

Moves are measured in one process, each in a cluster of its own; a first cluster is not counted.
The tests run in a process of pytest without plugins but that of TernMQ, and each sends a message
and consumes it.
"""

import argparse
import asyncio
import gc
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks import machine
from benchmarks.figures import markdown
from ternmq import Message, Resolution, StoredMessage
from ternmq.testing import Cluster, explore
from ternmq_model.errors import TernError

_BROKERS: Final = (1, 2)


class Cost(NamedTuple):
    """Cost of one measurement, ms."""

    wall_ms: float
    cpu_ms: float


class Move(NamedTuple):
    """A move of time, and what precedes it."""

    text: str
    by: str
    prepared: Callable[[Cluster], AbstractAsyncContextManager[Callable[[], bool]]]
    """Opens the clients; yields a function that tells whether the move has had its effect."""


@asynccontextmanager
async def ladder(cluster: Cluster) -> AsyncGenerator[Callable[[], bool]]:
    """Prepare a message whose listener always fails."""

    async def listen(_: StoredMessage) -> None:
        raise ValueError("bad luck")

    async with cluster.producer("p") as producer, cluster.push_consumer("g", "t", listener=listen):
        await producer.send(Message("t", b"1"))
        await cluster.settled()
        yield lambda: len(cluster.dead_letters("g")) == 1


@asynccontextmanager
async def delay(cluster: Cluster) -> AsyncGenerator[Callable[[], bool]]:
    """Prepare a message for the day after the day after tomorrow, and its consumer."""
    seen: list[StoredMessage] = []
    async with (
        cluster.producer("p") as producer,
        cluster.push_consumer("g", "t", listener=seen.append),
    ):
        await producer.send(Message("t", b"1", deliver_after_ms=3 * 24 * 3600 * 1000))
        yield lambda: len(seen) == 1


@asynccontextmanager
async def check_backs(cluster: Cluster) -> AsyncGenerator[Callable[[], bool]]:
    """Prepare a transaction that nobody resolves."""
    asked: list[StoredMessage] = []

    def check(message: StoredMessage) -> Resolution:
        asked.append(message)
        return Resolution.UNKNOWN

    def execute(_message: Message, _argument: object) -> Resolution:
        return Resolution.UNKNOWN

    async with cluster.transaction_producer("p", execute=execute, check=check) as producer:
        await producer.send(Message("t", b"1"))
        yield lambda: len(asked) == 15


MOVES: Final = {
    "ladder": Move("16 retries to the dead letters", "5h", ladder),
    "delay": Move("message delayed by 3 days", "3d", delay),
    "check-backs": Move("15 check-backs of a transaction", "1d", check_backs),
}


async def opened(brokers: int) -> dict[str, Cost]:
    """Return the costs of opening a cluster and of closing it."""
    cluster = Cluster(brokers=brokers)
    opening = stopwatch()
    await cluster.__aenter__()
    cost, closing = opening(), stopwatch()
    await cluster.__aexit__(None, None, None)
    return {"open": cost, "close": closing()}


async def moved(move: Move, brokers: int) -> dict[str, Cost]:
    """Return the cost of a move.

    Raises:
        RuntimeError: The move did not bring about what it was to.
    """
    async with Cluster(brokers=brokers) as cluster, move.prepared(cluster) as has_happened:
        moving = stopwatch()
        await cluster.advance(move.by)
        cost = moving()
        if not has_happened():
            raise RuntimeError(f"{move.text}: did not happen within {move.by}")
    return {"move": cost}


def stopwatch() -> Callable[[], Cost]:
    """Return a function that returns what has passed since this call."""
    gc.collect()
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    return lambda: Cost((time.perf_counter() - wall_s) * 1000, (time.process_time() - cpu_s) * 1000)


def medians(costs: list[dict[str, Cost]]) -> dict[str, Cost]:
    """Return the medians of rounds."""
    return {
        name: Cost(*map(statistics.median, zip(*(each[name] for each in costs), strict=True)))
        for name in costs[0]
    }


async def order(cluster: Cluster) -> None:
    """Send ten messages with a key to two members: the scenario of the exploration."""
    seen: list[StoredMessage] = []
    async with (
        cluster.producer("shop") as producer,
        cluster.push_consumer("a", "orders", listener=seen.append),
    ):
        for number in range(10):
            with suppress(TernError):
                await producer.send(Message("orders", b"%d" % number, sharding_key="k"))
        await cluster.settled()


_TESTS: Final = """
import pytest
from ternmq import Message

@pytest.mark.parametrize("number", range({count}))
def test_message_is_consumed(ternmq, number):
    seen = []
    with ternmq.producer("p") as producer:
        producer.send(Message("t", b"1"))
    with ternmq.push_consumer("g", "t", listener=seen.append):
        ternmq.settled()
    assert len(seen) == 1
"""


def tested(count: int) -> Cost:
    """Return the cost of tests with a cluster each, the start of pytest included."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "test_it.py")
        file.write_text(_TESTS.format(count=count))
        command = [sys.executable, "-m", "pytest", "-q", "-p", "ternmq_testing.pytest_plugin"]
        before, begun_s = os.times(), time.perf_counter()
        subprocess.run(
            [*command, str(file)],
            check=True,
            cwd=folder,
            env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            stdout=subprocess.DEVNULL,
        )
        wall_s, after = time.perf_counter() - begun_s, os.times()
    cpu_s = after.children_user + after.children_system
    return Cost(wall_s * 1000, (cpu_s - before.children_user - before.children_system) * 1000)


def explored(seeds: int) -> Cost:
    """Return the cost of an exploration."""
    exploring = stopwatch()
    explore(order, seeds=seeds)
    return exploring()


def rows(options: argparse.Namespace) -> list[list[str]]:
    """Measure, and return the rows of the table."""
    rounds = range(options.rounds + 1)
    found: list[list[str]] = []

    def add(text: str, brokers: str, cost: Cost, target_ms: float | None) -> None:
        is_missed = target_ms is not None and cost.wall_ms > target_ms
        target = "" if target_ms is None else f"≤ {target_ms:,.0f}"
        wall = f"{cost.wall_ms:,.1f}{' ✗' if is_missed else ''}"
        found.append([text, brokers, wall, f"{cost.cpu_ms:,.1f}", target])

    for brokers in _BROKERS:
        if "open" in options.only:
            costs = medians([asyncio.run(opened(brokers)) for _ in rounds][1:])
            add("open", str(brokers), costs["open"], 100)
            add("close", str(brokers), costs["close"], None)
        for name, move in MOVES.items():
            if name in options.only:
                costs = medians([asyncio.run(moved(move, brokers)) for _ in rounds][1:])
                add(move.text, str(brokers), costs["move"], 50)
    if "tests" in options.only:
        add(f"{options.tests} tests", "1", tested(options.tests), 200 * options.tests)
    if "explore" in options.only:
        text = f"exploration of {options.seeds} seeds"
        add(text, "2", explored(options.seeds), 100 * options.seeds)
    return found


def main() -> None:
    """Measure and print."""
    measurements = ("open", *MOVES, "tests", "explore")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--tests", type=int, default=100)
    parser.add_argument("--only", nargs="+", choices=measurements, default=measurements)
    options = parser.parse_args()
    logging.getLogger().addHandler(logging.NullHandler())  # no traceback of each failed call
    print("\n".join(machine.describe(Path(tempfile.gettempdir()))))
    header = ["a cluster in memory", "brokers", "wall, ms", "processor, ms", "target, ms"]
    print(markdown([header, *rows(options)]))


if __name__ == "__main__":
    main()
