"""Files that somebody else removes from an open store, or replaces."""

import errno
import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ternmq_model.errors import StoreFailed
from ternmq_store.config import StoreConfig
from ternmq_store.disk.fail_stop import FailStopFileSystem
from ternmq_store.disk.filesystem import RealFileSystem
from ternmq_store.disk.layout import (
    checkpoint_path,
    commit_log_folder,
    deletions_path,
    index_folder,
    queue_folder,
)
from ternmq_store.disk.state_file import replace_file
from ternmq_store.durability.missing_files import CheckedFile
from ternmq_store.message_store import MessageStore
from ternmq_testing.memory.memory_files import MemoryFileSystem
from tests.support.records import batch_of, record
from tests.support.stores import ROOT, HandClock, append, checkpoint, drain, open_store, settle

CONFIG = StoreConfig(
    commit_log_file_bytes=8192,
    consume_queue_file_units=10,
    index_slots=20,
    index_entries=40,
    clean_delay_ms=0,
    delete_pause_ms=0,
    file_reserved_hours=0,
)
PLACES: dict[str, Callable[[Path], Path]] = {
    "newest of the log": lambda root: _files(commit_log_folder(root))[-1],
    "oldest of the log": lambda root: _files(commit_log_folder(root))[0],
    "queue": lambda root: _files(queue_folder(root, "A", 0))[0],
    "index": lambda root: _files(index_folder(root))[-1],
    "checkpoint": checkpoint_path,
    "deletions": deletions_path,
    "lock": lambda root: root / "lock",
    "table": lambda root: root / "config" / "topics.json",
}


def _files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def look(store: MessageStore) -> None:
    """Look once."""
    task = store.missing_files.check_due()
    task.run()
    store.missing_files.done(task)


def has_failed(store: MessageStore) -> bool:
    """Tell whether the store is read-only."""
    return store.failure is not None


class Disk(RealFileSystem):
    """A disk on which something happens before and after each rename."""

    around_rename: Callable[[], None] = staticmethod(lambda: None)

    def rename(self, old: Path, new: Path) -> None:
        """Give a file another name."""
        self.around_rename()
        super().rename(old, new)
        self.around_rename()


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def files(disk: Disk, tmp_path: Path) -> FailStopFileSystem:
    return FailStopFileSystem(disk, tmp_path)


@pytest.fixture
def store(files: FailStopFileSystem, tmp_path: Path) -> MessageStore:
    store = open_store(files, root=tmp_path, config=CONFIG)
    for number in range(30):
        append(store, batch_of(record("A", 0, bytes(1000), {"KEYS": f"k{number}"})))
    settle(store)
    assert checkpoint(store)
    store.delete_topic("B")
    files.make_folder(tmp_path / "config")
    replace_file(files, tmp_path / "config" / "topics.json", b"{}")
    store.missing_files.tables = (tmp_path / "config" / "topics.json",)
    look(store)
    assert store.failure is None
    return store


@pytest.mark.parametrize(
    ("place", "way"),
    [
        *((place, way) for place in PLACES for way in ("removed", "moved")),
        *((place, "replaced") for place in ("newest of the log", "oldest of the log", "queue")),
        ("lock", "replaced"),
    ],
)
def test_missing_file_is_noticed_and_appends_are_refused(
    store: MessageStore, tmp_path: Path, place: str, way: str
) -> None:
    path = PLACES[place](tmp_path)
    aside = tmp_path / "elsewhere"
    if way == "removed":
        path.unlink()
    else:
        path.rename(aside)
    if way == "replaced":
        path.write_bytes(aside.read_bytes())
    look(store)
    assert store.failure is not None
    assert (store.failure.errno, store.failure.filename) == (errno.ENOENT, str(path))
    with pytest.raises(StoreFailed, match="another program removed or replaced it"):
        append(store, batch_of(record("A")))
    if "log" not in place:
        assert len(drain(store, "A", 0)) == 30
    store.close()


def test_data_directory_that_is_moved_is_noticed(store: MessageStore, tmp_path: Path) -> None:
    tmp_path.rename(tmp_path.with_name("moved"))
    look(store)
    assert store.failure is not None
    store.close()


@pytest.mark.parametrize("place", ["commitlog", "config"])
def test_folder_that_became_a_file_or_a_link_to_itself_is_noticed(
    store: MessageStore, tmp_path: Path, place: str
) -> None:
    folder = tmp_path / place
    for is_link in (False, True):
        folder.rename(tmp_path / "aside")
        folder.symlink_to(place) if is_link else folder.touch()
        task = store.missing_files.check_due()
        task.run()
        assert [each.path.parent for each in task.missing][:1] == [folder]
        assert task.error is None
        folder.unlink()
        (tmp_path / "aside").rename(folder)
    look(store)
    assert store.failure is None
    store.close()


def test_small_file_that_is_being_replaced_is_not_missed(
    store: MessageStore, files: FailStopFileSystem, disk: Disk, tmp_path: Path
) -> None:
    """However long a busy disk takes for each rename, and whenever the look begins."""
    path = tmp_path / "config" / "topics.json"
    disk.around_rename = lambda: look(store)
    for round_ in range(3):
        replace_file(files, path, b"%d" % round_)
    assert not has_failed(store)
    path.unlink()
    look(store)
    assert has_failed(store)
    store.close()


def test_foreign_file_among_the_tables_may_come_and_go(store: MessageStore, tmp_path: Path) -> None:
    names = (".topics.json.swp", "topics.json.save", "consumerFilter.json")
    for name in names:
        (tmp_path / "config" / name).touch()
    store.missing_files.tables = [tmp_path / "config" / name for name in ("topics.json", names[-1])]
    look(store)
    for name in names:
        (tmp_path / "config" / name).unlink()
    look(store)
    assert store.failure is None
    store.close()


def test_every_file_of_the_log_is_looked_at_each_time(store: MessageStore, tmp_path: Path) -> None:
    log = _files(commit_log_folder(tmp_path))
    for path in log:
        path.rename(tmp_path / "aside")
        task = store.missing_files.check_due()
        task.run()
        assert [each.path for each in task.missing] == [path]
        (tmp_path / "aside").rename(path)
    store.close()


def test_files_of_queues_take_turns() -> None:
    files = MemoryFileSystem()
    store = open_store(files, config=replace(CONFIG, index_enabled=False))
    for number in range(200):
        append(store, batch_of(record("A", number, bytes(10))))
    settle(store)
    files.nodes[queue_folder(ROOT, "A", 199) / ("0" * 20)] = files.nodes[
        queue_folder(ROOT, "A", 0) / ("0" * 20)
    ]
    looks = 0
    while store.failure is None:
        look(store)
        looks += 1
    assert 2 < looks <= 4


@pytest.mark.parametrize("count", [64, 70])
def test_queues_come_and_go_between_looks(count: int) -> None:
    store = open_store(MemoryFileSystem(), config=CONFIG)
    for number in range(count):
        append(store, batch_of(record("A", number, b"x")))
    settle(store)
    for topic in "BCD":
        look(store)
        append(store, batch_of(record(topic, 0, b"x")))
        settle(store)
    assert store.failure is None


@pytest.mark.parametrize("seed", range(10))
def test_files_that_the_store_removes_are_not_missed(seed: int) -> None:
    """By retention, with a deleted topic, and at any moment of a look."""
    chance = random.Random(seed)
    clock = HandClock()
    store = open_store(MemoryFileSystem(), config=CONFIG, clock=clock)
    for round_ in range(6):
        for number in range(12):
            append(store, batch_of(record("A", number % 2, bytes(1000))))
            append(store, batch_of(record("B", 0, bytes(300), {"KEYS": str(number)})))
        settle(store)
        assert checkpoint(store, (1 << 60) + round_ * 10_000)
        clock.now_ms += 1000
        moments = chance.sample(range(12), 2)
        task = store.missing_files.check_due()
        for moment, each in enumerate(store.clean(clock.wall_ms(), hour=4)):
            if moment == moments[0]:
                task.run()
            each.run()
            if moment == moments[1]:
                store.missing_files.done(task)
                task = store.missing_files.check_due()
        store.delete_topic("B")
        task.run()
        store.missing_files.done(task)
        assert store.failure is None
    store.close()


def test_look_costs_little(store: MessageStore) -> None:
    """A bound in system calls, which no busy machine changes."""
    task = store.missing_files.check_due()
    assert len(task.places) <= 64 + 6


def test_disk_that_tells_nothing_of_one_file_hides_no_other(
    store: MessageStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def untold() -> bool:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    for _ in range(2):
        task = store.missing_files.check_due()
        task.places = (CheckedFile(tmp_path, untold, lambda: True), *task.places)
        task.run()
        store.missing_files.done(task)
    assert not has_failed(store)
    assert caplog.text.count("cannot be checked") == 1
    checkpoint_path(tmp_path).unlink()
    task = store.missing_files.check_due()
    task.places = (CheckedFile(tmp_path, untold, lambda: True), *task.places)
    task.run()
    store.missing_files.done(task)
    assert has_failed(store)
    store.close()
