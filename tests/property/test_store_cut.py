"""A cut that ends at any of its steps, or fails there, is completed, and nothing comes back."""

import random
from collections.abc import Callable, Sequence

import pytest

from ternmq_model.errors import StoreError
from ternmq_model.offsets import PhysicalOffset
from ternmq_store.config import FlushMode
from ternmq_store.message_store import MessageStore
from ternmq_store.truncation.log_truncation import Truncation, reset_log, truncate_log
from ternmq_testing.memory.memory_files import PowerLossFileSystem, PowerLost
from tests.support.damage import CONFIG, Key, check_index, readable
from tests.support.examples import points
from tests.support.failpoints import FailingDisk
from tests.support.records import batch_of, record
from tests.support.stores import ROOT, HandClock, append, checkpoint, flush, open_store, settle

COUNT = 24
ROW = 9
"""The last record that stays; several files of the log follow."""

Change = Callable[[PowerLossFileSystem, PhysicalOffset], Truncation]


class Scene:
    """A store on a disk that may fail, with records of one length."""

    def __init__(self, *, is_clean: bool) -> None:
        self.disk = FailingDisk()
        store = open_store(self.disk, config=CONFIG)
        self.ends: list[int] = []
        for number in range(COUNT):
            one = record("AB"[number % 2], 0, bytes((number,)) * 300, {"KEYS": f"k{number}"})
            self.ends.append(int(append(store, batch_of(one)).end))
            if number == COUNT // 2:
                settle(store)
                checkpoint(store, 1 << 50)
        settle(store)
        self.before = readable(store)
        if is_clean:
            store.close()
        self.disk.locks.clear()
        self.steps = len(self.disk.steps)
        self.at = PhysicalOffset(self.ends[ROW])
        self.left = {
            key: data for key, data in self.before.items() if key[2] <= (ROW - (key[0] == "B")) // 2
        }


def cut(disk: PowerLossFileSystem, at: PhysicalOffset) -> Truncation:
    """Cut the log."""
    return truncate_log(ROOT, CONFIG, FlushMode.SYNC, disk, HandClock(), at)


def begin_anew(disk: PowerLossFileSystem, at: PhysicalOffset) -> Truncation:
    """Begin the log anew, elsewhere."""
    del at
    return reset_log(
        ROOT, CONFIG, FlushMode.SYNC, disk, HandClock(), PhysicalOffset(1 << 15), 1 << 13
    )


def check(disk: PowerLossFileSystem, at: PhysicalOffset, left: dict[Key, bytes]) -> None:
    """Hold a store to its end, and to nothing coming back behind it."""
    store = open_store(disk, config=CONFIG)
    assert store.max_physical == at
    assert readable(store) == left
    check_index(store, left)
    # As long as the first one that was cut: behind it lie the next one's bytes, or zeros.
    append(store, batch_of(record("A", 0, bytes(300), {"KEYS": "k9"})))
    flush(store)
    killed = disk.restart()
    again = open_store(killed, config=CONFIG)
    after = readable(again)
    assert len(after) == len(left) + 1
    assert left.items() < after.items()
    again.close()


def steps_of(change: Change, *, is_clean: bool) -> Sequence[int]:
    """Return the numbers of the steps that a change takes."""
    scene = Scene(is_clean=is_clean)
    change(scene.disk, scene.at)
    return points(range(scene.steps, len(scene.disk.steps)))


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
def test_cut_interrupted_at_any_step_is_completed(is_clean: bool) -> None:
    for point in steps_of(cut, is_clean=is_clean):
        scene = Scene(is_clean=is_clean)
        scene.disk.dies_at = point
        with pytest.raises(PowerLost):
            cut(scene.disk, scene.at)
        scene.disk.locks.clear()
        for left in (scene.disk.lose_power(random.Random(point)), scene.disk.restart()):
            # The next opening completes it, if it was noted; else all is as it was.
            store = open_store(left, config=CONFIG)
            assert store.max_physical in {scene.at, scene.ends[-1]}
            whole = store.max_physical == scene.ends[-1]
            assert readable(store) == (scene.before if whole else scene.left)
            after = left.restart()
            assert cut(after, scene.at).log_end == scene.at
            check(after, scene.at, scene.left)


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
def test_cut_interrupted_at_any_step_is_completed_by_another(is_clean: bool) -> None:
    for point in steps_of(cut, is_clean=is_clean):
        scene = Scene(is_clean=is_clean)
        scene.disk.dies_at = point
        with pytest.raises(PowerLost):
            cut(scene.disk, scene.at)
        scene.disk.locks.clear()
        for left in (scene.disk.lose_power(random.Random(-point)), scene.disk.restart()):
            assert cut(left, scene.at).log_end == scene.at
            check(left, scene.at, scene.left)


def test_failed_cut_is_done_again() -> None:
    failed = 0
    tried = steps_of(cut, is_clean=True)
    for point in tried:
        scene = Scene(is_clean=True)
        scene.disk.fails_at = point
        try:
            cut(scene.disk, scene.at)
        except StoreError:
            failed += 1
        scene.disk.locks.clear()
        assert cut(scene.disk, scene.at).log_end == scene.at
        check(scene.disk, scene.at, scene.left)
    assert failed * 2 > len(tried), f"{failed} of {len(tried)} steps can fail"


def test_interrupted_start_over_is_done_again() -> None:
    for point in steps_of(begin_anew, is_clean=True):
        scene = Scene(is_clean=True)
        scene.disk.dies_at = point
        with pytest.raises(PowerLost):
            begin_anew(scene.disk, scene.at)
        scene.disk.locks.clear()
        for left in (scene.disk.lose_power(random.Random(point)), scene.disk.restart()):
            first = begin_anew(left, scene.at)
            assert first.log_end == 1 << 15
            store = MessageStore.open(ROOT, CONFIG, FlushMode.SYNC, left, HandClock())
            assert store.min_physical == store.max_physical == 1 << 15
            assert readable(store) == {}
            assert store.log_file_bytes == 1 << 13
