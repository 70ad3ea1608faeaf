"""Reading a store by file of its log, what its queues reach."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ternmq_model.errors import MessageDamaged, RangeGone
from ternmq_store.scan.directory import StoreDirectory
from ternmq_store.scan.scan_spec import ScanSpec, ScanStep
from ternmq_testing.memory.memory_files import MemoryFile, MemoryFileSystem, Node
from tests.support.records import batch_of, record
from tests.support.stores import ROOT, SMALL, HandClock, append, flush, open_store, settle

pytest.importorskip("pyarrow")

from ternmq_store.scan import partition_scan
from ternmq_store.scan.partition_scan import plan_directory, scan_partition

CONFIG = replace(SMALL, record_checksum=True)
FIRST_MS = 1_700_000_000_000
WANTED = ScanSpec(columns=["topic", "queueOffset"])


def filled(*topics: str, count: int = 20) -> MemoryFileSystem:
    """Return a closed store with messages of several topics in turn, one a second."""
    files, clock = MemoryFileSystem(), HandClock(FIRST_MS)
    store = open_store(files, config=CONFIG, clock=clock)
    for _ in range(count):
        for topic in topics:
            append(store, batch_of(record(topic, 0, bytes(400))))
        clock.now_ms += 1000
    settle(store)
    store.close()
    return files


def scan(
    files: MemoryFileSystem, wanted: ScanSpec = WANTED, topics: Sequence[str] | None = None
) -> list[ScanStep]:
    """Scan every part."""
    directory = StoreDirectory(files, ROOT)
    parts = plan_directory(directory, topics=topics)
    return [step for part in parts for step in scan_partition(directory, part, wanted)]


def rows(scanned: Iterable[ScanStep]) -> list[tuple[str, int]]:
    """Return topics and queue offsets."""
    batches = [each.batch for each in scanned if each.batch is not None]
    return [(row["topic"], row["queueOffset"]) for batch in batches for row in batch.to_pylist()]


def test_system_topics_are_left_out_unless_named() -> None:
    files = filled("A", "%RETRY%g", "SCHEDULE_TOPIC_XXXX")
    assert rows(scan(files)) == [("A", number) for number in range(20)]
    assert rows(scan(files, topics=["%RETRY%g"])) == [("%RETRY%g", n) for n in range(20)]
    assert rows(scan(files, topics=["nobody"])) == []


def test_messages_without_a_queue_unit_are_left_out() -> None:
    files = MemoryFileSystem()
    store = open_store(files, config=CONFIG)
    for _ in range(3):
        append(store, batch_of(record("A", 0)))
    settle(store)
    append(store, batch_of(record("A", 0)))
    flush(store)
    assert rows(scan(files)) == [("A", 0), ("A", 1), ("A", 2)]
    store.close()


def test_messages_outside_the_wanted_store_times_are_left_out() -> None:
    files = filled("A", "B", count=40)
    wanted = replace(WANTED, stored_from_ms=FIRST_MS + 30_000, stored_before_ms=FIRST_MS + 32_000)
    assert rows(scan(files, wanted)) == [("A", 30), ("B", 30), ("A", 31), ("B", 31)]


def test_files_taken_by_retention_are_no_parts_and_later_ones_are_read() -> None:
    files = filled("A", "B", count=30)
    before = rows(scan(files))
    files.remove(min(path for path in files.nodes if path.parent.name == "commitlog"))
    left = rows(scan(files))
    assert left == before[-len(left) :]
    assert 0 < len(left) < len(before)


def test_file_deleted_after_the_plan_is_reported_with_a_queue() -> None:
    files = filled("A", count=30)
    directory = StoreDirectory(files, ROOT)
    part = plan_directory(directory)[0]
    files.remove(min(path for path in files.nodes if path.parent.name == "commitlog"))
    with pytest.raises(RangeGone, match="'A' queue 0"):
        list(scan_partition(directory, part, WANTED))


def test_damaged_message_is_named_by_its_queue_or_skipped() -> None:
    files = filled("A", "B", count=5)
    node = files.nodes[min(path for path in files.nodes if path.parent.name == "commitlog")]
    node.data[bytes(node.data).rindex(b"\x01B") - 40] ^= 1
    with pytest.raises(MessageDamaged, match="topic 'B' queue 0: message 4 "):
        scan(files)
    steps = scan(files, replace(WANTED, skips_damaged=True))
    assert steps[-1].damaged == 1
    assert len(rows(steps)) == 9


class CountedFile(MemoryFile):
    """A file that counts while it is open."""

    def __init__(self, files: "CountingFiles", path: Path) -> None:
        super().__init__(files, path, files.nodes[path], read_only=True)
        self._now_open = files.now_open
        self._now_open.add(id(self))

    def close(self) -> None:
        self._now_open.discard(id(self))


class CountingFiles(MemoryFileSystem):
    """Files of which only so many may be open."""

    def __init__(self, nodes: dict[Path, Node], made_folders: set[Path]) -> None:
        super().__init__()
        self.nodes, self.made_folders = nodes, made_folders
        self.now_open: set[int] = set()
        self.open_most = 0

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        super().open(path, create=create, read_only=read_only)
        file = CountedFile(self, path)
        self.open_most = max(self.open_most, len(self.now_open))
        return file


def test_open_files_are_bounded_however_many_queues_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topics = [f"T{number}" for number in range(30)]
    made = filled(*topics, count=3)
    files = CountingFiles(made.nodes, made.made_folders)
    assert len(rows(scan(files))) == 90
    assert files.open_most > 10
    monkeypatch.setattr(partition_scan, "_OPEN_MAX", 5)
    files.open_most = 0
    assert len(rows(scan(files))) == 90
    assert files.open_most < 10
    assert not files.now_open


def test_empty_store_has_no_parts() -> None:
    files = MemoryFileSystem()
    open_store(files).close()
    assert scan(files) == []
