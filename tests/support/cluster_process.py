"""A NameServer and two brokers as an operator starts them: processes of their own."""

import contextlib
import re
import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.dev_process import next_line

TERNMQ: Final = (sys.executable, "-m", "ternmq")
_ADDRESS: Final = re.compile(r"(127\.0\.0\.1:\d+)$")
SMALL: Final = (
    *("store.commit_log_file_bytes=16MiB", "store.index_slots=100000"),
    *("store.index_entries=400000", "broker.flush_mode=async"),
)


@dataclass(frozen=True, slots=True)
class RunningService:
    """One of the processes."""

    process: subprocess.Popen[str]
    address: str


@contextlib.contextmanager
def running_service(folder: Path, *arguments: str) -> Generator[RunningService]:
    """Run `ternmq` with `arguments` and yield it when it has told its address.

    Leaving ends it in order. Its log lies in `folder/<verb>.log`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (
        (folder / f"{arguments[0]}.log").open("w+") as log,
        subprocess.Popen(
            [*TERNMQ, *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        try:
            assert process.stdout is not None
            found = _ADDRESS.search(next_line(process.stdout).strip())
            if found is None:
                log.seek(0)
                raise AssertionError(f"ternmq {arguments[0]} is not ready\n{log.read()}")
            yield RunningService(process, found[1])
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(20)
            finally:
                process.kill()


def running_nameserver(folder: Path) -> AbstractContextManager[RunningService]:
    """Run a NameServer on a free port; its log goes below `folder`."""
    return running_service(folder / "nameserver", "nameserver", "--port-nameserver", "0")


def running_broker(
    folder: Path, name: str, nameserver: str, *, port: str = "0", settings: Sequence[str] = ()
) -> AbstractContextManager[RunningService]:
    """Run a broker; it finds again what one of its name kept in `folder`.

    Args:
        folder: For data and logs.
        name: Its name.
        nameserver: The NameServer's address.
        port: To listen on; 0 = a free one.
        settings: More of them, `section.name=value`.
    """
    return running_service(
        folder / name,
        *("broker", "--name", name, "--port-broker", port),
        *("--data", str(folder / name / "data"), "--nameserver", nameserver),
        *(word for each in (*SMALL, *settings) for word in ("--set", each)),
    )


@contextlib.contextmanager
def running_cluster(
    folder: Path, brokers: Sequence[str] = ("broker-a", "broker-b"), settings: Sequence[str] = ()
) -> Generator[str]:
    """Run a cluster and yield its NameServer's address.

    Args:
        folder: For data and logs.
        brokers: Their names.
        settings: Of every broker, `section.name=value`.
    """
    with contextlib.ExitStack() as stack:
        nameserver = stack.enter_context(running_nameserver(folder)).address
        for name in brokers:
            stack.enter_context(running_broker(folder, name, nameserver, settings=settings))
        yield nameserver
