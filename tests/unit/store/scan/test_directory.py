"""What a directory says of itself that a broker uses, used, or did not close."""

from dataclasses import replace
from typing import Final

import pytest

from ternmq_model.errors import MessageDamaged, StoreError
from ternmq_model.offsets import QueueOffset
from ternmq_store.scan.directory import StoreDirectory
from ternmq_store.scan.scan_spec import ScanRange, ScanSpec
from ternmq_testing.memory.memory_files import MemoryFileSystem
from tests.support.damage import copied
from tests.support.records import batch_of, record
from tests.support.stores import ROOT, SMALL, append, open_store, settle

pytest.importorskip("pyarrow")

from ternmq_store.scan.partition_scan import plan_directory, scan_partition

LOG: Final = ROOT / "commitlog"
SEALED: Final = replace(SMALL, record_checksum=True)


def copied_late(*, record_checksum: bool = True) -> MemoryFileSystem:
    """Return a copy of a directory in use: 14 messages of its log, and then 40 of its queue."""
    files = MemoryFileSystem()
    store = open_store(files, config=replace(SMALL, record_checksum=record_checksum))
    early = MemoryFileSystem()
    for number in range(40):
        if number == 14:
            early = copied(files)
        append(store, batch_of(record("A", 0, bytes(400))))
        settle(store)
    late = copied(files)
    store.close()
    for path in [path for path in late.nodes if path.parent == LOG]:
        if path in early.nodes:
            late.nodes[path] = early.nodes[path]
        else:
            late.remove(path)
    return late


def queue_end(files: MemoryFileSystem) -> int:
    """Return where queue 0 of topic A ends, having read what is before."""
    directory = StoreDirectory(files, ROOT)
    (queue,) = directory.queues()
    wanted = ScanSpec(columns=["queueOffset"])
    steps = [
        step
        for part in plan_directory(directory)
        for step in scan_partition(directory, part, wanted)
    ]
    assert sum(step.batch.num_rows for step in steps if step.batch is not None) == queue.end
    assert queue == ScanRange("A", 0, 0, queue.end)
    return queue.end


@pytest.mark.parametrize("record_checksum", [False, True])
def test_copy_ends_where_its_log_does(
    record_checksum: bool, caplog: pytest.LogCaptureFixture
) -> None:
    assert queue_end(copied_late(record_checksum=record_checksum)) == 14
    assert "consumequeue/A/0 from=14 to=39" in caplog.text


@pytest.mark.parametrize("lost_bytes", [1, 20, 450])
def test_last_record_of_an_unclosed_log_may_be_partial(lost_bytes: int) -> None:
    files = copied_late()
    directory = StoreDirectory(files, ROOT)
    last = QueueOffset(directory.queues()[0].end - 1)
    place, size, _ = directory.unit_files("A", 0, 0, 40).unit(last)
    end = place + size - directory.log_start
    files.open(LOG / f"{0:020d}").write(end - lost_bytes, bytes(lost_bytes))
    assert queue_end(files) == 13


def closed(*topics: str) -> MemoryFileSystem:
    """Return a closed store with a message of each topic."""
    files = MemoryFileSystem()
    store = open_store(files)
    for topic in topics:
        append(store, batch_of(record(topic, 0)))
    settle(store)
    store.close()
    return files


@pytest.mark.parametrize(("lost", "told"), [("consumequeue", "is missing"), ("commitlog", "no fi")])
def test_log_without_queues_and_queues_without_a_log_are_no_empty_store(
    lost: str, told: str
) -> None:
    files = closed("A")
    for path in [path for path in files.nodes if lost in path.parts]:
        files.remove(path)
    if lost == "consumequeue":
        files.made_folders -= {path for path in files.made_folders if lost in path.parts}
    directory = StoreDirectory(files, ROOT)
    with pytest.raises(StoreError, match=f"{lost} .*{told}"):
        directory.queues()


def test_log_file_that_was_removed_under_a_broker_is_no_damage() -> None:
    """A scan would pass over its messages; without a broker, a start notes them as lost."""
    files = MemoryFileSystem()
    store = open_store(files, config=SEALED)
    for _ in range(40):
        append(store, batch_of(record("A", 0, bytes(400))))
    settle(store)
    path = LOG / f"{8192:020d}"
    files.remove(path)
    with pytest.raises(StoreError, match=f"{path} was removed while a broker uses the store"):
        StoreDirectory(files, ROOT)
    files.locks.clear()
    assert StoreDirectory(files, ROOT).quarantine.ranges


def test_truncated_queue_file_is_detected_by_the_others() -> None:
    files = closed("A", "B", "C")
    path = ROOT / "consumequeue" / "B" / "0" / f"{0:020d}"
    files.open(path).resize(20)
    directory = StoreDirectory(files, ROOT)
    with pytest.raises(StoreError, match=f"{path} has 20 bytes, others have"):
        directory.queues()


def test_open_or_closed_directory_has_what_its_queues_say() -> None:
    files = MemoryFileSystem()
    store = open_store(files, config=SEALED)
    for _ in range(5):
        append(store, batch_of(record("A", 0, bytes(400))))
    settle(store)
    assert queue_end(files) == 5
    store.close()
    assert queue_end(files) == 5
    files.open(LOG / f"{0:020d}").write(1500, bytes(8192 - 1500))
    with pytest.raises(MessageDamaged, match="queue 0: message "):
        queue_end(files)
