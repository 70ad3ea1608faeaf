"""`ternmq dev` as a user starts it: a process of its own, found by the lines it prints."""

import contextlib
import queue
import re
import signal
import subprocess
import threading
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

READY_WITHIN_S: Final = 30.0
ENDS_WITHIN_S: Final = 15.0


@dataclass(frozen=True, slots=True)
class DevProcess:
    """A running `ternmq dev`."""

    process: subprocess.Popen[str]
    nameserver: str
    broker_name: str
    broker: str
    data: Path
    """Where it keeps everything."""

    def interrupt(self) -> int:
        """Press Ctrl-C and return the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(ENDS_WITHIN_S)


@contextlib.contextmanager
def running_dev(
    command: Sequence[str | Path],
    folder: Path,
    *,
    port_nameserver: int = 0,
    env: dict[str, str] | None = None,
) -> Generator[DevProcess]:
    """Run `command dev` in `folder` and yield it when it says that it is ready.

    Leaving kills it if it still runs. Its log lies in `folder/log`.

    Args:
        command: How to start `ternmq`, without the verb.
        folder: Working directory; the data goes below it.
        port_nameserver: 0 takes a free one.
        env: The process's whole environment; None passes ours on.
    """
    arguments = ["--port-nameserver", str(port_nameserver), "--port-broker", "0"]
    with (
        (folder / "log").open("w+") as log,
        subprocess.Popen(
            [*command, "dev", "--data", folder / "data", *arguments],
            cwd=folder,
            env=env,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            printed = ""
            while not (found := _READY.search(printed)):
                line = next_line(process.stdout)
                if not line:
                    log.seek(0)
                    raise AssertionError(f"it is not ready; printed {printed!r}\n{log.read()}")
                printed += line
            yield DevProcess(
                process, found["nameserver"], found["name"], found["broker"], folder / "data"
            )
        finally:
            process.kill()


_READY: Final = re.compile(
    r"^nameserver (?P<nameserver>127\.0\.0\.1:\d+)$.*"
    r"^broker (?P<name>\S+) (?P<broker>127\.0\.0\.1:\d+)$",
    re.MULTILINE | re.DOTALL,
)


def next_line(stream: IO[str]) -> str:
    """Return the next line, "" when none comes in time or none will come."""
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=lambda: lines.put(stream.readline()), daemon=True).start()
    try:
        return lines.get(timeout=READY_WITHIN_S)
    except queue.Empty:
        return ""
