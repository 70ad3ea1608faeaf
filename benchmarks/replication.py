"""Measure what a slave costs its master, and how fast one catches up, and print a table.

    python benchmarks/replication.py                          # everything, medians of three rounds
    python benchmarks/replication.py --only cost --rounds 1
    python benchmarks/replication.py --only catch-up --mode async --backlog-mib 256

NameServer, master, slave and clients are processes of their own, all on this machine. Master and
slave have the same flush mode. Each round has new brokers for each mode.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks import machine, rounds
from benchmarks.figures import Figure, either, number
from benchmarks.patterns import told
from benchmarks.services import ENDS_WITHIN_S, Member, client, load, member, nameserver
from ternmq import AdminClient
from ternmq_protos.v1 import replication_pb2 as replication

SENDING: Final = "load_producer.py"
PACING: Final = "load_replication.py"
PACE_PER_S: Final = 10_000
BACKLOG_MIB: Final = 1024
LOOK_S: Final = 0.05
NEAR_BYTES: Final = 16 << 20
"""A slave that lacks no more than this has caught up: the master goes on meanwhile."""

GIVE_UP_AFTER_S: Final = 300.0

FIGURES: Final = (
    Figure("alone.rate", "no slave: pipelined", "msg/s", {}),
    Figure("pair.rate", "one slave: pipelined", "msg/s", {}),
    Figure("pair.share", "one slave: share of the rate without", "%", either(40)),
    Figure("alone.p50", "no slave: one after the other, p50", "ms", {}),
    Figure("pair.p50", "one slave: one after the other, p50", "ms", {}),
    Figure("pair.added", "one slave: p50 added", "ms", either(3), at_most=True),
    Figure("catch-up.bytes", "catching up: durable bytes of the log", "MB/s", either(200)),
    Figure("catch-up.dispatch", "catching up: dispatched", "msg/s", either(100_000)),
    Figure("paced.rate", "the master meanwhile, 10,000 msg/s asked for", "msg/s", either(9_900)),
    Figure("paced.p99", "the master meanwhile, p99 of 100 messages", "ms", {}),
)


def measure_cost(parent: Path, mode: str) -> Mapping[str, float]:
    """Measure sends without a slave, then those of a synchronous master with one."""
    found: dict[str, float] = {}
    for name, role, slaves in (("alone", "async_master", 0), ("pair", "sync_master", 1)):
        with ExitStack() as stack:
            names = stack.enter_context(nameserver())
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=parent)))
            master = start(stack, names, folder, mode, f"broker.role={role}")
            for number_ in range(1, slaves + 1):
                start(stack, names, folder, mode, f"broker.broker_id={number_}")
            asyncio.run(until_in_sync(names, slaves))
            told_ = load(SENDING, "--nameserver", names, "--only=alone", "--only=pipelined")
            found[f"{name}.rate"] = told_["pipelined"]
            found[f"{name}.p50"] = told_["alone.p50"] / 1e3
            resident = machine.resident_mib(master.process_id)
            print(f"  {name}: the master has {resident:.0f} MiB", file=sys.stderr)
    found["pair.share"] = found["pair.rate"] / found["alone.rate"] * 100
    found["pair.added"] = found["pair.p50"] - found["alone.p50"]
    return found


def measure_catch_up(parent: Path, mode: str, backlog_mib: int) -> Mapping[str, float]:
    """Measure a slave that starts with nothing while the master is sent to."""
    with ExitStack() as stack:
        names = stack.enter_context(nameserver())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=parent)))
        start(stack, names, folder, mode)
        scale = backlog_mib / BACKLOG_MIB * 2
        load(SENDING, "--nameserver", names, "--only=fill", f"--scale={scale}")
        arguments = ("--nameserver", names, "--per-s", str(PACE_PER_S))
        pacing = stack.enter_context(client(PACING, *arguments))
        start(stack, names, folder, mode, "broker.broker_id=1")
        found = asyncio.run(watch(names))
        output, _ = pacing.communicate(timeout=ENDS_WITHIN_S)
        return {**found, **told(output.splitlines())}


def start(stack: ExitStack, names: str, folder: Path, mode: str, *settings: str) -> Member:
    """Start a member of the one broker name; it ends with the stack."""
    wanted = [f"broker.flush_mode={mode}", "logging.level=warning", *settings]
    data = Path(tempfile.mkdtemp(dir=folder))
    return stack.enter_context(member(names, data, wanted))


async def statuses(admin: AdminClient) -> list[replication.ReplicationStatusReply]:
    """Return what master and slaves say, the master first."""
    views = await admin.member_views()
    return [view.status for view in views if view.status is not None]


async def until_in_sync(names: str, slaves: int) -> None:
    """Wait until the master waits for so many slaves."""
    async with (
        AdminClient(nameserver=names) as admin,
        asyncio.timeout(GIVE_UP_AFTER_S),
    ):
        count = -1
        while count < slaves:
            found = await statuses(admin)
            count = sum(each.is_in_sync for each in found[0].followers) if found else -1
            await asyncio.sleep(LOOK_S)


async def watch(names: str) -> dict[str, float]:
    """Watch the slave until it has what the master has, and its queues too."""
    taken: list[tuple[float, int]] = []
    dispatched: list[tuple[float, int]] = []
    record_bytes, is_near = 0.0, False
    async with (
        AdminClient(nameserver=names) as admin,
        asyncio.timeout(GIVE_UP_AFTER_S),
    ):
        (data,) = await admin.brokers()
        store = await admin.describe_store(data)
        record_bytes = store.put_bytes / store.put_messages
        while True:
            found = await statuses(admin)
            if len(found) == 2:
                master, slave = found
                now_s = time.perf_counter()
                if not is_near:
                    taken.append((now_s, slave.safe_offset))
                    is_near = slave.safe_offset >= master.log_end - NEAR_BYTES
                dispatched.append((now_s, slave.dispatched_offset))
                if slave.dispatched_offset >= master.log_end - NEAR_BYTES:
                    break
            await asyncio.sleep(LOOK_S)
    return {
        "catch-up.bytes": slope(taken) / 1e6,
        "catch-up.dispatch": slope(dispatched) / record_bytes,
    }


def slope(points: list[tuple[float, int]]) -> float:
    """Return the growth a second, from the last look before anything grew to the last one."""
    first = max(0, next(place for place, (_, value) in enumerate(points) if value) - 1)
    (begun_s, least), (ended_s, most) = points[first], points[-1]
    return (most - least) / (ended_s - begun_s)


COST: Final = "cost"
CATCH_UP: Final = "catch-up"


def shown(figure: Figure, value: float) -> str:
    """Return a value as the table has it."""
    return f"{value:,.2f}" if figure.unit == "ms" else number(value)


def main() -> None:
    """Measure and print."""
    parser = rounds.options("Measure a master and its slave.", (COST, CATCH_UP))
    parser.add_argument("--backlog-mib", type=int, default=BACKLOG_MIB, help="to catch up with")
    chosen = parser.parse_args()
    catch_up = partial(measure_catch_up, backlog_mib=chosen.backlog_mib)
    measures: dict[str, rounds.Measure] = {COST: measure_cost, CATCH_UP: catch_up}
    columns = rounds.medians(chosen, measures)
    title = "1 KiB messages, master and slave on one machine"
    print(rounds.table(title, FIGURES, columns, shown=shown))


if __name__ == "__main__":
    main()
