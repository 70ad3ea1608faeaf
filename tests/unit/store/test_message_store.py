"""The store as the broker sees it."""

import errno
import logging
import random
import re
from dataclasses import asdict
from pathlib import Path

import pytest

from ternmq_model.errors import (
    BrokerBusy,
    ClosedError,
    IllegalName,
    MessageRefused,
    StoreError,
    StoreFailed,
    StoreFull,
    StoreLocked,
)
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.properties import tag_code
from ternmq_model.record.format import BLANK_BYTES, FLAG_PREPARED, FLAG_ROLLBACK
from ternmq_store.config import FlushMode, StoreConfig
from ternmq_store.disk.filesystem import RealFileSystem
from ternmq_store.disk.layout import checkpoint_path, reserve_path
from ternmq_store.dispatch import log_dispatcher
from ternmq_store.index.index_allocation import IndexTask
from ternmq_store.log.checkpoint import decode_checkpoint
from ternmq_store.log.file_allocation import AllocateTask
from ternmq_store.queues.read_request import ReadStatus
from ternmq_testing.memory.memory_files import MemoryFileSystem, PowerLossFileSystem
from tests.support.records import batch_of, record
from tests.support.stores import (
    ROOT,
    SMALL,
    HandClock,
    append,
    checkpoint,
    drain,
    flush,
    open_store,
    prepare,
    queue_files,
    settle,
    units_in,
    whole,
)


def test_log_names_each_finding_of_an_opening(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        report = open_store(MemoryFileSystem()).report
    (line,) = [one for one in caplog.records if "store opened" in one.getMessage()]
    assert isinstance(line.args, tuple)
    told = dict(zip(re.findall(r"(\w+)=%", line.msg), line.args, strict=True))
    assert told == {"folder": ROOT, **asdict(report)} | {"findings": 0}


def test_dispatched_records_are_read_back_whole() -> None:
    store = open_store(MemoryFileSystem())
    places = append(store, batch_of(record("A", 0, b"first"), record("A", 1), record("A", 0)))
    settle(store)
    assert places.queue_offsets.tolist() == [0, 0, 1]
    found = drain(store, "A", 0)
    assert [offset for offset, _ in found] == [0, 1]
    first = whole(found[0][1])
    assert first.body == b"first"
    assert first.header.physical_offset == 0
    assert first.header.stored_at_ms == places.stored_at_ms
    assert store.reads.last_stored_at_ms("A", 1) == places.stored_at_ms


def test_records_are_unreadable_before_a_synchronous_flush() -> None:
    store = open_store(MemoryFileSystem())
    places = append(store, batch_of(record("A")))
    assert not store.dispatch().arrivals
    assert store.confirm_offset == 0 < places.end == store.max_physical
    assert store.record_at(PhysicalOffset(0)) is None
    assert flush(store)
    assert store.confirm_offset == store.flushed_offset == places.end
    arrival = store.dispatch().arrivals[0]
    assert (arrival.topic, arrival.queue_id, arrival.max_offset) == ("A", 0, 1)
    assert store.record_at(PhysicalOffset(0)) is not None
    assert store.record_at(PhysicalOffset(1)) is None


def test_records_are_readable_at_once_under_asynchronous_flush() -> None:
    store = open_store(MemoryFileSystem(), flush_mode=FlushMode.ASYNC)
    places = append(store, batch_of(record("A")))
    assert store.confirm_offset == places.end
    assert store.flushed_offset == 0
    store.dispatch()
    assert len(drain(store, "A", 0)) == 1


def test_records_appended_during_a_sync_wait_for_the_next() -> None:
    store = open_store(MemoryFileSystem())
    first = append(store, batch_of(record("A")))
    task = store.flush_due(0)
    assert task is not None
    append(store, batch_of(record("A")))
    assert store.flush_due(0) is None
    task.run()
    store.flush_done(task)
    assert store.confirm_offset == first.end
    assert flush(store)
    assert store.confirm_offset == store.max_physical


def test_batch_is_split_between_files_and_the_rest_is_blank() -> None:
    files = MemoryFileSystem()
    store = open_store(files)
    batch = batch_of(*(record("A", 0, b"x" * 900) for _ in range(20)))
    size = int(batch.sizes[0])
    places = append(store, batch)
    per_file = (SMALL.commit_log_file_bytes - BLANK_BYTES) // size
    starts = places.physical_offsets.tolist()
    assert starts[per_file] == SMALL.commit_log_file_bytes
    settle(store)
    assert [offset for offset, _ in drain(store, "A", 0)] == list(range(20))
    store.close()
    again = open_store(files)
    assert again.report.was_clean
    assert again.report.end == places.end
    assert len(drain(again, "A", 0)) == 20


def test_batch_longer_than_several_files_spans_them() -> None:
    store = open_store(MemoryFileSystem())
    append(store, batch_of(*(record("A", 0, b"x" * 3000) for _ in range(30))))
    settle(store)
    assert len(drain(store, "A", 0)) == 30


def test_record_longer_than_a_file_is_refused_and_nothing_is_stored() -> None:
    store = open_store(MemoryFileSystem())
    with pytest.raises(MessageRefused):
        append(store, batch_of(record("A"), record("A", 0, b"x" * 8192)))
    assert store.max_physical == 0
    assert store.next_offset("A", 0) == 0


def test_prepared_and_rolled_back_records_are_no_messages_of_their_queue() -> None:
    files = MemoryFileSystem()
    store = open_store(files)
    batch = batch_of(record("A"), record("A"), record("A"), record("A"))
    batch.headers["sys_flag"][1] = FLAG_PREPARED
    batch.headers["sys_flag"][2] = FLAG_ROLLBACK
    places = append(store, batch)
    assert places.queue_offsets.tolist() == [0, 0, 0, 1]
    settle(store)
    by_hint = queue_files(files)
    assert [offset for offset, _ in drain(store, "A", 0)] == [0, 1]
    store.close()
    for path in [path for path in files.nodes if "consumequeue" in path.parts]:
        files.remove(path)
    open_store(files)
    assert queue_files(files) == by_hint


def test_store_time_never_goes_back() -> None:
    clock = HandClock(5_000)
    files = MemoryFileSystem()
    store = open_store(files, clock=clock)
    append(store, batch_of(record("A")))
    clock.now_ms = 1_000
    assert append(store, batch_of(record("A"))).stored_at_ms == 5_000
    store.close()
    again = open_store(files, clock=clock)
    assert append(again, batch_of(record("A"))).stored_at_ms == 5_000


def test_next_file_is_preallocated_and_used() -> None:
    files = MemoryFileSystem()
    store = open_store(files)
    assert prepare(store)  # of the index, the first one
    assert not prepare(store)
    append(store, batch_of(record("A", 0, b"x" * 3000)))
    task = store.file_due()
    assert task is not None
    assert store.file_due() is None
    with pytest.raises(BrokerBusy):
        append(store, batch_of(*(record("A", 0, b"x" * 3000) for _ in range(2))))
    assert store.next_offset("A", 0) == 1
    task.run()
    store.file_ready(task)
    append(store, batch_of(*(record("A", 0, b"x" * 3000) for _ in range(2))))
    settle(store)
    assert len(drain(store, "A", 0)) == 3


def test_unneeded_next_file_is_removed_by_a_clean_stop() -> None:
    files = MemoryFileSystem()
    store = open_store(files)
    append(store, batch_of(record("A", 0, b"x" * 3000)))
    assert prepare(store)
    store.close()
    assert files.files(ROOT / "commitlog") == ["0" * 20]


def test_uncreatable_index_file_does_not_block_log_files() -> None:
    store = open_store(MemoryFileSystem())
    task = store.file_due()
    assert isinstance(task, IndexTask)
    append(store, batch_of(record("A", 0, b"x" * 3000, {"n": "no key"})))
    store.file_ready(task, OSError(errno.ENOSPC, "full"))
    task = store.file_due()
    assert isinstance(task, AllocateTask)
    store.file_ready(task, OSError(errno.ENOSPC, "full"))
    task = store.file_due()
    assert isinstance(task, IndexTask)
    store.file_ready(task, OSError(errno.EIO, "gone"))
    assert store.failure is not None


def test_full_disk_refuses_a_whole_batch_and_reads_go_on() -> None:
    files = MemoryFileSystem()
    store = open_store(files)
    append(store, batch_of(record("A")))
    settle(store)
    files.space_bytes = 0
    with pytest.raises(StoreFull):
        append(store, batch_of(*(record("A", 0, b"x" * 3000) for _ in range(3))))
    with pytest.raises(StoreFull, match="consume queue"):
        append(store, batch_of(record("B")))
    assert store.next_offset("A", 0) == 1
    assert len(drain(store, "A", 0)) == 1
    files.space_bytes = None
    append(store, batch_of(record("B")))
    assert store.failure is None


@pytest.mark.parametrize("is_clean", [True, False])
def test_store_opens_on_a_full_disk_and_grows_when_there_is_space(
    is_clean: bool,
) -> None:
    files = MemoryFileSystem()
    files.space_bytes = 8 << 20
    store = open_store(files)
    append(store, batch_of(*(record("A") for _ in range(3))))
    settle(store)
    checkpoint(store)
    if is_clean:
        store.close()
    for _ in range(3):
        files.locks.clear()
        files.space_bytes = 0
        store = open_store(files)
        assert len(drain(store, "A", 0)) == 3
        files.space_bytes = 0
        with pytest.raises(StoreFull):
            append(store, batch_of(record("B")))
        if is_clean:
            store.close()
            assert store.failure is None
    files.locks.clear()
    files.space_bytes = None
    store = open_store(files)
    assert store.report.was_clean is is_clean
    append(store, batch_of(record("B")))
    settle(store)
    assert len(drain(store, "B", 0)) == 1


def test_disk_reserve_never_holds_up_a_start() -> None:
    files = MemoryFileSystem()
    open_store(files).close()
    assert files.nodes[reserve_path(ROOT)].real_bytes == 256 << 10
    files.remove(reserve_path(ROOT))
    files.space_bytes = 80 << 10
    open_store(files).close()
    assert files.nodes[reserve_path(ROOT)].real_bytes == 64 << 10


def test_first_failed_sync_makes_the_store_read_only() -> None:
    files = MemoryFileSystem()
    store = open_store(files)
    append(store, batch_of(record("A")))
    settle(store)
    append(store, batch_of(record("A")))
    task = store.flush_due(0)
    assert task is not None
    store.flush_done(task, OSError(errno.EIO, "the disk is broken"))
    with pytest.raises(StoreFailed, match="broken"):
        append(store, batch_of(record("A")))
    assert store.flush_due(1 << 60) is None
    assert store.confirm_offset < store.max_physical
    assert len(drain(store, "A", 0)) == 1
    store.close()
    assert not open_store(files).report.was_clean


def test_read_statuses_equal_rocketmqs() -> None:
    store = open_store(MemoryFileSystem())
    assert store.read("A", 0, QueueOffset(0)).status is ReadStatus.NO_MATCHED_LOGIC_QUEUE
    append(store, batch_of(record("A"), record("A")))
    assert store.read("A", 0, QueueOffset(0)).status is ReadStatus.NO_MESSAGE_IN_QUEUE
    settle(store)
    one = store.read("A", 0, QueueOffset(2))
    assert (one.status, one.next_offset) == (ReadStatus.OFFSET_OVERFLOW_ONE, 2)
    badly = store.read("A", 0, QueueOffset(9))
    assert (badly.status, badly.next_offset) == (ReadStatus.OFFSET_OVERFLOW_BADLY, 2)
    small = store.read("A", 0, QueueOffset(-1))
    assert (small.status, small.next_offset) == (ReadStatus.OFFSET_TOO_SMALL, 0)
    other = store.reads.read("A", 0, QueueOffset(0), tag_codes=frozenset({1}))
    assert (other.status, other.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 2)


def test_read_keeps_its_limits_and_always_takes_the_first_message() -> None:
    config = StoreConfig(
        commit_log_file_bytes=1 << 20,
        consume_queue_file_units=100,
        index_slots=20,
        index_entries=40,
    )
    store = open_store(MemoryFileSystem(), config=config)
    append(store, batch_of(*(record("A", 0, b"x" * 1000) for _ in range(10))))
    settle(store)
    assert len(store.reads.read("A", 0, QueueOffset(0), bytes_max=1).record_sizes) == 1
    assert len(store.reads.read("A", 0, QueueOffset(0), bytes_max=2500).record_sizes) == 2
    result = store.read("A", 0, QueueOffset(7), messages_max=2)
    assert (len(result.record_sizes), result.next_offset) == (2, 9)


def test_filter_returns_its_tags_and_the_next_offset() -> None:
    config = StoreConfig(
        commit_log_file_bytes=1 << 20,
        consume_queue_file_units=2000,
        index_slots=20,
        index_entries=40,
    )
    store = open_store(MemoryFileSystem(), config=config)
    tags = ["x" if row % 3 == 0 else "y" for row in range(1000)]
    append(store, batch_of(*(record("A", 0, b"", {"TAGS": tag}) for tag in tags)))
    settle(store)
    wanted = frozenset({tag_code("x")})
    result = store.reads.read("A", 0, QueueOffset(1), tag_codes=wanted)
    assert (len(result.record_sizes), result.next_offset) == (32, 99)
    far = store.reads.read(
        "A", 0, QueueOffset(0), messages_max=800, bytes_max=1 << 20, tag_codes=wanted
    )
    assert (far.scanned, far.next_offset, len(far.record_sizes)) == (800, 800, 267)
    further = store.reads.read(
        "A", 0, QueueOffset(0), messages_max=900, bytes_max=1 << 20, tag_codes=wanted
    )
    assert (further.scanned, len(further.record_sizes)) == (900, 300)
    many = frozenset({tag_code("x"), *range(10)})
    again = store.reads.read(
        "A", 0, QueueOffset(0), messages_max=800, bytes_max=1 << 20, tag_codes=many
    )
    assert again.records == far.records


def test_deleted_topic_starts_over_and_does_not_return_with_a_crash() -> None:
    files = PowerLossFileSystem()
    store = open_store(files)
    append(store, batch_of(record("A", 0, b"old"), record("B")))
    settle(store)
    append(store, batch_of(record("A", 0, b"old, not dispatched yet")))
    checkpoint(store)
    store.delete_topic("A")
    assert store.read("A", 0, QueueOffset(0)).status is ReadStatus.NO_MATCHED_LOGIC_QUEUE
    append(store, batch_of(record("A", 0, b"new")))
    settle(store)
    assert [whole(data).body for _, data in drain(store, "A", 0)] == [b"new"]
    again = open_store(files.lose_power(random.Random(0)))
    assert again.queues() == [("A", 0), ("B", 0)]
    assert [whole(data).body for _, data in drain(again, "A", 0)] == [b"new"]
    with pytest.raises(IllegalName):
        again.delete_topic("../B")


def test_second_store_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    files = RealFileSystem()
    store = open_store(files, root=tmp_path)
    with pytest.raises(StoreLocked, match=r"process \d+"):
        open_store(files, root=tmp_path)
    store.close()
    open_store(files, root=tmp_path).close()


def test_real_directory_is_stored_to_and_read_back_after_a_kill(tmp_path: Path) -> None:
    files = RealFileSystem()
    store = open_store(files, root=tmp_path)
    for _ in range(10):
        append(store, batch_of(*(record("A", row % 2, b"x" * 700) for row in range(7))))
        prepare(store)
        settle(store)
    checkpoint(store)
    store._lock.release()  # type: ignore[union-attr]  # what the end of a process does
    again = open_store(files, root=tmp_path)
    assert not again.report.was_clean
    assert len(drain(again, "A", 0)) + len(drain(again, "A", 1)) == 70
    again.close()
    again.close()
    with pytest.raises(ClosedError):
        append(again, batch_of(record("A")))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "checkpoint",
        "commitlog",
        "consumequeue",
        "index",
        "lock",
        "ternmq.reserve",
        "ternmq.store",
        "ternmq.store.bak",
    ]
    data = (tmp_path / "consumequeue/A/0" / ("0" * 20)).read_bytes()
    assert len(data) == SMALL.consume_queue_file_bytes
    assert units_in(data)[0] == (0, whole(drain_one(files, tmp_path)).header.total_bytes, 0)


def drain_one(files: RealFileSystem, root: Path) -> bytes:
    store = open_store(files, root=root)
    try:
        return drain(store, "A", 0)[0][1]
    finally:
        store.close()


def test_foreign_files_are_refused_by_name(tmp_path: Path) -> None:
    files = RealFileSystem()
    folder = tmp_path / "commitlog"
    folder.mkdir()
    (folder / f"{0:020d}").write_bytes(bytes(8192))
    (folder / f"{16384:020d}").write_bytes(bytes(8192))
    with pytest.raises(StoreError, match="00000000000000008192 is missing"):
        open_store(files, root=tmp_path)
    (folder / f"{16384:020d}").rename(folder / f"{8192:020d}")
    open_store(files, root=tmp_path).close()


def test_folder_with_an_illegal_name_is_left_alone(tmp_path: Path) -> None:
    stray = tmp_path / "consumequeue" / "no topic" / "0"
    stray.mkdir(parents=True)
    store = open_store(RealFileSystem(), root=tmp_path)
    assert store.queues() == []
    store.close()
    assert stray.is_dir()


def test_queue_differing_from_the_log_is_rebuilt() -> None:
    files = MemoryFileSystem()
    store = open_store(files)
    append(store, batch_of(*(record("A", row % 2) for row in range(8))))
    store.close()
    right = queue_files(files)
    path = ROOT / "consumequeue/A/0" / ("0" * 20)
    files.nodes[path].data[7 + 20 * 3] ^= 1
    again = open_store(files)
    assert again.report.queues_rebuilt
    assert queue_files(files) == right
    again.close()
    files.nodes[path].data = files.nodes[path].data[:50].copy()
    assert open_store(files).report.queues_rebuilt
    assert queue_files(files) == right


def test_missing_dispatch_request_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_dispatcher, "REQUESTED_RECORDS_MAX", 1)
    store = open_store(MemoryFileSystem())
    append(store, batch_of(record("A")))
    append(store, batch_of(record("A")))
    settle(store)
    assert len(drain(store, "A", 0)) == 2


def test_records_beyond_the_confirm_limit_are_not_served() -> None:
    store = open_store(MemoryFileSystem())
    ends = [append(store, batch_of(record())).end for _ in range(4)]
    store.confirm_limit = ends[1]
    settle(store)
    assert store.safe_offset == ends[3]
    assert store.confirm_offset == store.dispatched_offset == ends[1]
    assert [offset for offset, _ in drain(store, "flights", 0)] == [0, 1]
    store.confirm_limit = ends[0]
    assert store.confirm_offset == ends[1]
    store.confirm_limit = ends[2]
    settle(store)
    assert store.dispatched_offset == ends[2]
    store.confirm_limit = None
    settle(store)
    assert store.dispatched_offset == ends[3]


def test_checkpoint_tells_the_store_time_of_the_newest_record_on_disk() -> None:
    files, clock = MemoryFileSystem(), HandClock()
    store = open_store(files, clock=clock)
    for number, step_ms in enumerate((0, 86_400_000, -86_400_000)):
        clock.now_ms += step_ms
        append(store, batch_of(record("A")))
        settle(store)
        assert checkpoint(store, now_ms=(1 << 60) + abs(step_ms) * number)
        data = files.nodes[checkpoint_path(ROOT)].data.tobytes()
        assert decode_checkpoint(data).log_stored_at_ms == clock.now_ms
