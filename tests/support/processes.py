"""`ternmq` services, commands and modules of the tests as processes of their own.

with (
    running_nameserver(folder / "names") as names,
    running_broker(folder / "broker-a", names.nameserver) as broker,
):
    async with connected(broker.broker) as client:
        ...
    broker.kill()
"""

import asyncio
import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from pathlib import Path
from random import SystemRandom
from typing import Final, Self

from ternmq_remoting.tls import CREDENTIALS_VARIABLE

ROOT: Final = Path(__file__).parents[2]
TERNMQ: Final = (str(Path(sys.executable).with_name("ternmq")),)
"""The installed command: what users run. It imports no more than its verb needs."""

SMALL: Final = (
    *("store.commit_log_file_bytes=16MiB", "store.index_slots=100000"),
    *("store.index_entries=400000", "broker.flush_mode=async"),
)
TINY: Final = (
    *("store.commit_log_file_bytes=1MiB", "store.consume_queue_file_units=1000"),
    *("store.index_slots=1000", "store.index_entries=4000"),
)
"""Files so small that a short load fills several of each kind."""

BROKERS: Final = ("broker-a", "broker-b")
"""Names of the brokers of a cluster."""

SOON_S: Final = 150.0
ENDS_WITHIN_S: Final = 90.0
_LOOK_S: Final = 0.05

_PORTS: Final = range(12_000, 32_000)
"""Below what systems give to who asks for any port. A client looks for a broker that has ended for
a while; the socket that it finds there must not be one that Spark opened for a Python worker."""
_taken_ports: Final[list[int]] = []
"""Locks as file descriptors, held until this process ends: tests run in several processes."""


def free_port() -> int:
    """Return a port that no other test gets and nobody listens on."""
    while True:
        port = SystemRandom().choice(_PORTS)
        folder = Path(tempfile.gettempdir(), f"ternmq-tests-ports-{os.getuid()}")
        folder.mkdir(exist_ok=True)
        lock = os.open(folder / str(port), os.O_CREAT | os.O_RDWR)
        try:
            with socket.socket() as probe:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                probe.bind(("", port))
        except OSError:
            os.close(lock)
        else:
            _taken_ports.append(lock)
            return port


class ServiceProcess:
    """A running `ternmq` service; leaving its `with` block ends it in order.

    Attributes:
        process: May be paused, killed and waited for.
        data: Its data directory.
        log: The standard error of all services that ran in its folder.
        nameserver: Its NameServer's address as printed; empty = it has none.
        broker_name: Its broker's name as printed; empty = it has none.
        broker: Its broker's address as printed; empty = it has none.
    """

    def __init__(
        self,
        folder: Path,
        verb: str,
        *words: object,
        launcher: Sequence[str | Path] = TERNMQ,
        data: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Start the process; `until_ready` waits for it.

        Args:
            folder: Its working directory, made if it is not there.
            verb: `nameserver`, `broker` or `dev`.
            words: What follows the verb on the command line.
            launcher: What precedes it.
            data: Its data directory; None = `folder/data`.
            env: The whole environment; None passes ours on.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.data = data or folder / "data"
        self.log = folder / "log"
        self.nameserver = self.broker_name = self.broker = ""
        self._serving = ("nameserver", "broker") if verb == "dev" else (verb,)
        command = [*launcher, verb, "--data", self.data, *map(str, words)]
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def until_ready(self) -> None:
        """Wait until the service has printed its addresses.

        Raises:
            AssertionError: The service ended, or did not serve in time; ends with its log.
        """
        assert self.process.stdout is not None
        watchdog = threading.Timer(SOON_S, self.process.kill)
        watchdog.start()
        try:
            for kind in self._serving:
                match self.process.stdout.readline().split():
                    case ["nameserver", address] if kind == "nameserver":
                        self.nameserver = address
                    case ["broker", name, address] if kind == "broker":
                        self.broker_name, self.broker = name, address
                    case words:
                        self.kill()
                        text = self.log.read_text()[-3000:]
                        raise AssertionError(f"no {kind} serves; printed {words}\n{text}")
        finally:
            watchdog.cancel()

    def __enter__(self) -> Self:
        self.until_ready()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> int:
        """End the service as Ctrl-C does, unless it has ended; return the exit code."""
        self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(ENDS_WITHIN_S)
        finally:
            self.kill()

    def kill(self) -> None:
        """End the service as `kill -9` does, unless it has ended."""
        kill(self.process)


def running_nameserver(
    folder: Path,
    *words: object,
    port: str | int = 0,
    launcher: Sequence[str | Path] = TERNMQ,
) -> ServiceProcess:
    """Start a NameServer on `port`, or a free one. The other arguments are `ServiceProcess`'s."""
    words = ("--port-nameserver", int(port) or free_port(), *words)
    return ServiceProcess(folder, "nameserver", *words, launcher=launcher)


def running_broker(
    folder: Path,
    nameserver: str,
    *words: object,
    name: str = "",
    port: str | int = 0,
    settings: Sequence[str] = SMALL,
    launcher: Sequence[str | Path] = TERNMQ,
    data: Path | None = None,
) -> ServiceProcess:
    """Start a broker; it finds again what the last one in `folder` kept.

    Args:
        folder: Its working directory.
        nameserver: The NameServers' addresses; empty = it has none.
        words: More words of the command line.
        name: The broker's; empty = the folder's.
        port: To listen on; 0 = a free one.
        settings: As `--set` takes them.
        launcher: What precedes the verb.
        data: Its data directory; None = `folder/data`.
    """
    port = int(port) or free_port()
    names = ("--name", name or folder.name, "--port-broker", port, "--nameserver", nameserver)
    told = (word for each in settings for word in ("--set", each))
    return ServiceProcess(folder, "broker", *names, *words, *told, launcher=launcher, data=data)


def running_dev(
    folder: Path,
    *words: object,
    port_nameserver: str | int = 0,
    launcher: Sequence[str | Path] = TERNMQ,
    env: Mapping[str, str] | None = None,
) -> ServiceProcess:
    """Start `ternmq dev` with a broker on a free port. The arguments are `ServiceProcess`'s."""
    port = int(port_nameserver) or free_port()
    ports = ("--port-nameserver", port, "--port-broker", free_port())
    return ServiceProcess(folder, "dev", *ports, *words, launcher=launcher, env=env)


@contextlib.contextmanager
def running_cluster(
    folder: Path,
    brokers: Sequence[str] = BROKERS,
    *,
    words_of: Callable[[str], Sequence[object]] = lambda _: (),
) -> Generator[str]:
    """Run a NameServer and brokers of these names; yield the NameServer's address.

    Args:
        folder: Folder of the services' folders.
        brokers: Names of the brokers.
        words_of: Returns more words of the command line of `nameserver` or a broker.
    """
    with contextlib.ExitStack() as stack:
        words = words_of("nameserver")
        names = stack.enter_context(running_nameserver(folder / "nameserver", *words))
        for name in brokers:
            stack.enter_context(running_broker(folder / name, names.nameserver, *words_of(name)))
        yield names.nameserver


def run_ternmq(*words: str, stdin: str = "", credentials: Path | None = None) -> str:
    """Run a command to its end, which has to be a good one, and return what it prints."""
    shown = {CREDENTIALS_VARIABLE: str(credentials)} if credentials else {}
    done = subprocess.run(
        [*TERNMQ, *words],
        env=os.environ | shown,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=SOON_S,
    )
    assert done.returncode == 0, f"{words}: {done.stdout} {done.stderr}"
    return done.stdout


def start_module(
    module: str, *words: str, launcher: Sequence[str | Path] = ()
) -> subprocess.Popen[str]:
    """Start a module of the tests; the caller ends it with `kill` at the latest."""
    return subprocess.Popen(
        [*launcher, sys.executable, "-m", module, *words],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": ""},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )


def kill(process: subprocess.Popen[str]) -> None:
    """End a process as `kill -9` does, unless it has ended, and close its pipe."""
    process.kill()
    process.wait(ENDS_WITHIN_S)
    if process.stdout is not None:
        process.stdout.close()


async def eventually(
    is_so: Callable[[], bool | Awaitable[bool]], timeout_s: float = SOON_S
) -> bool:
    """Wait until `is_so`; return whether it became so in time."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            while True:
                found = is_so()
                if found if isinstance(found, bool) else await found:
                    return True
                await asyncio.sleep(_LOOK_S)
    return False
