"""Queues that are lost, and logs without notes: no message goes, no number is given twice."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from ternmq_store.disk.layout import (
    abort_path,
    commit_log_folder,
    consume_queue_folder,
    file_name,
    notes_path,
)
from ternmq_testing.memory.memory_files import MemoryFileSystem
from tests.support.damage import CONFIG, blank_record, copied, ends, filled, readable
from tests.support.examples import seeds
from tests.support.records import batch_of, record
from tests.support.stores import ROOT, append, checkpoint, open_store, settle, whole

NEW_SENDS = 40


def crashed_in_a_new_queue() -> MemoryFileSystem:
    """Return a killed store with a queue that only the checkpoint came after."""
    files = filled(is_clean=False)
    store = open_store(files, config=CONFIG)
    for number in range(12):
        append(store, batch_of(record("new", 0, bytes((number + 1,)) * 40)))
    settle(store)
    checkpoint(store, 1 << 50)
    files.locks.clear()
    return files


CRASHED = crashed_in_a_new_queue()
CLEAN = filled(is_clean=True)


def _remove(files: MemoryFileSystem, path: Path) -> None:
    del files.nodes[path]


def _empty(files: MemoryFileSystem, path: Path) -> None:
    files.nodes[path].data = files.nodes[path].data[:0].copy()


def _zero(files: MemoryFileSystem, path: Path) -> None:
    files.nodes[path].data[:] = 0


def _halve(files: MemoryFileSystem, path: Path) -> None:
    data = files.nodes[path].data
    files.nodes[path].data = data[: len(data) // 2].copy()


def _lengthen(files: MemoryFileSystem, path: Path) -> None:
    data = files.nodes[path].data
    files.nodes[path].data = data.repeat(2)[: len(data) + 100].copy()


def without_notes(files: MemoryFileSystem) -> MemoryFileSystem:
    """Return a copy of a store whose notes are lost."""
    copy = copied(files)
    for path in [path for path in copy.nodes if path.name.startswith(notes_path(ROOT).name)]:
        del copy.nodes[path]
    return copy


@pytest.mark.parametrize("harm", [_remove, _empty, _zero, _halve, _lengthen])
def test_queue_lost_after_a_crash_is_rebuilt_without_reusing_offsets(
    harm: Callable[[MemoryFileSystem, Path], None],
) -> None:
    served = readable(whole := open_store(copied(CRASHED), config=CONFIG))
    folder = consume_queue_folder(ROOT)
    for path in [path for path in CRASHED.nodes if folder in path.parents]:
        files = copied(CRASHED)
        harm(files, path)
        store = open_store(files, config=CONFIG)
        assert readable(store) == served, path
        assert ends(store) == ends(whole), path
        for number in range(NEW_SENDS):
            append(store, batch_of(record(*store.queues()[number % 4], b"later")))
        settle(store)
        after = readable(store)
        assert len(after) == len(served) + NEW_SENDS
        assert served.items() <= after.items()


@pytest.mark.parametrize("source", [CLEAN, CRASHED], ids=["clean", "killed"])
@pytest.mark.parametrize("byte", [0, 5, 30, 90])
def test_bad_first_record_of_a_log_without_notes_hides_no_other(
    source: MemoryFileSystem, byte: int
) -> None:
    served = readable(open_store(copied(source), config=CONFIG))
    files = without_notes(source)
    files.nodes[commit_log_folder(ROOT) / file_name(0)].data[byte] ^= 1
    store = open_store(files, config=CONFIG)
    assert readable(store) == {key: data for key, data in served.items() if key != ("A", 0, 0)}
    assert store.report.findings


def test_lost_queue_of_a_store_without_notes_is_repaired_and_reported() -> None:
    served = readable(open_store(copied(CLEAN), config=CONFIG))
    folder = consume_queue_folder(ROOT)
    for path in [path for path in CLEAN.nodes if folder in path.parents]:
        files = without_notes(CLEAN)
        del files.nodes[path]
        store = open_store(files, config=CONFIG)
        assert readable(store) == served, path
        assert store.report.findings, path


def test_stale_records_beyond_the_former_end_do_not_return() -> None:
    files = copied(CLEAN)
    whole = open_store(copied(CLEAN), config=CONFIG)
    end = whole.max_physical
    longer = copied(CLEAN)
    store = open_store(longer, config=CONFIG)
    for _ in range(3):
        append(store, batch_of(record("A", 0, b"x" * 20)))
    settle(store)
    base = end - end % CONFIG.commit_log_file_bytes
    path = commit_log_folder(ROOT) / file_name(base)
    stale = longer.nodes[path].data.copy()
    stale[end - base : end - base + 8] = 0xFF  # the first one is torn
    files.nodes[path].data = stale
    again = open_store(files, config=CONFIG)
    assert again.max_physical == end
    assert again.report.cut_bytes > 0


@pytest.mark.parametrize("seed", seeds(50, soak=2_000))
@pytest.mark.parametrize("has_notes", [True, False], ids=["notes", "no notes"])
@pytest.mark.parametrize("source", [CLEAN, CRASHED], ids=["clean", "killed"])
def test_number_of_a_record_lost_inside_the_log_is_never_given_again(
    source: MemoryFileSystem, has_notes: bool, seed: int
) -> None:
    random = Random(seed)
    before = readable(open_store(copied(source), config=CONFIG))
    places = {key: whole(data).header.physical_offset for key, data in before.items()}
    names = sorted(places, key=places.__getitem__)
    share, tail = random.choice([0, 0.1, 0.4]), names[len(names) - random.randint(0, 6) :]
    lost = {*tail, *(name for name in names if random.random() < share)}
    files = copied(source) if has_notes else without_notes(source)
    if random.random() < 1 / 2:
        files.open(abort_path(ROOT), create=True)
    for name in lost:
        blank_record(files, before[name])
    store = open_store(files, config=CONFIG)
    assert readable(store) == {name: before[name] for name in names if name not in lost}
    for topic, queue_id, number in lost:
        if places[topic, queue_id, number] < store.report.end:
            assert store.next_offset(topic, queue_id) > number, (topic, queue_id)
