"""Measure what options cost: the same loads with and without each of them, in one run.

    python benchmarks/costs.py --side metrics --rounds 5

All sides run `ternmq dev` and one client process on this machine. The order of the sides changes
with each round. The sides beside plain:

    TLS         both show certificates
    users       the client shows a token, and each of its calls is checked
    metrics     the metrics port is open, and read each 5 s
    telemetry   the producer records OpenTelemetry's metrics; exports are encoded and dropped
    traces      the producer traces 1 % of its messages, so too
"""

import argparse
import asyncio
import os
import secrets
import statistics
import tempfile
import threading
import urllib.request
from collections import defaultdict
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from benchmarks import machine
from benchmarks.figures import BACKLOG, markdown
from benchmarks.patterns import scaled
from benchmarks.services import dev, load
from ternmq_console.certificate_authority import (
    CA_NAME,
    certificate_path,
    issue_certificate,
    key_path,
    make_authority,
    write_pair,
)
from ternmq_model.address import parse_address
from ternmq_model.permission import Action
from ternmq_protos.v1 import nameserver_pb2 as pb
from ternmq_remoting.rpc import connected
from ternmq_remoting.service_methods import PUT_ACCESS
from ternmq_remoting.system_environment import system_environment
from ternmq_remoting.tls import CREDENTIALS_VARIABLE
from ternmq_security.access.access_table import AccessTable, first_administrator
from ternmq_security.access.grants import Effect, Grant, ResourcePattern
from ternmq_security.access.user import User
from ternmq_security.tokens import new_token

SENDING: Final = ("alone", "awaiting-64", "pipelined", "send-many")
CONSUMING: Final = ("push", "pull")
TARGETS: Final = {"TLS": 0.7, "users": 0.98, "metrics": 0.98, "telemetry": 0.98, "traces": 0.95}
"""Least part of the speed that is left by side."""

OF_PRODUCERS: Final = {"telemetry": "metrics", "traces": "traces"}
"""Sides of which only sends are measured, and what the load of the producer calls them."""

METRICS_PORT: Final = 19_558
SCRAPED_EACH_S: Final = 5.0

TIMES: Final = ("alone.p50", "alone.p99")
"""Figures of which less is better."""


def certificates(folder: Path) -> Sequence[str]:
    """Write certificates and the credentials of clients; return the settings of the services."""
    begin = datetime.now(UTC) - timedelta(hours=1)
    validity = {"not_before": begin, "not_after": begin + timedelta(days=1)}
    authority = make_authority("Benchmark CA", **validity)
    write_pair(authority, folder, CA_NAME)
    name = "broker-a"
    pair = issue_certificate(
        authority, name, hosts=("127.0.0.1",), is_client=True, is_server=True, **validity
    )
    write_pair(pair, folder, name)
    ca, cert = certificate_path(folder, CA_NAME), certificate_path(folder, name)
    key = key_path(folder, name)
    (folder / "credentials.toml").write_text(f'ca = "{ca}"\ncert = "{cert}"\nkey = "{key}"\n')
    files = (f"tls.cert={cert}", f"tls.key={key}", f"tls.ca={ca}")
    return (*files, "tls.client_auth=required")


def users(folder: Path) -> AccessTable:
    """Write the credentials of a user who may do everything; return the table that has it."""
    random_bytes, salt = secrets.token_bytes(32), secrets.token_bytes(16)
    text, token = new_token("bench", random_bytes, salt, 1)
    file = folder / "users.toml"
    file.touch(0o600)
    file.write_text(f'token = "{text}"\n')
    table = first_administrator(AccessTable(), User("bench", (token,)), "bench")
    for action in (Action.PUBLISH, Action.SUBSCRIBE, Action.REPLICATE):
        table = table.with_grant(Grant("bench", Effect.ALLOW, action, ResourcePattern(None)))
    return table


async def put_users(nameserver: str, table: AccessTable) -> None:
    """Make a table that of a NameServer without users."""
    address = parse_address(nameserver, setting="--nameserver")
    async with system_environment() as env, connected(env.network, [address]) as connection:
        request = pb.PutAccessRequest(table=table.to_json())
        reply = await connection.call(PUT_ACCESS, request, timeout_s=3)
        assert not reply.status.code, reply.status.remark
    await asyncio.sleep(1)  # until the broker has them


@contextmanager
def scraped() -> Generator[None]:
    """Read the metrics port each 5 s while the block runs, as Prometheus does."""
    over = threading.Event()

    def scrape() -> None:
        while not over.wait(SCRAPED_EACH_S):
            with urllib.request.urlopen(f"http://127.0.0.1:{METRICS_PORT}/metrics") as answer:
                answer.read()

    reader = threading.Thread(target=scrape)
    reader.start()
    try:
        yield
    finally:
        over.set()
        reader.join()


def measure(
    folder: Path, side: str, settings: Sequence[str], table: AccessTable, scale: float
) -> Mapping[str, float]:
    """Return the figures of one cluster and its clients.

    Args:
        folder: Folder of the data.
        side: Side; `plain` = none of the options.
        settings: Settings of the services with TLS.
        table: Table with the user of the client.
        scale: Factor on the numbers.
    """
    own = {"TLS": settings, "metrics": (f"metrics.port={METRICS_PORT}",)}.get(side, ())
    with dev(folder, "async", own) as service, scraped() if side == "metrics" else nullcontext():
        if side == "users":
            asyncio.run(put_users(service.nameserver, table))
        nameserver = ("--nameserver", service.nameserver)
        wanted = [f"--only={name}" for name in SENDING]
        if side in OF_PRODUCERS:
            wanted += ["--telemetry", OF_PRODUCERS[side]]
        found = dict(load("load_producer.py", *nameserver, *wanted, f"--scale={scale}"))
        if side not in OF_PRODUCERS:
            load("load_producer.py", *nameserver, "--only=fill", f"--scale={scale}")
            for name in CONSUMING:
                count = str(scaled(BACKLOG, scale))
                found |= load("load_consumer.py", name, *nameserver, "--count", count)
    return found


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description="what options cost")
    parser.add_argument("--rounds", type=int, default=5, help="print medians of so many rounds")
    parser.add_argument("--scale", type=float, default=0.5, help="factor on the numbers")
    parser.add_argument("--data", type=Path, default=Path(), help="a folder on the disk to use")
    parser.add_argument("--side", choices=[*TARGETS], action="append", help="sides, beside plain")
    options = parser.parse_args()
    sides = ["plain", *(options.side or TARGETS)]
    rounds: dict[str, list[Mapping[str, float]]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=options.data) as name:
        folder = Path(name).absolute()
        print(*machine.describe(folder), sep="\n", flush=True)
        table, settings = users(folder), certificates(folder)
        files = {"TLS": folder / "credentials.toml", "users": folder / "users.toml"}
        for number in range(options.rounds):
            for side in sides if number % 2 else reversed(sides):
                os.environ.pop(CREDENTIALS_VARIABLE, None)
                if side in files:
                    os.environ[CREDENTIALS_VARIABLE] = str(files[side])
                rounds[side].append(measure(folder, side, settings, table, options.scale))
    print(f"rounds   {options.rounds}, medians\n")
    print(markdown(list(rows(rounds))))


def rows(rounds: Mapping[str, Sequence[Mapping[str, float]]]) -> Sequence[Sequence[str]]:
    """Return the rows of the table; a part of the speed below its target is marked with "✗"."""
    sides = [side for side in TARGETS if side in rounds]
    heads = [text for side in sides for text in (side, "part of the speed")]
    table = [["1 KiB messages, asynchronous flush", "plain", *heads]]
    for figure in rounds["plain"][0]:
        found = {
            side: [each[figure] for each in measured if figure in each]
            for side, measured in rounds.items()
        }
        row = [figure, f"{statistics.median(found['plain']):,.2f}"]
        for side in sides:
            if figure not in rounds[side][0]:
                row += ["", ""]
                continue
            pairs = list(zip(found["plain"], found[side], strict=True))
            parts = [one / two if figure in TIMES else two / one for one, two in pairs]
            part = statistics.median(parts)
            missed = " ✗" if part < TARGETS[side] else ""
            row += [f"{statistics.median(found[side]):,.2f}", f"{part:.3f}{missed}"]
        table.append(row)
    return table


if __name__ == "__main__":
    main()
