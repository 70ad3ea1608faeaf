from dataclasses import replace

import pytest

from ternmq_model.errors import StoreError, StoreLocked
from ternmq_model.offsets import PhysicalOffset
from ternmq_store.config import FlushMode
from ternmq_store.disk.layout import cut_folder
from ternmq_store.log.log_notes import load_notes
from ternmq_store.message_store import MessageStore
from ternmq_store.truncation import log_truncation
from ternmq_store.truncation.log_truncation import Truncation, reset_log, truncate_log
from ternmq_testing.memory.memory_files import MemoryFileSystem, PowerLost
from tests.support.damage import CONFIG, check_index, readable
from tests.support.records import batch_of, record
from tests.support.replicas import follow, log_of
from tests.support.stores import ROOT, HandClock, append, checkpoint, open_store, settle

CLEAN = pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])


def used(*, is_clean: bool, count: int = 30) -> tuple[MemoryFileSystem, list[int]]:
    """Return a store of several files, all of it dispatched, and where its records end."""
    files = MemoryFileSystem()
    store, ends = open_store(files, config=CONFIG), list[int]()
    for number in range(count):
        one = record("AB"[number % 2], 0, bytes((number,)) * 200, {"KEYS": f"k{number}"})
        ends.append(int(append(store, batch_of(one)).end))
    settle(store)
    assert checkpoint(store)
    if is_clean:
        store.close()
    files.locks.clear()
    return files, ends


def cut(files: MemoryFileSystem, at: int, *, serve_to: int | None = None) -> Truncation:
    """Cut the log."""
    limit = None if serve_to is None else PhysicalOffset(serve_to)
    where = PhysicalOffset(at)
    return truncate_log(ROOT, CONFIG, FlushMode.SYNC, files, HandClock(), where, serve_to=limit)


def begin_at(files: MemoryFileSystem, at: int, file_bytes: int) -> Truncation:
    """Begin anew."""
    where = PhysicalOffset(at)
    return reset_log(ROOT, CONFIG, FlushMode.SYNC, files, HandClock(), where, file_bytes)


@CLEAN
@pytest.mark.parametrize("row", [0, 3, 14, 28])
def test_log_is_cut_with_all_its_derived_files(is_clean: bool, row: int) -> None:
    files, ends = used(is_clean=is_clean)
    log = log_of(files, ends[-1])
    done = cut(files, ends[row])
    assert done.log_end == done.start == ends[row]
    assert (done.end, done.bytes) == (ends[-1], ends[-1] - ends[row])
    assert done.records == 29 - row
    assert done.first is not None
    assert ends[row] <= done.first < ends[row + 1]
    assert done.last is not None
    assert ends[-2] <= done.last < ends[-1]
    assert done.kept is not None
    assert files.nodes[done.kept].data.tobytes() == log[ends[row] :]
    assert not any(log_of(files, 1 << 30)[ends[row] :])
    store = open_store(files, config=CONFIG)
    assert store.report.was_clean
    assert not store.report.findings
    served = readable(store)
    assert len(served) == row + 1
    check_index(store, served)
    assert store.next_offset("A", 0) == row // 2 + 1
    again = append(store, batch_of(record("A", 0, b"another")))
    assert again.queue_offsets.tolist() == [row // 2 + 1]


def test_cut_within_a_record_removes_it() -> None:
    files, ends = used(is_clean=True)
    assert cut(files, ends[4] + 9).log_end == ends[4]


def test_cut_behind_the_end_changes_nothing() -> None:
    files, ends = used(is_clean=True)
    before = log_of(files, 1 << 30)
    done = cut(files, ends[-1])
    assert (done.records, done.bytes, done.kept) == (0, 0, None)
    assert done.log_end == ends[-1]
    assert log_of(files, 1 << 30) == before
    assert not files.exists(cut_folder(ROOT))


@CLEAN
def test_log_is_cut_at_the_end_of_a_file(is_clean: bool) -> None:
    files, ends = used(is_clean=is_clean)
    at = 2 * CONFIG.commit_log_file_bytes
    done = cut(files, at)
    assert done.log_end == at
    store = open_store(files, config=CONFIG)
    assert store.max_physical == at
    assert len(readable(store)) == sum(end <= at for end in ends)
    append(store, batch_of(record()))
    settle(store)
    assert store.read("flights", 0, store.queue_range("flights", 0)[0]).record_sizes.size == 1


def test_shortened_log_is_served_no_further_than_its_limit() -> None:
    files, ends = used(is_clean=True)
    cut(files, ends[9], serve_to=ends[4])
    store = MessageStore.open(
        ROOT, CONFIG, FlushMode.SYNC, files, HandClock(), serve_to=PhysicalOffset(ends[4])
    )
    assert store.max_physical == ends[9]
    assert len(readable(store)) == 5
    store.confirm_limit = None
    settle(store)
    assert len(readable(store)) == 10


def test_noted_cut_is_completed_by_the_next_opening(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def killed(*_places: object, **_options: object) -> MessageStore:
        raise PowerLost

    files, ends = used(is_clean=True)
    with monkeypatch.context() as patch:
        patch.setattr(MessageStore, "open", killed)
        with pytest.raises(PowerLost):
            cut(files, ends[7])
    assert load_notes(files, ROOT, pytest.fail).cut_to == ends[7]
    store = open_store(files, config=CONFIG)
    assert store.max_physical == ends[7]
    assert len(readable(store)) == 8
    assert load_notes(files, ROOT, pytest.fail).cut_to is None


def test_foreign_log_can_be_cut() -> None:
    files, ends = used(is_clean=True)
    files.remove(ROOT / "ternmq.store")
    files.remove(ROOT / "ternmq.store.bak")
    assert cut(files, ends[7]).log_end == ends[7]
    assert len(readable(open_store(files, config=CONFIG))) == 8


def test_open_store_is_not_cut() -> None:
    files, ends = used(is_clean=True)
    store = open_store(files, config=CONFIG)
    with pytest.raises(StoreLocked):
        cut(files, ends[7])
    assert store.max_physical == ends[-1]


def test_cut_before_the_start_is_refused() -> None:
    files = MemoryFileSystem()
    begin_at(files, 8192, 4096)
    with pytest.raises(StoreError, match="begins at 8192"):
        cut(files, 4096)


def test_damage_before_the_end_is_no_end() -> None:
    files, ends = used(is_clean=True)
    base = ends[19] - ends[19] % CONFIG.commit_log_file_bytes
    node = files.nodes[ROOT / "commitlog" / f"{base:020d}"]
    node.data[ends[19] - base : ends[19] - base + 40] = 1
    done = cut(files, ends[9])
    assert done.end == ends[-1]
    assert done.records == 19


def test_number_and_size_of_kept_cuts_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_truncation, "KEPT_FILES_MAX", 3)
    monkeypatch.setattr(log_truncation, "KEPT_BYTES_MAX", 500)
    files, ends = used(is_clean=True)
    for row in range(28, 20, -1):
        done = cut(files, ends[row])
        assert done.kept is not None
        assert len(files.nodes[done.kept].data) == min(done.bytes, 500)
    assert len(files.files(cut_folder(ROOT))) == 3


def test_full_disk_is_cut_without_a_copy() -> None:
    files, ends = used(is_clean=True)
    files.used = 0.95
    done = cut(files, ends[9])
    assert done.kept is None
    assert done.log_end == ends[9]


@CLEAN
@pytest.mark.parametrize("at", [0, 16384])
def test_log_starts_over_where_another_one_begins(is_clean: bool, at: int) -> None:
    files, ends = used(is_clean=is_clean)
    done = begin_at(files, at, 8192)
    assert (done.records, done.end, done.log_end) == (30, ends[-1], at)
    assert done.kept is not None
    store = MessageStore.open(
        ROOT, CONFIG, FlushMode.SYNC, files, HandClock(), serve_to=PhysicalOffset(0)
    )
    assert store.min_physical == store.max_physical == at
    assert store.log_file_bytes == 8192
    assert store.queues() == []
    assert not store.report.findings
    store.close()


def test_replaced_replica_follows_a_log_that_begins_later() -> None:
    files, copy = MemoryFileSystem(), MemoryFileSystem()
    open_store(copy).close()
    begin_at(files, 16384, 8192)
    config = replace(CONFIG, commit_log_file_bytes=8192)
    master = open_store(files, config=config)
    for number in range(40):
        append(master, batch_of(record("A", 0, bytes(200 + number))))
    settle(master)
    begin_at(copy, 16384, 8192)
    slave = open_store(copy, config=CONFIG)
    follow(master, slave)
    settle(slave)
    assert log_of(copy, slave.max_physical) == log_of(files, master.max_physical)
    assert readable(slave) == readable(master)
    slave.close()
    assert len(readable(open_store(copy, config=CONFIG))) == 40


def test_place_between_file_starts_is_refused() -> None:
    files = MemoryFileSystem()
    with pytest.raises(StoreError, match="begins at 5"):
        begin_at(files, 5, 8192)
