"""Processor time of a broker by layer, for each message that a producer sends.

    python benchmarks/broker_layers.py --rounds 3
    python benchmarks/broker_layers.py --load many --mode sync

A producer sends messages of 1 KiB and of 128 B to `ternmq dev`, whose functions at the borders of
layers count the processor time of their thread, without the functions of other layers that they
call. All else is derived from the time of the process.

To measure another commit, copy this file and `services.py` into a worktree of it.
"""

import argparse
import asyncio
import functools
import json
import os
import resource
import signal
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from benchmarks import machine
from benchmarks.figures import MODES, markdown
from benchmarks.load_producer import QUEUES, TOPIC, ProducerSender
from benchmarks.patterns import BODY_BYTES, MANY, SMALL_BYTES, many, pipelined
from benchmarks.services import dev
from ternmq import AdminClient, Producer, TopicConfig

PARSE: Final = "protobuf: parse requests"
CHECKS: Final = "checks of records"
TOPICS: Final = "permissions, routing"
APPEND: Final = "append"
DISPATCH: Final = "dispatch, index"
FILL: Final = "filling files, another thread"
LOOP: Final = "loop: gRPC, asyncio, answers"
GRPC: Final = "gRPC's own threads"
WHOLE: Final = "whole process"
SYSTEM: Final = "of which system"
FAULTS: Final = "page faults, a message"
RATE: Final = "msg/s"
ROWS: Final = (
    *(GRPC, LOOP, PARSE, CHECKS, TOPICS, APPEND, DISPATCH, FILL),
    *(WHOLE, SYSTEM, FAULTS, RATE),
)
COUNTS: Final = {BODY_BYTES: 300_000, SMALL_BYTES: 800_000}
ANSWERS_WITHIN_S: Final = 5.0


class Layers:
    """Processor time of the layers of this process, s."""

    def __init__(self) -> None:
        self.taken_s: defaultdict[str, float] = defaultdict(float)
        self._inner_s = [0.0]

    def counted(self, layer: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function` as it is, and its time counted; for the thread of the event loop."""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            begun_s = time.thread_time()
            self._inner_s.append(0.0)
            try:
                return function(*args, **kwargs)
            finally:
                taken_s = time.thread_time() - begun_s
                self.taken_s[layer] += taken_s - self._inner_s.pop()
                self._inner_s[-1] += taken_s

        return call

    def counted_beside(self, layer: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function` as it is, and its time counted; for one other thread at a time."""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            begun_s = time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.taken_s[layer] += time.thread_time() - begun_s

        return call

    def figures(self) -> dict[str, float]:
        """Return what this process has used so far."""
        used, loop_s = resource.getrusage(resource.RUSAGE_SELF), time.thread_time()
        fill_s, whole_s = self.taken_s[FILL], used.ru_utime + used.ru_stime
        on_loop_s = sum(self.taken_s.values()) - fill_s
        return self.taken_s | {
            LOOP: loop_s - on_loop_s,
            GRPC: whole_s - loop_s - fill_s,
            WHOLE: whole_s,
            SYSTEM: used.ru_stime,
            FAULTS: used.ru_minflt,
        }


def serve(report: Path, arguments: list[str]) -> None:
    """Run `ternmq`, and append its figures to `report` at every SIGUSR1."""
    import ternmq_remoting.server
    from ternmq_broker.send import message_writer
    from ternmq_console.main import main
    from ternmq_store.log.file_allocation import AllocateTask, FillTask
    from ternmq_store.message_store import MessageStore

    layers = Layers()

    def count(owner: Any, name: str, layer: str) -> None:
        setattr(owner, name, layers.counted(layer, getattr(owner, name)))

    server: Any = ternmq_remoting.server
    parser_of: Callable[[Any], Callable[..., Any]] = server.request_parser

    def counted_parser(request: Any) -> Callable[..., Any]:
        return layers.counted(PARSE, parser_of(request))

    server.request_parser = counted_parser
    for name in ("check_records", "read_single"):
        if hasattr(message_writer, name):  # other commits have other names
            count(message_writer, name, CHECKS)
    count(message_writer.MessageWriter, "store", TOPICS)
    count(MessageStore, "append", APPEND)
    count(MessageStore, "dispatch", DISPATCH)
    for task in (AllocateTask, FillTask):
        task.run = layers.counted_beside(FILL, task.run)  # type: ignore[method-assign]

    def tell(_number: int, _frame: object) -> None:
        with report.open("a") as file:
            file.write(json.dumps(layers.figures()) + "\n")

    signal.signal(signal.SIGUSR1, tell)
    sys.argv = ["ternmq", *arguments]
    main()


def ask(process_id: int, report: Path) -> dict[str, float]:
    """Return the figures of a serving process."""
    known = len(report.read_text().splitlines()) if report.exists() else 0
    os.kill(process_id, signal.SIGUSR1)
    until_s = time.monotonic() + ANSWERS_WITHIN_S
    while time.monotonic() < until_s:
        time.sleep(0.01)
        text = report.read_text() if report.exists() else ""
        if text.endswith("\n") and len(lines := text.splitlines()) > known:
            figures: dict[str, float] = json.loads(lines[-1])
            return figures
    raise SystemExit("the broker tells no figures")


async def send(nameserver: str, load: str, size: int, count: int) -> float:
    """Send `count` messages with bodies of `size` bytes, and return the rate."""
    async with Producer("layers", nameserver=nameserver) as producer:
        sender = ProducerSender(producer)
        if load == "many":
            return await many(sender.many_of([os.urandom(size) for _ in range(MANY)]), count)
        return await pipelined(sender.enqueue_of(os.urandom(size)), count)


async def create_topic(nameserver: str) -> None:
    """Create the topic of the load."""
    async with AdminClient(nameserver=nameserver) as admin:
        await admin.create_topic(TopicConfig(TOPIC, read_queues=QUEUES, write_queues=QUEUES))


def measure(data: Path, mode: str, load: str, scale: float) -> dict[int, dict[str, float]]:
    """Return µs a message by layer, by size of bodies, of one new broker."""
    measured: dict[int, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "figures"
        command = (sys.executable, __file__, "--serve", str(report))
        with dev(data, mode, command=command) as broker:
            asyncio.run(create_topic(broker.nameserver))
            for size, most in COUNTS.items():
                count = max(1, round(most * scale / MANY)) * MANY
                asyncio.run(send(broker.nameserver, load, size, MANY))
                before = ask(broker.process_id, report)
                rate = asyncio.run(send(broker.nameserver, load, size, count))
                after = ask(broker.process_id, report)
                of_message = {
                    name: (after.get(name, 0) - before.get(name, 0)) * 1e6 / count for name in ROWS
                }
                of_message[FAULTS] /= 1e6
                measured[size] = of_message | {RATE: rate}
    return measured


def main(options: argparse.Namespace) -> None:
    """Print the medians of all rounds as a table."""
    for line in machine.describe(options.data):
        print(line)
    found: defaultdict[tuple[int, str], list[float]] = defaultdict(list)
    for _ in range(options.rounds):
        for size, values in measure(
            options.data, options.mode, options.load, options.scale
        ).items():
            for name, value in values.items():
                found[size, name].append(value)
    rows = [["broker, µs a message", *(f"{size:,} B" for size in COUNTS)]]
    for name in ROWS:
        medians = [statistics.median(found[size, name]) for size in COUNTS]
        rows.append(
            [name, *(f"{value:,.0f}" if name == RATE else f"{value:.2f}" for value in medians)]
        )
    print(markdown(rows))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(Path(sys.argv[2]), sys.argv[3:])
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--mode", choices=MODES, default="async")
    parser.add_argument("--load", choices=("enqueue", "many"), default="enqueue")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the numbers")
    main(parser.parse_args())
