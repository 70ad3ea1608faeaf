"""Files that retention leaves: young ones, with undelivered messages, after a set clock."""

import errno
import logging

import pytest

from ternmq_model.offsets import PhysicalOffset
from ternmq_store.config import StoreConfig
from ternmq_store.disk.layout import commit_log_folder
from ternmq_store.message_store import MessageStore
from ternmq_testing.memory.memory_files import MemoryFileSystem
from tests.support.records import batch_of, record
from tests.support.stores import ROOT, HandClock, append, checkpoint, open_store, settle

HOUR_MS = 3_600_000
CONFIG = StoreConfig(
    commit_log_file_bytes=8192, consume_queue_file_units=10, clean_delay_ms=0, delete_pause_ms=0
)


class Kept:
    """A store with five files, its disk and its clock."""

    def __init__(self) -> None:
        self.files = MemoryFileSystem()
        self.clock = HandClock()
        self.store: MessageStore = open_store(self.files, config=CONFIG, clock=self.clock)
        self.looks = 0
        self.put(35)

    def put(self, count: int) -> None:
        """Store messages of about 1,100 bytes, flushed and dispatched."""
        for _ in range(count):
            append(self.store, batch_of(record("A", 0, bytes(1000))))
        settle(self.store)
        self.looks += 1
        assert checkpoint(self.store, (1 << 60) + self.looks * 10_000)

    def step(self, by_ms: int) -> None:
        """Let the clock move."""
        self.clock.now_ms += by_ms
        self.store.session.clock_stepped(by_ms, self.store.max_physical)
        self.store.cleaner.request()  # the monotonic clock is the same one here

    def clean(self, used: float = 0.1) -> None:
        """Take a pass at a time when expired files go."""
        self.files.used = used
        task = self.store.cleaner.disk_use()
        task.run()
        self.store.cleaner.note_disk_use(task)
        for each in self.store.clean(self.clock.wall_ms(), hour=4):
            each.run()

    def names(self) -> list[int]:
        """Where the files of the log on the disk begin."""
        return [int(name) for name in self.files.files(commit_log_folder(ROOT))]


def test_file_with_undelivered_messages_stays_until_they_are_delivered() -> None:
    kept = Kept()
    files = kept.names()
    needed: PhysicalOffset | None = PhysicalOffset(files[2] + 5)
    kept.store.cleaner.holders += (lambda: None, lambda: needed)
    kept.clock.now_ms += 100 * HOUR_MS
    kept.clean()
    assert kept.names() == files[2:]
    assert kept.store.cleaner.held_end == files[3]
    needed = PhysicalOffset(files[3])
    kept.clean()
    assert kept.names() == files[3:]
    needed = None
    kept.clean()
    assert kept.names() == files[-1:]
    assert kept.store.cleaner.held_end == 0


def test_disk_at_85_percent_keeps_what_is_younger_than_four_hours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kept = Kept()
    files = kept.names()
    kept.clock.now_ms += 4 * HOUR_MS
    kept.put(14)
    with caplog.at_level(logging.INFO):
        kept.clean(0.86)
    # The next file has been begun by then.
    assert kept.names()[0] == files[-1]
    lines = [one for one in caplog.records if "file deleted" in one.getMessage()]
    assert [one.levelname for one in lines] == ["WARNING"] * 4
    assert lines[0].getMessage() == (
        "commit log file deleted file=00000000000000000000 bytes=8192 "
        "reason='disk use, before expiry' expired=no newest_message_age=4.0h"
    )


def test_disk_at_90_percent_loses_files_of_any_age() -> None:
    kept = Kept()
    files = kept.names()
    kept.clean(0.89)
    assert kept.names() == files
    kept.clean(0.9)
    assert kept.names() == files[-1:]


def test_undelivered_messages_are_deleted_only_by_a_full_disk() -> None:
    kept = Kept()
    files = kept.names()
    kept.store.cleaner.holders.append(lambda: PhysicalOffset(0))
    kept.clock.now_ms += 4 * HOUR_MS
    kept.clean(0.86)
    assert kept.names() == files
    assert kept.store.cleaner.held_end == files[1]
    kept.clean(0.95)
    assert len(kept.names()) < len(files)


def test_log_without_a_next_file_drops_held_files_only_when_its_own_is_full() -> None:
    kept = Kept()
    append(kept.store, batch_of(record("A", 0, bytes(3000))))
    files = kept.names()
    kept.store.cleaner.holders.append(lambda: PhysicalOffset(0))

    def fail_to_grow() -> None:
        for _ in range(2):
            task = kept.store.file_due()
            assert task is not None
            kept.store.file_ready(task, OSError(errno.ENOSPC, "87% full"))

    fail_to_grow()
    assert kept.store.cleaner.is_short
    kept.clean()
    assert kept.names() == files
    assert kept.store.cleaner.held_end == files[1]
    append(kept.store, batch_of(record("A", 0, bytes(4400))))
    fail_to_grow()
    kept.clean()
    assert kept.names() == files[1:]


def test_files_do_not_go_by_their_age_while_ages_do_not_count() -> None:
    kept = Kept()
    files = kept.names()
    kept.clock.now_ms += 100 * HOUR_MS
    for task in kept.store.clean(None, hour=4):
        task.run()
    assert kept.names() == files
    kept.clean()
    assert kept.names() == files[-1:]


def test_files_stored_by_a_clock_that_was_ahead_expire_with_those_behind_them() -> None:
    kept = Kept()
    kept.clock.now_ms += 1000 * HOUR_MS
    kept.put(120)
    kept.clock.now_ms -= 1000 * HOUR_MS
    kept.put(20)
    files = kept.names()
    kept.clock.now_ms += 71 * HOUR_MS
    kept.clean()
    assert kept.names() == files
    kept.clock.now_ms += HOUR_MS
    for _ in range(3):
        kept.clean()
    assert kept.names() == files[-1:]


def test_files_stored_by_a_clock_that_was_behind_are_as_young_as_their_neighbours() -> None:
    kept = Kept()
    kept.clock.now_ms -= 1000 * HOUR_MS
    kept.put(20)
    kept.clock.now_ms += 1000 * HOUR_MS
    kept.put(20)
    files = kept.names()
    kept.clean()
    assert kept.names() == files


@pytest.mark.parametrize("step_ms", [-1000 * HOUR_MS, 1000 * HOUR_MS])
def test_step_of_the_clock_makes_no_message_older_or_younger(step_ms: int) -> None:
    kept = Kept()
    files = kept.names()
    kept.step(step_ms)
    kept.put(14)
    kept.clock.now_ms += 71 * HOUR_MS
    kept.clean()
    assert kept.names()[: len(files)] == files
    kept.clock.now_ms += HOUR_MS
    kept.store.cleaner.request()
    kept.clean()
    assert kept.names()[0] == files[-1] + CONFIG.commit_log_file_bytes * 2


@pytest.mark.parametrize("step_ms", [-1000 * HOUR_MS, 1000 * HOUR_MS])
def test_retention_of_a_topic_follows_steps_of_the_clock(step_ms: int) -> None:
    kept = Kept()
    kept.store.cleaner.keep_topics({"A": 10 * HOUR_MS})
    kept.clean()
    kept.clock.now_ms += 5 * HOUR_MS
    kept.step(step_ms)
    kept.put(7)
    kept.clock.now_ms += 4 * HOUR_MS
    kept.clean()
    assert kept.store.queue_range("A", 0) == (0, 42)
    kept.clock.now_ms += HOUR_MS
    kept.clean()
    assert kept.store.queue_range("A", 0) == (35, 42)
