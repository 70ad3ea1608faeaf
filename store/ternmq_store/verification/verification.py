"""Slow verification of the whole log, and of the units and index entries of its records.

Damaged units and entries are repaired in place from the log. The verification has pieces, each with
two tasks for another thread: one for the log, one for units and entries.
"""

import logging
from collections import deque
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from ternmq_model.arrays import Ints
from ternmq_model.clock import Clock
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.batch import RecordBatch
from ternmq_store.disk.mapped_file import MappedFile
from ternmq_store.index.index_file import IndexInfo
from ternmq_store.log.quarantine import DamagedRange
from ternmq_store.opened_files import OpenedFiles
from ternmq_store.queues.consume_queue import ConsumeQueue
from ternmq_store.queues.units import UnitRepair
from ternmq_store.read.log_source import LogSource
from ternmq_store.read.store_reads import StoreReads
from ternmq_store.read.unit_search import QueueSource, UnitSearch, counted
from ternmq_store.verification.index_check import IndexCheck, IndexWalk, OpenKeys

logger = logging.getLogger(__name__)

PIECE_BYTES: Final = 256 << 10
"""Bytes of the log in a piece: 1 to 3 ms of a thread."""

ROUND_PAUSE_MS: Final = 24 * 3_600_000
"""Time from the end of a round to the begin of the next, ms."""


@dataclass(slots=True, kw_only=True)
class VerifiedChunk:
    """Chunk of one file of the log. Made and finished by `Verification`."""

    source: LogSource
    start: PhysicalOffset
    until: PhysicalOffset
    """End of the readable range in the same file, at the end of a record."""

    bytes_max: int
    held: Sequence[MappedFile] = ()
    """Files that are held until the chunk is finished. The task does not use them."""

    end: PhysicalOffset = field(default=PhysicalOffset(0), init=False)
    """Begin of the next chunk."""

    batch: RecordBatch | None = None
    """Valid records of the chunk."""

    bad: DamagedRange | None = None
    """Damage of the chunk, which ends behind it; None = none."""

    @property
    def checked_bytes(self) -> int:
        """Bytes of the log that were checked."""
        is_checked = self.batch is not None or self.bad is not None
        return self.end - self.start if is_checked else 0

    def run(self) -> None:
        """Read and check the records.

        Raises:
            OSError: The disk failed.
        """
        source = self.source
        step = source.step(
            self.start,
            self.until,
            verify=source.verify(self.start),
            bytes_max=self.bytes_max,
        )
        self.batch, self.end = step.batch, step.end
        if step.damage:
            self.bad = DamagedRange(self.start, self.end, step.damage)


class QueueCheck(NamedTuple):
    """Records of one queue."""

    queue: ConsumeQueue
    """Queue of the records. The task does not use it."""

    units: QueueSource
    rows: Ints
    """Rows of the batch."""


@dataclass(slots=True, kw_only=True)
class UnitsCheck:
    """Comparison of the units of some records. Made and finished by `Verification`."""

    source: LogSource
    batch: RecordBatch
    queues: Sequence[QueueCheck]
    index: IndexCheck | None
    """Comparison of the index with these records; None = no index."""

    repairs: list[tuple[ConsumeQueue, list[UnitRepair]]] = field(
        default_factory=list[tuple[ConsumeQueue, list[UnitRepair]]]
    )

    def run(self) -> None:
        """Compare the units.

        Raises:
            OSError: The disk failed.
        """
        for queue, units, rows in self.queues:
            numbers, right = counted(self.batch, units.topic, rows, units.floor)
            with closing(units.files):
                search = UnitSearch(self.source, units)
                repairs = [*search.turn(numbers), *search.compare(numbers, right)]
            if repairs:
                self.repairs.append((queue, repairs))
        if self.index is not None:
            self.index.run()


class Verification:
    """Rounds through the log of one store.

    Owned by `MessageStore`, on the store's thread.

    Attributes:
        offset: Progress of the present round: end of the verified log.
        rounds: Number of complete rounds since the opening.
        ended_at_ms: End of the last round, Unix ms; 0 = none.
        units_mended: Number of repaired units since the opening.
        entries_mended: Number of repaired index entries since the opening.
        records_damaged: Number of damaged ranges found in the log since the opening.
    """

    def __init__(self, opened: OpenedFiles, reads: StoreReads, clock: Clock) -> None:
        self._log = opened.log
        self._queues = opened.queues
        self._index = opened.index
        self._open_keys: OpenKeys | None = None
        self._good_to = PhysicalOffset(0)
        self._walks: deque[IndexInfo] | None = None
        self._walk: IndexWalk | None = None
        self._session = opened.session
        self._reads = reads
        self._clock = clock
        self.offset = PhysicalOffset(0)
        self.rounds = 0
        self.ended_at_ms = 0
        self._ended_monotonic_ms = 0
        self.units_mended = 0
        self.records_damaged = 0
        self.entries_mended = 0

    def chunk_due(self, bytes_max: int) -> VerifiedChunk | IndexWalk | None:
        """Return the next task if it is due, for `chunk_done`.

        A round covers the log, chunk by chunk, and then the chains of each index file.

        Args:
            bytes_max: Approximate length of a chunk, bytes. A longer record is a chunk of its own.
        """
        now_ms = self._clock.monotonic_ms()
        if self.rounds and self.offset == 0:
            if now_ms - self._ended_monotonic_ms < ROUND_PAUSE_MS:
                return None
            logger.info("verification begins again round=%d", self.rounds + 1)
        source = self._reads.source()
        self.offset = max(self.offset, source.start)
        while (damaged_to := self._reads.quarantine.end_at(self.offset)) is not None:
            self.offset = damaged_to
        if self.offset == source.end == source.start:
            return None  # nothing is dispatched yet
        if self.offset >= source.end or not self._log.files.has(self.offset):
            return self._next_walk(now_ms)
        file = self._log.files.at(self.offset)
        file.hold()
        check = self._session.check_at(self.offset)
        until = min(source.end, PhysicalOffset(file.end))
        if check.until is not None:
            # The border should be the begin of a record. Another border must not stop the round.
            bytes_max = max(min(bytes_max, check.until - self.offset), 1)
        return VerifiedChunk(
            source=source, start=self.offset, until=until, bytes_max=bytes_max, held=(file,)
        )

    def _next_walk(self, now_ms: int) -> IndexWalk | None:
        """Return the next check of an index file, after the log; end the round after the last."""
        if self._walk is None or self._walk.is_over:
            self._walk = None
            if self._walks is None:
                infos = () if self._index is None else self._index.infos()
                self._walks = deque[IndexInfo](info for info in infos if info.has_entries)
            if self._walks:
                info = self._walks.popleft()
                slots = np.zeros(info.sizes.slots, dtype=np.int32)
                self._walk = IndexWalk(self._reads.source(), info, slots)
        if self._walk is None:
            self._end_round(now_ms)
        return self._walk

    def _end_round(self, now_ms: int) -> None:
        self._walks = self._open_keys = None
        self.rounds += 1
        self.offset = PhysicalOffset(0)
        self._ended_monotonic_ms, self.ended_at_ms = now_ms, self._clock.wall_ms()
        logger.info(
            "verification reached the end of the log units_mended=%d entries_mended=%d"
            " records_damaged=%d",
            self.units_mended,
            self.entries_mended,
            self.records_damaged,
        )

    def chunk_done(
        self, piece: VerifiedChunk | IndexWalk, error: OSError | None = None
    ) -> UnitsCheck | None:
        """Record the result of a task. Return the comparison of units for its records."""
        if isinstance(piece, IndexWalk):
            self._note_entries(piece.repaired, str(piece.info.path))
            piece.repaired = 0
            if error is not None:
                logger.warning("index not verified file=%s err=%s", piece.info.path, error)
                piece.is_over = True
            return None
        for file in piece.held:
            file.release()
        if error is not None:
            logger.warning("log not verified log_offset=%d err=%s", piece.start, error)
            file_bytes = self._log.files.file_bytes
            self.offset = PhysicalOffset(piece.start - piece.start % file_bytes + file_bytes)
            return None
        self.offset = max(piece.end, PhysicalOffset(piece.start + 1))
        if piece.start != self._good_to:
            self._open_keys = None  # what lies in between may have entries
        self._good_to = self.offset if piece.bad is None else PhysicalOffset(-1)
        if piece.bad is not None and self._reads.quarantine.add(
            piece.bad.start, piece.bad.end, piece.bad.reason
        ):
            self.records_damaged += 1
            logger.error(
                "damaged record found log_offset=%d log_end=%d reason=%s",
                piece.bad.start,
                piece.bad.end,
                piece.bad.reason,
            )
        if piece.batch is None:
            return None
        queues = [
            QueueCheck(queue, self._reads.source_of(queue), rows)
            for topic, queue_id, rows in piece.batch.queues
            if (queue := self._queues.find(topic, queue_id)) is not None
        ]
        index = None
        if self._index is not None:
            index = IndexCheck(
                source=piece.source,
                batch=piece.batch,
                infos=self._index.infos(),
                open=self._open_keys,
            )
        return UnitsCheck(source=piece.source, batch=piece.batch, queues=queues, index=index)

    def _note_entries(self, repaired: int, where: str) -> None:
        if repaired:
            self.entries_mended += repaired
            logger.warning("index entries were wrong count=%d near=%s", repaired, where)

    def units_done(self, check: UnitsCheck, error: OSError | None = None) -> None:
        """Mend what a comparison that has run found."""
        if error is not None:
            logger.warning("consume queues not verified err=%s", error)
            self._open_keys = None
            return
        if check.index is not None:
            self._open_keys = check.index.open
            self._note_entries(check.index.repaired, f"log {self.offset}")
        before = self._reads.repair.mended_units
        for queue, repairs in check.repairs:
            if self._queues.find(queue.topic, queue.queue_id) is queue:
                self._reads.repair.repair(queue, repairs)
        self.units_mended += self._reads.repair.mended_units - before
