"""A process that cuts a store's log, to be killed. Run as a module, it is that process."""

import subprocess
import sys
from pathlib import Path

from ternmq_model.offsets import PhysicalOffset
from ternmq_runtime.clock import SystemClock
from ternmq_store.config import FlushMode
from ternmq_store.disk.filesystem import RealFileSystem
from ternmq_store.truncation.log_truncation import Truncation, truncate_log
from tests.support.processes import start_module
from tests.support.store_process import READY, STORE


def begin_cut(root: Path, at: int) -> subprocess.Popen[str]:
    """Begin a process that cuts the log of the store in `root` at `at`."""
    return start_module(__name__, str(root), str(at))


def cut(root: Path, at: int) -> Truncation:
    """Cut the log."""
    where = PhysicalOffset(at)
    return truncate_log(root, STORE, FlushMode.SYNC, RealFileSystem(), SystemClock(), where)


if __name__ == "__main__":
    print(READY, flush=True)
    cut(Path(sys.argv[1]), int(sys.argv[2]))
