"""What retention does to a store: readers, files, and crashes in its middle."""

import errno
import logging
import random
from dataclasses import replace
from pathlib import Path

import pytest

from ternmq_model.errors import BrokerBusy, StoreFull
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_store.config import FlushMode, StoreConfig
from ternmq_store.disk.filesystem import RealFileSystem
from ternmq_store.disk.layout import commit_log_folder, index_folder, queue_folder
from ternmq_store.message_store import MessageStore
from ternmq_store.queues.read_request import ReadStatus
from ternmq_store.retention.clean_tasks import CleanTask, FileRemoval
from ternmq_store.retention.retention import DiskLevel
from ternmq_testing.memory.memory_files import MemoryFileSystem, PowerLossFileSystem, PowerLost
from tests.support.records import batch_of, record
from tests.support.stores import (
    ROOT,
    HandClock,
    append,
    checkpoint,
    drain,
    flush,
    open_store,
    prepare,
    settle,
)

HOUR_MS = 3_600_000
CONFIG = StoreConfig(
    commit_log_file_bytes=8192,
    consume_queue_file_units=10,
    clean_delay_ms=0,
    delete_pause_ms=0,
    index_slots=20,
    index_entries=40,
)


class Kept:
    """A store, its disk and its clock; one message of about 1,100 bytes at a time."""

    def __init__(self, files: MemoryFileSystem | None = None, config: StoreConfig = CONFIG) -> None:
        self.files = files or MemoryFileSystem()
        self.clock = HandClock()
        self.config = config
        self.store = self.opened()
        self.count = 0
        self.looks = 0

    def opened(self) -> MessageStore:
        """Open what is on the disk."""
        return open_store(self.files, config=self.config, clock=self.clock)

    def put(self, count: int, topic: str = "A", *, every_ms: int = 0) -> None:
        """Store messages, flushed and dispatched."""
        for _ in range(count):
            append(self.store, batch_of(record(topic, 0, b"%05d" % self.count + bytes(1000))))
            self.count += 1
            self.clock.now_ms += every_ms
        settle(self.store)
        self.checkpoint()

    def checkpoint(self) -> None:
        """Bring queues and checkpoint to the disk."""
        self.looks += 1
        assert checkpoint(self.store, (1 << 60) + self.looks * 10_000)

    def clean(self, hour: int = 4) -> list[CleanTask]:
        """Take a pass."""
        return clean(self.store, self.clock.wall_ms(), hour)

    def log_names(self) -> list[int]:
        """Where the files of the log on the disk begin."""
        return [int(name) for name in self.files.files(commit_log_folder(ROOT))]

    def queue_names(self, topic: str = "A") -> list[int]:
        """The same for a queue's files."""
        return [int(name) for name in self.files.files(queue_folder(ROOT, topic, 0))]

    def bodies(self, topic: str = "A") -> list[int]:
        """Which messages can be read."""
        return [numbered(data) for _, data in drain(self.store, topic, 0)]


def numbered(data: bytes) -> int:
    """Return which message a record of `Kept` is."""
    return int(data[88:93])


def clean(store: MessageStore, now_ms: int, hour: int = 4) -> list[CleanTask]:
    """Take a pass on the spot."""
    tasks: list[CleanTask] = []
    for task in store.clean(now_ms, hour=hour):
        task.run()
        tasks.append(task)
    return tasks


def note_used(store: MessageStore, share: float) -> None:
    """Let the store know how full the disk is."""
    task = store.cleaner.disk_use()
    task.used_share = share
    store.cleaner.note_disk_use(task)


def test_expired_files_are_deleted_with_their_messages() -> None:
    kept = Kept()
    kept.put(21, every_ms=HOUR_MS)
    assert kept.log_names() == [0, 8192, 16384]
    kept.clock.now_ms += 60 * HOUR_MS
    kept.clean()
    # The second file's newest message is 67 hours old.
    assert kept.log_names() == [8192, 16384]
    assert kept.store.min_physical == 8192
    assert kept.bodies() == list(range(7, 21))
    assert kept.store.queue_range("A", 0) == (7, 21)


def test_read_of_a_deleted_message_reports_the_queues_beginning() -> None:
    kept = Kept()
    kept.put(21)
    kept.clock.now_ms += 73 * HOUR_MS
    kept.clean()
    result = kept.store.read("A", 0, QueueOffset(0))
    assert result.status is ReadStatus.OFFSET_TOO_SMALL
    assert result.next_offset == 14


def test_read_steps_over_deleted_messages_before_queues_follow_the_log() -> None:
    kept = Kept()
    kept.put(21)
    kept.clock.now_ms += 73 * HOUR_MS
    passed = kept.store.clean(kept.clock.wall_ms(), hour=4)
    for task in passed:
        task.run()
        if kept.store.min_physical > 0:
            break
    result = kept.store.read("A", 0, QueueOffset(0), messages_max=4)
    assert result.status is ReadStatus.MESSAGE_WAS_REMOVING
    assert result.next_offset == 4


def test_newest_file_stays_however_old() -> None:
    kept = Kept()
    kept.put(14)
    kept.clock.now_ms += 10_000 * HOUR_MS
    kept.clean()
    assert kept.log_names() == [8192]


def test_file_of_the_newest_message_stays_beside_an_empty_next_one() -> None:
    kept = Kept()
    kept.put(5)
    prepare(kept.store)
    kept.put(2)
    assert kept.log_names() == [0, 8192]
    kept.clock.now_ms += 10_000 * HOUR_MS
    kept.clean()
    assert kept.log_names() == [0, 8192]
    assert kept.bodies() == list(range(7))


def test_deletion_outside_its_hour_needs_a_request() -> None:
    kept = Kept()
    kept.put(14)
    kept.clock.now_ms += 73 * HOUR_MS
    kept.clean(hour=5)
    assert kept.log_names() == [0, 8192]
    kept.store.cleaner.request()
    kept.clean(hour=5)
    assert kept.log_names() == [8192]


def test_request_holds_until_deletion_has_nothing_left_to_do() -> None:
    kept = Kept(config=replace(CONFIG, delete_files_max=2))
    kept.put(7 * 6)
    kept.clock.now_ms += 73 * HOUR_MS
    kept.store.cleaner.request()
    counts: list[int] = []
    for _ in range(4):
        kept.clean(hour=5)
        counts.append(len(kept.log_names()))
    assert counts == [4, 2, 1, 1]
    kept.put(7)
    kept.clock.now_ms += 73 * HOUR_MS
    kept.clean(hour=5)
    assert len(kept.log_names()) == 2


def test_store_deletes_nothing_in_its_first_minute() -> None:
    kept = Kept(config=replace(CONFIG, clean_delay_ms=60_000))
    kept.put(14)
    kept.clock.now_ms += 73 * HOUR_MS
    store = kept.store
    store.close()
    kept.store = kept.opened()
    kept.checkpoint()
    kept.clean()
    assert kept.log_names() == [0, 8192]
    kept.clock.now_ms += 60_000
    kept.clean()
    assert kept.log_names() == [8192]


def test_file_being_read_stays_until_released() -> None:
    kept = Kept()
    kept.put(21)
    kept.clock.now_ms += 73 * HOUR_MS
    held = kept.store._log.files.files[0]  # pyright: ignore[reportPrivateUsage]
    held.hold()
    kept.clean()
    assert kept.log_names() == [0, 8192, 16384]
    assert kept.bodies() == list(range(21))
    held.release()
    kept.clean()
    assert kept.log_names() == [16384]


def test_undispatched_files_stay() -> None:
    kept = Kept()
    kept.put(8)
    for number in range(13):
        append(kept.store, batch_of(record("A", 0, b"%05d" % (number + 8) + bytes(1000))))
    flush(kept.store)
    kept.clock.now_ms += 73 * HOUR_MS
    kept.clean()
    assert kept.log_names() == [8192, 16384]


def test_queue_files_follow_except_the_one_holding_its_end() -> None:
    kept = Kept()
    kept.put(25, "A")
    kept.put(70, "B")
    assert kept.queue_names("A") == [0, 200, 400]
    kept.clock.now_ms += 73 * HOUR_MS
    kept.clean()
    kept.clean()
    assert kept.store.queue_range("A", 0) == (25, 25)
    assert kept.queue_names("A") == [400]
    kept.store.close()
    kept.store = kept.opened()
    assert kept.store.queue_range("A", 0) == (25, 25)
    kept.put(1, "A")
    assert kept.bodies("A") == [95]
    assert kept.store.queue_range("A", 0) == (25, 26)


def test_index_files_follow_except_the_newest() -> None:
    kept = Kept()
    kept.put(100, every_ms=1)
    before = kept.files.files(index_folder(ROOT))
    assert len(before) == 3
    kept.clock.now_ms += 73 * HOUR_MS
    kept.clean()
    kept.clean()
    assert kept.files.files(index_folder(ROOT)) == before[2:]
    assert kept.bodies() == [98, 99]


def test_disk_at_75_percent_deletes_expired_files_at_any_hour() -> None:
    kept = Kept()
    kept.put(14)
    note_used(kept.store, 0.76)
    kept.clean(hour=12)
    assert kept.log_names() == [0, 8192]
    kept.clock.now_ms += 73 * HOUR_MS
    kept.clean(hour=12)
    assert kept.log_names() == [8192]


def test_disk_at_85_percent_loses_only_as_many_old_files_as_needed() -> None:
    kept = Kept()
    kept.put(35)
    kept.clock.now_ms += 4 * HOUR_MS
    kept.files.used = 0.86
    note_used(kept.store, 0.86)
    for task in kept.store.clean(kept.clock.wall_ms(), hour=12):
        task.run()
        if isinstance(task, FileRemoval):
            kept.files.used -= 0.01
    assert kept.log_names() == [16384, 24576, 32768]
    assert kept.store.cleaner.level is DiskLevel.CLEAN


def test_log_that_cannot_grow_loses_one_file_per_attempt() -> None:
    kept = Kept()
    kept.put(35)
    prepare(kept.store)
    note_used(kept.store, 0.84)
    append(kept.store, batch_of(record("A", 0, bytes(3000))))
    for files in (5, 4):
        task = kept.store.file_due()
        assert task is not None
        kept.store.file_ready(task, OSError(errno.ENOSPC, "87% full"))
        was_short = kept.store.cleaner.is_short
        kept.clean(hour=12)
        kept.clean(hour=12)
        assert (was_short, kept.store.cleaner.is_short) == (True, False)
        assert len(kept.log_names()) == files


def test_full_disk_deletes_nothing_when_forced_cleaning_is_off() -> None:
    config = replace(CONFIG, clean_forcibly=False)
    kept = Kept(config=config)
    kept.put(35)
    note_used(kept.store, 0.95)
    kept.clean(hour=12)
    assert len(kept.log_names()) == 5


def test_disk_at_90_percent_refuses_messages_until_it_is_emptier(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kept = Kept()
    kept.put(3)
    with caplog.at_level(logging.INFO):
        note_used(kept.store, 0.9)
        note_used(kept.store, 0.91)
    with pytest.raises(StoreFull, match="91% full"):
        append(kept.store, batch_of(record("A")))
    assert kept.store.failure is None
    assert kept.bodies() == [0, 1, 2]
    with caplog.at_level(logging.INFO):
        note_used(kept.store, 0.89)
        note_used(kept.store, 0.2)
    kept.put(1)
    lines = [one.getMessage() for one in caplog.records if "disk use" in one.getMessage()]
    assert [line.split(" used")[0] for line in lines] == [
        "disk use=FULL before=NORMAL",
        "disk use=FORCE before=FULL",
        "disk use=NORMAL before=FORCE",
    ]


def test_undeletable_file_is_retried_before_any_other() -> None:
    class Stubborn(MemoryFileSystem):
        error: OSError | None = OSError(errno.EIO, "no")

        def remove(self, path: Path) -> None:
            if self.error is not None and path.parent.name == "commitlog":
                raise self.error
            super().remove(path)

    files = Stubborn()
    kept = Kept(files)
    kept.put(28)
    kept.clock.now_ms += 73 * HOUR_MS
    kept.clean()
    assert len(kept.log_names()) == 4
    assert kept.bodies() == list(range(21, 28))
    assert kept.store.failure is None
    files.error = None
    kept.clean()
    assert kept.log_names() == [24576]


def test_abandoned_pass_is_finished_by_the_next_one() -> None:
    kept = Kept()
    kept.put(28)
    kept.clock.now_ms += 73 * HOUR_MS
    passed = kept.store.clean(kept.clock.wall_ms(), hour=4)
    for task in passed:
        if isinstance(task, FileRemoval):
            break
        task.run()
    passed.close()
    kept.clean()
    assert kept.log_names() == [24576]
    assert kept.bodies() == list(range(21, 28))


@pytest.mark.parametrize("is_killed", [True, False])
def test_crash_at_any_moment_of_a_pass_leaves_an_intact_store(*, is_killed: bool) -> None:
    moments = 0
    for moment in range(200):
        files = PowerLossFileSystem()
        kept = Kept(files)
        kept.put(25, "A")
        kept.put(17, "B")
        kept.clock.now_ms += 73 * HOUR_MS
        files.happenings_left = moment
        try:
            kept.clean()
        except PowerLost:
            moments += 1
        else:
            break
        kept.files = files.restart() if is_killed else files.lose_power(random.Random(moment))
        kept.store = kept.opened()
        start = kept.store.min_physical
        assert start % 8192 == 0
        first = start // 8192 * 7
        assert kept.bodies("A") == list(range(first, 25))
        assert kept.bodies("B") == list(range(max(first, 25), 42))
        assert kept.store.queue_range("A", 0)[1] == 25
        assert kept.store.queue_range("B", 0)[1] == 17
        kept.put(1, "A")
        assert kept.bodies("A")[-1] == 42
    assert moments > 5


def test_topic_with_a_shorter_retention_begins_at_its_unexpired_messages() -> None:
    kept = Kept()
    for _ in range(30):
        kept.put(1, "A")
        kept.put(1, "B", every_ms=HOUR_MS)
    kept.store.cleaner.keep_topics({"A": 10 * HOUR_MS})
    kept.clean(hour=12)
    # The newest was stored an hour ago, the tenth oldest ten hours ago: that one has expired.
    assert kept.store.queue_range("A", 0) == (21, 30)
    assert kept.store.queue_range("B", 0) == (0, 30)
    kept.clock.now_ms += 5 * HOUR_MS
    kept.clean(hour=12)
    assert kept.store.queue_range("A", 0) == (26, 30)
    kept.clock.now_ms += 50 * HOUR_MS
    kept.clean(hour=12)
    assert kept.store.queue_range("A", 0) == (30, 30)
    assert kept.store.read("A", 0, QueueOffset(3)).next_offset == 30


def test_topic_with_a_longer_retention_keeps_the_log_files() -> None:
    kept = Kept()
    kept.put(14)
    kept.store.cleaner.keep_topics({"A": 100 * HOUR_MS})
    kept.clock.now_ms += 99 * HOUR_MS
    kept.clean()
    assert kept.log_names() == [0, 8192]
    kept.clock.now_ms += HOUR_MS
    kept.clean()
    assert kept.log_names() == [8192]


def test_topic_deleted_in_the_middle_of_a_pass_is_left_alone() -> None:
    kept = Kept()
    kept.put(20, "A", every_ms=HOUR_MS)
    kept.put(20, "B", every_ms=HOUR_MS)
    kept.store.cleaner.keep_topics({"A": HOUR_MS, "B": HOUR_MS})
    for index, task in enumerate(kept.store.clean(kept.clock.wall_ms(), hour=12)):
        task.run()
        if index == 1:
            kept.store.delete_topic("A")
    assert kept.store.queues() == [("B", 0)]
    assert kept.store.queue_range("B", 0) == (20, 20)


def test_topic_may_be_recreated_while_its_files_are_being_deleted() -> None:
    kept = Kept()
    kept.put(25, "A")
    kept.put(70, "B")
    kept.clock.now_ms += 73 * HOUR_MS
    passed = kept.store.clean(kept.clock.wall_ms(), hour=4)
    for task in passed:
        if isinstance(task, FileRemoval) and "consumequeue" in str(task.leaving[0].path):
            break
        task.run()
    assert kept.queue_names("A") == [0, 200, 400]
    with pytest.raises(BrokerBusy, match="'A'"):
        kept.store.delete_topic("A")
    passed.close()
    kept.store.delete_topic("A")
    assert kept.queue_names("A") == []
    kept.put(3, "A")
    kept.clean()
    assert kept.queue_names("A") == [0]
    assert len(kept.bodies("A")) == 3
    assert kept.store.failure is None


def test_real_files_and_their_maps_are_deleted(tmp_path: Path) -> None:
    files = RealFileSystem()
    clock = HandClock()
    store = MessageStore.open(tmp_path, CONFIG, FlushMode.ASYNC, files, clock)
    for number in range(21):
        append(store, batch_of(record("A", 0, b"%05d" % number + bytes(1000))))
    flush(store)
    settle(store)
    checkpoint(store)
    maps = files._budget.count  # pyright: ignore[reportPrivateUsage]
    clock.now_ms += 73 * HOUR_MS
    clean(store, clock.wall_ms())
    names = sorted(path.name for path in (tmp_path / "commitlog").iterdir())
    assert names == ["00000000000000016384"]
    # Two of the log, and of the queue's three the first: its ten messages are gone.
    assert files._budget.count == maps - 3  # pyright: ignore[reportPrivateUsage]
    assert [numbered(data) for _, data in drain(store, "A", 0)] == list(range(14, 21))
    assert store.min_physical == PhysicalOffset(16384)
    store.close()
