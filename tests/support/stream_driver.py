"""A driver in a process group of its own, to be killed. Run as a module, it is that process."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.spark_session import LOCAL, make_session
from tests.support.stream_runs import source, start

WAITS: Final = 1_200
"""Tenths of a second."""


@dataclass(frozen=True, slots=True)
class StreamDriver:
    """A running driver: Python, its JVM and their workers."""

    process: subprocess.Popen[str]
    folder: Path

    def finish_batches(self, count: int) -> None:
        """Wait until the query has finished `count` batches more."""
        commits = self.folder / "checkpoint" / "commits"
        wanted = len(list(commits.glob("[0-9]*"))) + count
        for _ in range(WAITS):
            if self.ends_within(0.1):
                log = (self.folder / "driver.log").read_text()
                raise AssertionError(f"the driver ended by itself\n{log[-2000:]}")
            if len(list(commits.glob("[0-9]*"))) >= wanted:
                return
        raise AssertionError(f"the driver does not finish {count} batches")

    def ends_within(self, seconds: float) -> bool:
        """Wait for the driver's own end."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """End all of its processes as `kill -9` does."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)


@contextlib.contextmanager
def stream_driver(
    folder: Path, nameserver: str, trigger: dict[str, str | bool], **options: str | int
) -> Generator[StreamDriver]:
    """Run a driver whose query reads into `folder/rows`; leaving kills it.

    Args:
        folder: Where rows and checkpoint lie, as `stream_runs.start` has them.
        nameserver: The cluster.
        trigger: The query's.
        options: The source's.
    """
    told = json.dumps(
        {"folder": str(folder), "nameserver": nameserver, "trigger": trigger, "options": options}
    )
    with (
        (folder / "driver.log").open("a") as log,
        subprocess.Popen(
            [sys.executable, "-m", "tests.support.stream_driver", told],
            cwd=Path(__file__).parents[2],
            stdout=log,
            stderr=log,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        driver = StreamDriver(process, folder)
        try:
            yield driver
        finally:
            driver.kill()


def main(told: str) -> None:
    """Run the query to its end."""
    asked = json.loads(told)
    folder = Path(asked["folder"])
    spark = make_session(LOCAL, folder / "driver", {})
    frame = source(spark, asked["nameserver"], **asked["options"])
    start(frame, folder, **asked["trigger"]).awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1])
