"""The dispatcher by itself, over a log that somebody else wrote."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from ternmq_model.arrays import Ints
from ternmq_model.index_keys import KeyRows
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.record.scanner import Verify
from ternmq_store.config import FlushMode
from ternmq_store.dispatch.dispatch_request import SingleRequest
from ternmq_store.dispatch.log_dispatcher import LogDispatcher
from ternmq_store.log.checksum_ranges import VerifyRange
from ternmq_store.log.commit_log import CommitLog
from ternmq_store.queues.consume_queues import ConsumeQueues
from ternmq_store.queues.units import PADDING_SIZE, Unit
from ternmq_testing.memory.memory_files import MemoryFileSystem
from tests.support.records import batch_of, record
from tests.support.stores import ROOT, SMALL, append, open_store

ELSEWHERE = Path("/elsewhere")


def written(files: MemoryFileSystem, count: int) -> list[int]:
    """Write a log of `count` records; return where they lie, and the log's end."""
    store = open_store(files, flush_mode=FlushMode.ASYNC)
    places: list[int] = []
    for number in range(count):
        batch = batch_of(record("A", body=b"%d" % number))
        places.extend(append(store, batch).physical_offsets.tolist())
    end = store.max_physical
    store.close()
    return [*places, int(end)]


def following(files: MemoryFileSystem) -> tuple[LogDispatcher, ConsumeQueues]:
    """Return a dispatcher over the log, with queues that are empty."""
    log = CommitLog(files, ROOT, SMALL.commit_log_file_bytes)
    for base in range(0, 8 * SMALL.commit_log_file_bytes, SMALL.commit_log_file_bytes):
        if files.exists(log.files.folder / f"{base:020d}"):
            log.files.open_file(base)
    files.make_folder(ELSEWHERE)
    queues = ConsumeQueues(files, ELSEWHERE, 2000)
    return LogDispatcher(log, queues), queues


def test_scan_continues_behind_damage_and_keeps_its_numbers_free() -> None:
    files = MemoryFileSystem()
    places = written(files, 10)
    dispatcher, queues = following(files)
    dispatcher.quarantine.add(PhysicalOffset(places[3]), PhysicalOffset(places[5]), "for a test")
    done = dispatcher.step(PhysicalOffset(places[-1]), messages_max=1000)
    assert dispatcher.offset == places[-1]
    assert dispatcher.stopped_by is None
    assert [arrival.max_offset for arrival in done.arrivals] == [10]
    queue = queues.of("A", 0)
    sizes = [queue.unit(QueueOffset(number)).size for number in range(10)]
    assert [size == PADDING_SIZE for size in sizes] == [number in (3, 4) for number in range(10)]


def test_scan_waits_before_damage_that_ends_beyond_its_limit() -> None:
    files = MemoryFileSystem()
    places = written(files, 10)
    dispatcher, _ = following(files)
    dispatcher.quarantine.add(PhysicalOffset(places[3]), PhysicalOffset(places[5]), "for a test")
    dispatcher.step(PhysicalOffset(places[4]), messages_max=1000)
    assert dispatcher.offset == places[3]


def test_verification_of_a_record_depends_on_its_place() -> None:
    files = MemoryFileSystem()
    places = written(files, 10)
    dispatcher, _ = following(files)
    # The records carry no checksum: from the sixth on they should.
    border = PhysicalOffset(places[5])
    dispatcher.check_at = lambda offset: (
        VerifyRange(Verify.BODY, border) if offset < border else VerifyRange(Verify.WHOLE, None)
    )
    while dispatcher.stopped_by is None:
        dispatcher.scan(PhysicalOffset(places[-1]), {}, is_trusted=False)
    assert dispatcher.offset == border
    assert "checksum" in str(dispatcher.stopped_by)


def test_border_inside_a_record_does_not_stop_a_scan() -> None:
    files = MemoryFileSystem()
    places = written(files, 4)
    dispatcher, _ = following(files)
    border = PhysicalOffset(places[2] + 7)
    dispatcher.check_at = lambda offset: VerifyRange(
        Verify.BODY, border if offset < border else None
    )
    for _ in range(10):
        if dispatcher.offset < places[-1]:
            dispatcher.scan(PhysicalOffset(places[-1]), {}, is_trusted=False)
    assert dispatcher.offset == places[-1]


class FullIndex:
    """An index without space, until it is told otherwise."""

    def __init__(self) -> None:
        self.is_full = True
        self.got: list[int] = []

    def put(self, keys: KeyRows, offsets: Ints, stored_at_ms: Ints, end: PhysicalOffset) -> None:
        """Keep the offsets."""
        assert len(offsets) == len(stored_at_ms)
        if self.is_full:
            raise OSError("no space")
        self.got += offsets[np.unique(keys.rows)].tolist()

    def put_one(
        self, hashes: Sequence[int], offset: PhysicalOffset, stored_at_ms: int, end: PhysicalOffset
    ) -> None:
        """Keep the offset."""
        if self.is_full:
            raise OSError("no space")
        self.got.append(offset)


def test_step_without_disk_space_is_repeated_from_its_beginning() -> None:
    files = MemoryFileSystem()
    places = written(files, 10)
    dispatcher, queues = following(files)
    index = dispatcher.index = FullIndex()
    with pytest.raises(OSError, match="no space"):
        dispatcher.step(PhysicalOffset(places[-1]), messages_max=1000)
    assert dispatcher.offset == 0
    index.is_full = False
    dispatcher.step(PhysicalOffset(places[-1]), messages_max=1000)
    assert queues.of("A", 0).end == 10
    assert index.got == places[:-1]


@pytest.mark.parametrize("is_dropped", [False, True])
def test_single_record_of_a_deleted_topic_gets_no_unit(is_dropped: bool) -> None:
    files = MemoryFileSystem()
    start, end = map(PhysicalOffset, written(files, 1))
    dispatcher, queues = following(files)
    queue, unit = queues.of("A", 0), Unit(start, end - start, 0)
    request = SingleRequest(start, end, 1, queue, np.zeros(1, dtype=np.int64), unit, None, None)
    assert request.is_plain
    dispatcher.add(request)
    if is_dropped:
        dispatcher.dropped["A"] = end
    done = dispatcher.step(end, messages_max=1000)
    assert dispatcher.offset == end
    assert dispatcher.scanned == 0
    assert (queue.end, len(done.arrivals)) == ((0, 0) if is_dropped else (1, 1))
