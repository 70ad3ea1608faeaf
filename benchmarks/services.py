"""Starting what is measured, as processes of their own."""

import contextlib
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from benchmarks.patterns import told

HERE: Final = Path(__file__).parent
TERNMQ: Final = str(Path(sys.executable).parent / "ternmq")
"""The command as it is installed."""

READY_WITHIN_S: Final = 30.0
ENDS_WITHIN_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Dev:
    """A running `ternmq dev`."""

    nameserver: str
    process_id: int
    data: Path
    """Data folder of all services; the broker's store is `broker` in it."""

    ready_ms: float
    """From the command to the second address line."""


@contextlib.contextmanager
def dev(
    parent: Path, mode: str, settings: Sequence[str] = (), command: Sequence[str] = (TERNMQ,)
) -> Generator[Dev]:
    """Run `ternmq dev` on free ports in a temporary folder below `parent`.

    Args:
        parent: Folder on the disk to use.
        mode: Flush mode.
        settings: Further settings, in the form of `--set`.
        command: Command that runs `ternmq`.
    """
    with tempfile.TemporaryDirectory(prefix="bench-", dir=parent) as folder:
        words = [
            *(*command, "dev", "--data", folder),
            *("--port-nameserver", "0", "--port-broker", "0"),
            *("--set", f"broker.flush_mode={mode}", "--set", "logging.level=warning"),
            *(word for setting in settings for word in ("--set", setting)),
        ]
        begun_s = time.perf_counter()
        with _running(words) as (process, output):
            lines = Lines(output)
            found: dict[str, str] = {}
            while not {"nameserver", "broker"} <= found.keys():
                word, *rest = lines.next(READY_WITHIN_S).split()
                found[word] = rest[-1]
            ready_ms = (time.perf_counter() - begun_s) * 1e3
            yield Dev(found["nameserver"], process.pid, Path(folder), ready_ms)
            process.send_signal(signal.SIGINT)
            process.wait(ENDS_WITHIN_S)


@contextlib.contextmanager
def cluster(
    parent: Path, mode: str, brokers: int = 2, settings: Sequence[str] = ()
) -> Generator[str]:
    """Run a NameServer and brokers on free ports, and yield the NameServer's address.

    Args:
        parent: Folder on the disk to use.
        mode: Flush mode.
        brokers: Number of brokers.
        settings: Further settings of every broker, in the form of `--set`.
    """
    told = [f"broker.flush_mode={mode}", "logging.level=warning", *settings]
    words = [word for setting in told for word in ("--set", setting)]
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=parent) as folder,
        contextlib.ExitStack() as stack,
    ):
        nameserver = stack.enter_context(_service([TERNMQ, "nameserver", "--port-nameserver", "0"]))
        for number in range(brokers):
            name = f"broker-{number}"
            data = ("--data", str(Path(folder) / name), "--port-broker", "0")
            stack.enter_context(
                _service(
                    [TERNMQ, "broker", "--name", name, *data, "--nameserver", nameserver, *words]
                )
            )
        yield nameserver


@dataclass(frozen=True, slots=True)
class Member:
    """A running broker process."""

    address: str
    process_id: int


@contextlib.contextmanager
def nameserver() -> Generator[str]:
    """Run a NameServer on a free port and yield its address."""
    quiet = ("--set", "logging.level=warning")
    with _service([TERNMQ, "nameserver", "--port-nameserver", "0", *quiet]) as address:
        yield address


@contextlib.contextmanager
def member(nameserver: str, data: Path, settings: Sequence[str]) -> Generator[Member]:
    """Run a master or a slave of the broker name `broker` on a free port, and end it in order.

    Args:
        nameserver: Address of the NameServer.
        data: Directory of this member.
        settings: Further settings, in the form of `--set`.
    """
    told = [word for setting in settings for word in ("--set", setting)]
    names = ("--name", "broker", "--port-broker", "0", "--nameserver", nameserver)
    with _running([TERNMQ, "broker", "--data", str(data), *names, *told]) as (process, output):
        yield Member(Lines(output).next(READY_WITHIN_S).split()[-1], process.pid)
        process.send_signal(signal.SIGINT)
        process.wait(ENDS_WITHIN_S)


@contextlib.contextmanager
def _service(command: Sequence[str]) -> Generator[str]:
    """Run a service, yield its address, and end it in order."""
    with _running(command) as (process, output):
        yield Lines(output).next(READY_WITHIN_S).split()[-1]
        process.send_signal(signal.SIGINT)
        process.wait(ENDS_WITHIN_S)


@contextlib.contextmanager
def client(script: str, *arguments: str) -> Generator["subprocess.Popen[str]"]:
    """Run a load beside others and yield it when it has printed that it is ready."""
    command = [sys.executable, str(HERE / script), *arguments]
    with _running(command) as (process, output):
        line = output.readline()
        if line.strip() != "ready":
            raise SystemExit(f"{script} {' '.join(arguments)} did not get ready: {line!r}")
        yield process


@contextlib.contextmanager
def bare(parent: Path, mode: str) -> Generator[int]:
    """Run the bare path's service and yield its port."""
    with tempfile.TemporaryDirectory(prefix="bare-", dir=parent) as folder:
        command = [sys.executable, str(HERE / "bare_path.py"), "serve", "--data", folder]
        if mode == "sync":
            command.append("--sync")
        with _running(command) as (process, output):
            yield int(Lines(output).next(READY_WITHIN_S))
            assert process.stdin is not None
            process.stdin.close()
            process.wait(ENDS_WITHIN_S)


def load(script: str, *arguments: str) -> Mapping[str, float]:
    """Run a load to its end and return the figures that it told."""
    done = subprocess.run(
        [sys.executable, HERE / script, *arguments], stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        print(f"{script} {' '.join(arguments)} failed with {done.returncode}", file=sys.stderr)
    return told(done.stdout.splitlines())


class Lines:
    """Output of a process, line by line, with a limit on the wait."""

    def __init__(self, output: IO[str]) -> None:
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, args=(output,), daemon=True).start()

    def next(self, within_s: float) -> str:
        """Return the next line.

        Raises:
            SystemExit: None came, or none will come.
        """
        try:
            line = self._lines.get(timeout=within_s)
        except queue.Empty:
            line = ""
        if not line:
            raise SystemExit("a service did not get ready")
        return line

    def _read(self, output: IO[str]) -> None:
        for line in output:
            self._lines.put(line)
        self._lines.put("")


@contextlib.contextmanager
def _running(
    command: Sequence[str],
) -> Generator[tuple["subprocess.Popen[str]", IO[str]]]:
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout
        finally:
            process.kill()
