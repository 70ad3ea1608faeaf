import subprocess
import sys
from pathlib import Path

import pytest

from ternmq_model.errors import StoreLocked
from ternmq_runtime.directory_lock import DirectoryLock

HOLD = """
import sys
from pathlib import Path
from ternmq_runtime.directory_lock import DirectoryLock

lock = DirectoryLock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_directory_has_one_holder_at_a_time(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    with pytest.raises(StoreLocked, match=str(tmp_path)):
        DirectoryLock(tmp_path)
    lock.release()
    lock.release()
    DirectoryLock(tmp_path).release()


def test_directory_stays_held_when_its_lock_file_is_removed(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    (tmp_path / "lock").unlink()
    with pytest.raises(StoreLocked, match=str(tmp_path)):
        DirectoryLock(tmp_path)
    lock.release()
    DirectoryLock(tmp_path).release()


def test_killed_process_holds_no_lock(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(StoreLocked):
            DirectoryLock(tmp_path)
        holder.kill()
        holder.wait()
        DirectoryLock(tmp_path).release()


def test_missing_directory_is_its_own_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        DirectoryLock(tmp_path / "absent")
