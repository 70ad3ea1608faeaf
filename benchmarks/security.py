"""Measure the cost of TLS: the same loads with and without it, in paired rounds of one run.

    python benchmarks/security.py --rounds 5

Both sides run `ternmq dev` and one client process on this machine; with TLS both show certificates.
The order of the two sides changes with each round.
"""

import argparse
import os
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
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
from ternmq_remoting.tls import CREDENTIALS_VARIABLE

SENDING: Final = ("alone", "awaiting-64", "pipelined", "send-many")
CONSUMING: Final = ("push", "pull")
TARGET: Final = 0.7
"""Least part of the speed that is left with TLS."""

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


def measure(folder: Path, settings: Sequence[str], scale: float) -> Mapping[str, float]:
    """Return the figures of one cluster and its clients."""
    with dev(folder, "async", settings) as service:
        nameserver = ("--nameserver", service.nameserver)
        wanted = [f"--only={name}" for name in SENDING]
        found = dict(load("load_producer.py", *nameserver, *wanted, f"--scale={scale}"))
        load("load_producer.py", *nameserver, "--only=fill", f"--scale={scale}")
        for name in CONSUMING:
            count = str(scaled(BACKLOG, scale))
            found |= load("load_consumer.py", name, *nameserver, "--count", count)
    return found


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description="the cost of TLS")
    parser.add_argument("--rounds", type=int, default=5, help="print medians of so many pairs")
    parser.add_argument("--scale", type=float, default=0.5, help="factor on the numbers")
    parser.add_argument("--data", type=Path, default=Path(), help="a folder on the disk to use")
    options = parser.parse_args()
    pairs: dict[str, list[tuple[float, float]]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=options.data) as name:
        folder = Path(name).absolute()
        print(*machine.describe(folder), sep="\n", flush=True)
        settings = certificates(folder)
        for number in range(options.rounds):
            found: dict[bool, Mapping[str, float]] = {}
            for has_tls in (False, True) if number % 2 else (True, False):
                if has_tls:
                    os.environ[CREDENTIALS_VARIABLE] = str(folder / "credentials.toml")
                found[has_tls] = measure(folder, settings if has_tls else (), options.scale)
                os.environ.pop(CREDENTIALS_VARIABLE, None)
            for figure, plain in found[False].items():
                pairs[figure].append((plain, found[True][figure]))
    print(f"rounds   {options.rounds}, medians\n")
    print(markdown(list(rows(pairs))))


def rows(pairs: Mapping[str, Sequence[tuple[float, float]]]) -> Sequence[Sequence[str]]:
    """Return the rows of the table; a part of the speed below the target is marked with "✗"."""
    table = [["1 KiB messages, asynchronous flush", "plain", "TLS", "part of the speed"]]
    for figure, found in pairs.items():
        plain, tls = (statistics.median(side) for side in zip(*found, strict=True))
        parts = [one / other if figure in TIMES else other / one for one, other in found]
        part = statistics.median(parts)
        missed = " ✗" if part < TARGET else ""
        table.append([figure, f"{plain:,.2f}", f"{tls:,.2f}", f"{part:.2f}{missed}"])
    return table


if __name__ == "__main__":
    main()
