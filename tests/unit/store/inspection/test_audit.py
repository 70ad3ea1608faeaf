from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ternmq_model.offsets import PhysicalOffset
from ternmq_store.config import FlushMode
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.inspection.audit import LogState, StoreAudit
from ternmq_store.inspection.audit_findings import AuditFinding
from ternmq_store.inspection.log_inspection import FoundRecord, find_log_files, walk_log
from ternmq_store.log.checksum_ranges import ChecksumRange
from ternmq_store.log.log_notes import LogNotes, load_notes, save_notes
from ternmq_store.truncation.log_truncation import truncate_log
from ternmq_testing.memory.memory_files import MemoryFile, MemoryFileSystem
from tests.support.records import batch_of, record
from tests.support.replicas import follow, open_replica
from tests.support.stores import ROOT, SMALL, HandClock, append, open_store, settle

CONFIG = replace(SMALL, record_checksum=True)


class ReadOnlyFileSystem(MemoryFileSystem):
    """A disk that is only read from."""

    def __init__(self, other: MemoryFileSystem) -> None:
        super().__init__()
        self.nodes, self.made_folders, self.locks = other.nodes, other.made_folders, other.locks

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        """Open a file to read."""
        assert read_only, path
        assert not create
        return super().open(path, read_only=True)

    def happen(self) -> None:
        """Refuse any change."""
        raise AssertionError("a check writes")


def audit(files: FileSystem) -> tuple[list[AuditFinding], StoreAudit]:
    """Check a store."""
    found = StoreAudit(files, ROOT)
    return list(found.findings()), found


def store_with(messages: int, *, is_closed: bool = True) -> MemoryFileSystem:
    """Return a store with messages in two queues."""
    files = MemoryFileSystem()
    store = open_store(files, config=CONFIG)
    for number in range(messages):
        append(store, batch_of(record("t", number % 2, b"x" * 500, {"KEYS": f"k{number}"})))
    settle(store)
    if is_closed:
        store.close()
    return files


def test_closed_store_is_sound_and_not_written_to() -> None:
    findings, found = audit(ReadOnlyFileSystem(store_with(40)))
    assert [one for one in findings if one.is_problem] == []
    assert (found.counts.records, found.counts.units, found.counts.checksummed) == (40, 40, 40)
    assert found.state is LogState.CLOSED


def test_store_in_use_is_sound_too() -> None:
    findings, found = audit(ReadOnlyFileSystem(store_with(40, is_closed=False)))
    assert [one for one in findings if one.is_problem] == []
    assert found.state is LogState.IN_USE
    assert found.pid


def test_records_not_yet_in_a_queue_are_no_problem() -> None:
    files = MemoryFileSystem()
    store = open_store(files, config=CONFIG)
    append(store, batch_of(record("t")))
    settle(store)
    append(store, batch_of(record("t"), record("t")))
    findings, _ = audit(files)
    assert [one.is_problem for one in findings if one.area == "queue"] == [False]
    assert any("2 records have no unit yet" in one.text for one in findings)


@pytest.mark.parametrize("seed", range(20))
def test_altered_byte_of_a_checksummed_record_is_always_found(seed: int) -> None:
    files = store_with(6)
    ranges = (ChecksumRange(PhysicalOffset(0), None),)
    save_notes(files, ROOT, LogNotes(checksummed=ranges))
    pieces = walk_log(files, find_log_files(files, ROOT))
    records = [piece for piece in pieces if isinstance(piece, FoundRecord)]
    chance = np.random.default_rng(seed)
    one = records[int(chance.integers(len(records)))]
    at = one.offset + int(chance.integers(one.record.header.total_bytes))
    files.nodes[one.file.path].data[at - one.file.base] ^= 1 << int(chance.integers(8))
    findings, _ = audit(files)
    assert any(f.is_problem and f.area == "log" and f.offset == one.offset for f in findings)


def test_extended_consume_queue_units_are_compared() -> None:
    files = MemoryFileSystem()
    config = replace(CONFIG, consume_queue_ext_enabled=True, consume_queue_ext_file_bytes=1 << 16)
    store = open_store(files, config=config)
    append(store, batch_of(*(record("t", 0, b"x", {"TAGS": f"tag{n}"}) for n in range(3))))
    settle(store)
    store.close()
    findings, found = audit(ReadOnlyFileSystem(files))
    assert [one for one in findings if one.is_problem] == []
    assert found.counts.units == 3
    ext = ROOT / "consumequeue_ext" / "t" / "0" / f"{0:020d}"
    files.nodes[ext].data[9] ^= 1
    findings, _ = audit(files)
    assert [one.text for one in findings if one.is_problem] == [
        "t 0: unit 0 points to an ext unit of another tag or time"
    ]
    files.nodes[ext].data[1] ^= 1
    findings, _ = audit(files)
    assert "t 0: unit 0 points to no ext unit" in [one.text for one in findings]


def test_missing_checksum_where_required_is_a_problem() -> None:
    files = MemoryFileSystem()
    store = open_store(files, config=SMALL)
    append(store, batch_of(record("t")))
    settle(store)
    store.close()
    start, end = PhysicalOffset(0), PhysicalOffset(1 << 20)
    save_notes(files, ROOT, LogNotes(checksummed=(ChecksumRange(start, end),)))
    findings, found = audit(files)
    assert [one.text for one in findings if one.is_problem and one.area == "log"] == [
        "the record has no checksum, and was written with one"
    ]
    assert [place.offset for place in found.bad] == [0]


def test_damaged_record_is_a_problem_of_the_log_alone() -> None:
    files = store_with(12)
    node = files.nodes[find_log_files(files, ROOT)[0].path]
    node.data[12] ^= 0x10  # of the queue's id
    findings, _ = audit(files)
    assert {one.area for one in findings if one.is_problem} == {"log"}


def test_unfit_queue_files_are_reported() -> None:
    files = store_with(60)
    queue = [path for path in files.nodes if path.parts[-3:-1] == ("t", "0")]
    assert len(queue) >= 2
    last = files.nodes[max(queue)]
    last.data = np.append(last.data, np.zeros(40, dtype=np.uint8))
    findings, _ = audit(files)
    found = [one for one in findings if one.is_problem]
    assert [(one.file, one.area) for one in found] == [(max(queue), "queue")]
    assert "others have" in found[0].text


def test_checkpoint_that_is_too_long_is_no_problem() -> None:
    files = store_with(3)
    node = files.nodes[ROOT / "checkpoint"]
    node.data = np.append(node.data, np.zeros(4, dtype=np.uint8))
    findings, _ = audit(files)
    assert [one.is_problem for one in findings if one.area == "checkpoint"] == [False]


def test_log_that_began_earlier_is_reported_even_after_a_crash() -> None:
    files = store_with(60, is_closed=False)
    files.locks.clear()
    del files.nodes[find_log_files(files, ROOT)[0].path]
    findings, found = audit(files)
    told = [one for one in findings if "does not show which" in one.text]
    assert [(one.is_problem, one.offset) for one in told] == [(False, 0)]
    assert found.start > 0


def test_replicas_store_is_sound_with_unconfirmed_log_behind_its_limit() -> None:
    files, copy = MemoryFileSystem(), MemoryFileSystem()
    master, slave = open_store(files, config=CONFIG), open_replica(copy, config=CONFIG)
    for number in range(40):
        append(master, batch_of(record("t", number % 2, b"x" * 500, {"KEYS": f"k{number}"})))
    follow(master, slave)
    slave.confirm_limit = PhysicalOffset(9_000)
    slave.close()
    findings, found = audit(ReadOnlyFileSystem(copy))
    assert [one for one in findings if one.is_problem] == []
    assert found.counts.records == 40
    assert 0 < found.counts.units < 40
    assert found.counts.checksummed == 40


@pytest.mark.parametrize("is_closed", [True, False])
def test_cut_log_is_sound_and_a_pending_cut_is_noted(is_closed: bool) -> None:
    files, clock = MemoryFileSystem(), HandClock()
    store = open_store(files, config=CONFIG, clock=clock)
    for number in range(40):
        clock.now_ms += 10_000
        append(store, batch_of(record("t", number % 2, b"x" * 500, {"KEYS": f"k{number}"})))
        settle(store)
    end = PhysicalOffset(20_000)
    if is_closed:
        store.close()
    files.locks.clear()
    save_notes(files, ROOT, replace(load_notes(files, ROOT, pytest.fail), cut_to=end))
    findings, _ = audit(ReadOnlyFileSystem(files))
    assert [one.offset for one in findings if "cuts the log here" in one.text] == [end]
    truncate_log(ROOT, CONFIG, FlushMode.SYNC, files, clock, end)
    findings, found = audit(ReadOnlyFileSystem(files))
    assert findings == []
    assert 0 < found.counts.records < 40
