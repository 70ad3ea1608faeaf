"""Reading every record of a log."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from ternmq_model.errors import MessageDamaged
from ternmq_store.disk.mapped_file_queue import FoundFile
from ternmq_store.inspection.log_inspection import next_piece
from ternmq_store.log.log_window import LogWindow
from ternmq_store.scan.directory import StoreDirectory
from ternmq_store.scan.scan_spec import ScanSpec, ScanStep
from ternmq_testing.memory.memory_files import MemoryFileSystem, Node
from tests.support.records import batch_of, record
from tests.support.stores import ROOT, SMALL, append, flush, open_store

pytest.importorskip("pyarrow")

from ternmq_store.scan import raw_scan
from ternmq_store.scan.raw_scan import plan_raw, scan_raw

CONFIG = replace(SMALL, record_checksum=True)
WANTED = ScanSpec(columns=["topic", "queueOffset"])
SKIPPING = replace(WANTED, skips_damaged=True)


def filled(count: int = 30, *, closes: bool = True) -> MemoryFileSystem:
    """Return a store whose queues know nothing of its log."""
    files = MemoryFileSystem()
    store = open_store(files, config=CONFIG)
    for _ in range(count):
        append(store, batch_of(record("RMQ_SYS_TRANS_HALF_TOPIC", 0, b"x" * 400)))
    flush(store)
    if closes:
        store.close()
    return files


def scan(files: MemoryFileSystem, wanted: ScanSpec = WANTED) -> list[ScanStep]:
    """Scan every file."""
    directory = StoreDirectory(files, ROOT)
    return [step for part in plan_raw(directory) for step in scan_raw(directory, part, wanted)]


def numbers(scanned: Iterable[ScanStep]) -> list[int]:
    """Return the queue offsets of the rows."""
    batches = [each.batch for each in scanned if each.batch is not None]
    return [row["queueOffset"] for batch in batches for row in batch.to_pylist()]


def log_file(files: MemoryFileSystem, number: int) -> Node:
    """Return a file of the log."""
    return files.nodes[
        sorted(path for path in files.nodes if path.parent.name == "commitlog")[number]
    ]


@pytest.mark.parametrize("closes", [True, False])
def test_every_record_is_returned_with_or_without_a_queue_unit(closes: bool) -> None:
    assert numbers(scan(filled(closes=closes))) == list(range(30))


def test_records_continue_behind_damaged_bytes() -> None:
    files = filled()
    data = log_file(files, 0).data
    data[:100] = 7
    with pytest.raises(MessageDamaged, match="commit log offset 0 "):
        scan(files)
    steps = scan(files, SKIPPING)
    assert numbers(steps) == list(range(1, 30))
    assert sum(each.damaged for each in steps if each.damaged) >= 1


def test_record_being_written_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = MemoryFileSystem()
    store = open_store(files, config=CONFIG)
    for _ in range(3):
        append(store, batch_of(record("A", 0, b"x" * 400)))
    data = log_file(files, 0).data
    written = data.copy()
    data[900:] = 0  # the second record in part, the third not yet

    def written_meanwhile(window: LogWindow, file: FoundFile, start: int) -> int:
        data[:] = written
        fresh = LogWindow.of_view(memoryview(data.tobytes()), window.base)
        return next_piece(fresh, file, start)

    monkeypatch.setattr(raw_scan, "next_piece", written_meanwhile)
    assert numbers(scan(files)) == [0, 1, 2]
    data[900:950] = written[900:950] = 7
    with pytest.raises(MessageDamaged):
        scan(files)
    store.close()


def test_record_longer_than_the_read_buffer_is_returned() -> None:
    files = MemoryFileSystem()
    store = open_store(files, config=replace(CONFIG, commit_log_file_bytes=1 << 20))
    append(store, batch_of(record("A", 0, bytes(300_000))))
    append(store, batch_of(record("A", 0)))
    flush(store)
    store.close()
    assert numbers(scan(files, replace(WANTED, batch_bytes_max=1000))) == [0, 1]


def test_record_being_written_at_the_end_is_not_damage() -> None:
    files = filled(3, closes=False)
    node = log_file(files, 0)
    end = len(bytes(node.data).rstrip(b"\0"))
    node.data[end - 30 : end] = 0
    assert numbers(scan(files)) == [0, 1]


def test_torn_end_of_a_closed_store_is_damage() -> None:
    files = filled(3)
    node = log_file(files, 0)
    end = len(bytes(node.data).rstrip(b"\0"))
    node.data[end - 30 : end] = 0
    with pytest.raises(MessageDamaged):
        scan(files)


def test_store_without_records_has_no_files_to_read() -> None:
    files = MemoryFileSystem()
    open_store(files).close()
    assert scan(files) == []
