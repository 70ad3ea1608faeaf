"""Send every flight through a broker into two consumers, and account for each: `make demo`.

With `--kill` one consumer is killed in the middle: deliveries may repeat, nothing may be lost.
The last line is the check; the exit code is 1 when it does not hold.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from itertools import chain, islice
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Table

from flights import FLIGHTS, TOPIC, data_file, message_of, rows
from ledger import Consumed, Ledger, verdict
from processes import PATIENCE_S, dev, flight_board, process, ternmq
from ternmq import run

QUEUES = 8
BATCH = 4096
_HERE = Path(__file__).parent


class ConsumerProcess:
    """One consumer with what it reported so far. Owned by the demo."""

    def __init__(self, process: Process, news: asyncio.Event) -> None:
        self.process = process
        self.assigned: Sequence[int] = ()
        self.reports: list[Consumed] = []
        self._news = news

    async def listen(self) -> None:
        """Take its lines until it ends."""
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            if not line.endswith(b"\n"):
                break  # it was killed in the middle of a line: that batch does not count
            report = json.loads(line)
            if "assigned" in report:
                self.assigned = report["assigned"]
            else:
                self.reports += [
                    Consumed(
                        report["queue"],
                        offset,
                        tail,
                        carrier,
                        None if delay is None else float(delay),
                    )
                    for offset, tail, carrier, delay in report["rows"]
                ]
            self._news.set()


async def stored(nameserver: str) -> int:
    """Return how many messages the topic's queues hold."""
    answer = await ternmq("topic", "describe", TOPIC, "--nameserver", nameserver, "-o", "json")
    queues: list[dict[str, int]] = json.loads(answer)["queues"]
    return sum(queue["max_offset"] - queue["min_offset"] for queue in queues)


async def send(nameserver: str, progress: Progress, bar: TaskID) -> tuple[int, float]:
    """Send every flight; return how many were acknowledged and how long it took in seconds."""
    messages = map(message_of, rows(data_file()))
    sent, spent_s = 0, 0.0
    async with flight_board(nameserver) as producer:
        while batch := list(islice(messages, BATCH)):
            began_s = time.perf_counter()
            sent += len(await producer.send_many(batch))
            spent_s += time.perf_counter() - began_s
            progress.update(bar, completed=sent)
    return sent, spent_s


async def consume(
    consumers: Sequence[ConsumerProcess], progress: Progress, bar: TaskID, *, kill: bool
) -> float:
    """Wait until everything was consumed or nothing comes any more; return the seconds it took.

    A killed consumer is gone after 10 s, and its queues come to the other.
    """
    began_s = last_change_s = time.perf_counter()
    before = 0
    while True:
        reports = sum(len(consumer.reports) for consumer in consumers)
        if kill and reports >= FLIGHTS // 2:
            consumers[0].process.kill()
            progress.console.print(f"killed one consumer after {reports:,} deliveries")
            kill = False
        if reports >= FLIGHTS:
            # Repeated deliveries count here: only different messages tell whether all is done.
            ledger = account(consumers)
            reports = ledger.consumed
        progress.update(bar, completed=min(reports, FLIGHTS))
        now_s = time.perf_counter()
        if reports != before:
            before, last_change_s = reports, now_s
        if reports >= FLIGHTS or now_s - last_change_s > PATIENCE_S:
            return last_change_s - began_s
        await asyncio.sleep(0.1)


def account(consumers: Sequence[ConsumerProcess]) -> Ledger:
    """Enter all reports: the killed consumer's first, because what it held moved to the other."""
    ledger = Ledger()
    for consumer in consumers:
        ledger.add(consumer.reports)
    return ledger


async def assigned(consumers: Sequence[ConsumerProcess], news: asyncio.Event) -> None:
    """Wait until the consumers share all queues and none is without."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            shares = [consumer.assigned for consumer in consumers]
            if all(shares) and sorted(chain(*shares)) == [*range(QUEUES)]:
                return
            news.clear()
            await news.wait()


def print_carriers(console: Console, ledger: Ledger) -> None:
    """Print what the consumers learned."""
    table = Table(title="Flights from New York in 2013", title_justify="left")
    table.add_column("carrier")
    table.add_column("flights", justify="right")
    table.add_column("mean departure delay, min", justify="right")
    for name, carrier in sorted(ledger.carriers.items(), key=lambda item: -item[1].flights):
        mean = "" if carrier.mean_delay is None else f"{carrier.mean_delay:.1f}"
        table.add_row(name, f"{carrier.flights:,}", mean)
    console.print(table)


async def main(*, kill: bool) -> bool:
    """Run the demo; return whether the check holds."""
    console = Console()
    columns = (TextColumn("{task.description:9}"), BarColumn(40), MofNCompleteColumn())
    with tempfile.TemporaryDirectory(prefix="ternmq-demo-") as folder:
        async with dev(Path(folder)) as nameserver:
            await ternmq(
                "topic", "create", TOPIC, "--queues", str(QUEUES), "--nameserver", nameserver
            )
            script = _HERE / "consumer.py"
            async with (
                process(script, nameserver, stdin=PIPE) as first,
                process(script, nameserver, stdin=PIPE) as second,
                asyncio.TaskGroup() as tasks,
            ):
                news = asyncio.Event()
                consumers = [ConsumerProcess(first, news), ConsumerProcess(second, news)]
                for consumer in consumers:
                    tasks.create_task(consumer.listen())
                await assigned(consumers, news)
                with Progress(*columns, console=console) as progress:
                    sending = progress.add_task("sent", total=FLIGHTS)
                    consuming = progress.add_task("consumed", total=FLIGHTS)
                    consumption = tasks.create_task(
                        consume(consumers, progress, consuming, kill=kill)
                    )
                    sent, sending_s = await send(nameserver, progress, sending)
                    consuming_s = await consumption
                for consumer in consumers:
                    assert consumer.process.stdin is not None
                    consumer.process.stdin.close()
            count = await stored(nameserver)
    ledger = account(consumers)
    print_carriers(console, ledger)
    console.print(
        f"sent {sent / sending_s:,.0f} messages/s, consumed {ledger.consumed / consuming_s:,.0f}/s "
        "(side by side, on one machine)"
    )
    line, holds = verdict(sent=sent, stored=count, ledger=ledger, redeliveries_allowed=kill)
    print(line)
    return holds


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Send every flight and account for each.")
    parser.add_argument("--kill", action="store_true", help="kill one consumer in the middle")
    sys.exit(0 if run(main(kill=parser.parse_args().kill)) else 1)
