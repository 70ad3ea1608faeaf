"""The real file system: descriptors, locks, and what is told when there is no more of something."""

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ternmq_model.errors import StoreError, StoreLocked
from ternmq_store.disk.filesystem import RealFileSystem
from tests.support.records import batch_of, record
from tests.support.stores import append, open_store

JAVA_LIKE = """
import fcntl, sys
file = open(sys.argv[1], "r+" if sys.argv[2] == "try" else "w+")
try:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
except OSError:
    print("refused", flush=True)
else:
    print("held", flush=True)
    sys.stdin.read()
"""
"""Locks byte 0 of a file as Java's `FileChannel.tryLock(0, 1, false)` does."""

CROWDED = """
import resource, sys
from pathlib import Path
from ternmq_model.errors import StoreFull
from ternmq_store.disk.filesystem import RealFileSystem
from tests.support.records import batch_of, record
from tests.support.stores import append, checkpoint, flush, open_store

resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]),) * 2)
store = open_store(RealFileSystem(), root=Path(sys.argv[1]))
made = 0
try:
    for number in range(1000):
        append(store, batch_of(record(f"T{number}")))
        made += 1
except StoreFull as error:
    print(error)
append(store, batch_of(record("T0")))
flush(store)
while store.dispatch().more:
    pass
checkpoint(store)
assert store.failure is None
print(made, store.queue_range("T0", 0)[1])
store.close()
"""


def python(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def test_queues_beyond_the_file_limit_are_refused_and_store_reopens(tmp_path: Path) -> None:
    done = python(CROWDED, tmp_path / "store", 64)
    assert done.returncode == 0, done.stderr
    refusal, told = done.stdout.splitlines()
    assert "limit of open files is 64" in refusal
    made, end = map(int, told.split())
    assert 30 < made < 64
    assert end == 2
    few = python(CROWDED, tmp_path / "store", 32)
    assert few.returncode == 1
    last = few.stderr.splitlines()[-1]
    assert "limit of open files is 32" in last
    assert f"it has {made + 1} files to map" in last
    store = open_store(RealFileSystem(), root=tmp_path / "store")
    assert len(store.queues()) == made
    assert store.report.was_clean is False  # the start that was refused came in between
    store.close()


def test_queue_keeps_one_descriptor(tmp_path: Path) -> None:
    folder = Path("/proc/self/fd")
    if not folder.exists():
        pytest.skip("there is no /proc")
    store = open_store(RealFileSystem(), root=tmp_path / "store")
    append(store, batch_of(record("T", queue_id=0)))
    before = len(list(folder.iterdir()))
    append(store, batch_of(*(record("T", queue_id=number) for number in range(1, 21))))
    assert len(list(folder.iterdir())) == before + 20
    store.close()


def test_parked_file_can_still_be_read_written_and_synced(tmp_path: Path) -> None:
    file = RealFileSystem().open(tmp_path / "file", create=True)
    file.resize(8)
    file.park()
    file.write(2, b"xy")
    file.allocate(0, 8)
    file.sync()
    assert (file.size(), file.read(0, 8)) == (8, b"\0\0xy\0\0\0\0")
    region = file.map()
    assert bytes(region.view[2:4]) == b"xy"
    region.close()
    file.close()


def test_unusable_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match=rf"data directory {tmp_path}/file/b cannot be used") as e:
        open_store(RealFileSystem(), root=tmp_path / "file" / "b")
    assert isinstance(e.value.__cause__, OSError)
    assert e.value.__cause__.errno == errno.ENOTDIR


def test_rocketmq_and_a_store_exclude_each_other(tmp_path: Path) -> None:
    store = open_store(RealFileSystem(), root=tmp_path)
    lock = tmp_path / "lock"
    assert lock.read_bytes() == b"lock"
    assert python(JAVA_LIKE, lock, "try").stdout == "refused\n"
    with pytest.raises(StoreLocked, match=f"process {os.getpid()}"):
        open_store(RealFileSystem(), root=tmp_path)
    assert python(JAVA_LIKE, lock, "try").stdout == "refused\n"
    store.close()
    with subprocess.Popen(
        [sys.executable, "-c", JAVA_LIKE, str(lock), "hold"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(StoreLocked, match="another process"):
            open_store(RealFileSystem(), root=tmp_path)
    open_store(RealFileSystem(), root=tmp_path).close()


def test_file_opened_to_read_cannot_be_changed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    path.chmod(0o400)
    file = RealFileSystem().open(path, read_only=True)
    assert (file.size(), file.read(1, 9)) == (3, b"bc")
    with pytest.raises(OSError, match=r"\[Errno"):
        file.write(0, b"x")
    with pytest.raises(OSError, match=r"\[Errno"):
        file.resize(0)
    region = file.map()
    region.bytes[:2] = 120
    assert bytes(region.view) == b"xxc"
    region.close()
    file.park()
    assert file.read(0, 3) == b"abc"
    file.close()
    assert path.read_bytes() == b"abc"


def test_held_lock_is_seen_without_taking_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    files = RealFileSystem()
    assert not files.is_locked(path)
    assert not path.exists()
    lock = files.lock(path)
    path.chmod(0o400)
    assert files.is_locked(path)
    lock.release()
    assert not files.is_locked(path)
    with subprocess.Popen(
        [sys.executable, "-c", JAVA_LIKE, str(path), "hold"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as java:
        assert java.stdout is not None
        path.chmod(0o600)
        assert java.stdout.readline() == "held\n"
        assert files.is_locked(path)
        java.communicate("")
    assert not files.is_locked(path)


def test_store_stays_held_when_its_lock_file_is_removed(tmp_path: Path) -> None:
    files = RealFileSystem()
    store = open_store(files, root=tmp_path)
    (tmp_path / "lock").unlink()
    assert files.is_locked(tmp_path / "lock")
    with pytest.raises(StoreLocked, match=f"process {os.getpid()}"):
        open_store(RealFileSystem(), root=tmp_path)
    assert not (tmp_path / "lock").exists(), "a refused start leaves no file that looks free"
    (tmp_path / "lock").touch()
    assert files.is_locked(tmp_path / "lock")
    store.close()
    (tmp_path / "lock").unlink()
    assert not files.is_locked(tmp_path / "lock")
    open_store(files, root=tmp_path).close()


def test_start_is_not_refused_by_who_only_asks_for_the_lock(
    tmp_path: Path,
) -> None:
    asked = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(asked, fcntl.LOCK_EX)

    def rest(_seconds: float) -> None:
        os.close(asked)

    RealFileSystem(rest).lock(tmp_path / "lock").release()


def test_lock_file_that_is_a_link_is_in_place(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to("elsewhere")
    lock = RealFileSystem().lock(tmp_path / "lock")
    assert lock.is_in_place()
    (tmp_path / "elsewhere").unlink()
    assert not lock.is_in_place()
    lock.release()


@pytest.mark.parametrize("target", ["itself", "nowhere"])
def test_link_that_leads_nowhere_is_not_missing(tmp_path: Path, target: str) -> None:
    path = tmp_path / "itself"
    path.symlink_to(target)
    files = RealFileSystem()
    assert files.exists(path)
    assert not files.exists(tmp_path / "nowhere")
    with pytest.raises(OSError, match="itself") as error:
        files.open(path, read_only=True)
    assert error.value.errno == errno.ELOOP
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        files.exists(tmp_path / "file" / "below")
