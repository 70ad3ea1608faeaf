"""A process that cuts a store's log, to be killed. Run as a module, it is that process."""

import os
import subprocess
import sys
from pathlib import Path

from ternmq_model.offsets import PhysicalOffset
from ternmq_runtime.clock import SystemClock
from ternmq_store.config import FlushMode
from ternmq_store.disk.filesystem import RealFileSystem
from ternmq_store.recovery.cutting import Cut, cut_log
from tests.support.store_process import READY, STORE


def begin_cut(root: Path, at: int) -> subprocess.Popen[str]:
    """Begin a process that cuts the log of the store in `root` at `at`."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.cut_process", str(root), str(at)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": ""},
    )


def cut(root: Path, at: int) -> Cut:
    """Cut the log."""
    where = PhysicalOffset(at)
    return cut_log(root, STORE, FlushMode.SYNC, RealFileSystem(), SystemClock(), where)


if __name__ == "__main__":
    print(READY, flush=True)
    cut(Path(sys.argv[1]), int(sys.argv[2]))
