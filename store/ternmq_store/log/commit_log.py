"""The commit log: records of all queues in the order of storage (docs/formats/commit-log.md)."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from ternmq_model.arrays import Ints
from ternmq_model.errors import BrokerBusy, CorruptRecord, MessageRefused, StoreFull
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.batch import Records
from ternmq_model.record.format import BLANK_BYTES, Record, decode_record, encode_blank
from ternmq_model.record.scanner import LogChunk, Verify, scan_records
from ternmq_model.response_code import ResponseCode
from ternmq_store.disk.file_content import write_records
from ternmq_store.disk.filesystem import File, FileSystem
from ternmq_store.disk.layout import commit_log_folder, file_name, fits, next_file_path
from ternmq_store.disk.mapped_file import MappedFile
from ternmq_store.disk.mapped_file_queue import MappedFileQueue
from ternmq_store.disk.resource_exhaustion import check_full, check_only_full
from ternmq_store.log.file_allocation import AllocateTask, FileTask, FillTask, next_fill, wipe
from ternmq_store.log.transient_pool import PoolWrite, TransientPool

logger = logging.getLogger(__name__)

_PIECE_BYTES: Final = 1 << 20
_ON_THE_SPOT_BYTES_MAX: Final = 4 << 20
"""Longest file that an append creates itself, which takes 1 to 2 ms."""

_FIRST_ZERO_BYTES: Final = 64 << 20
"""Bytes of a new or partly filled file that the opening fills with zeros. More would delay the
start; the rest is reserved, and filled ahead of the writer."""

_FILL_LEAD_BYTES: Final = 16 << 20
"""Distance ahead of a copy at which filling continues after the copy has overtaken it."""

_PREPARE_AFTER: Final = 4
"""Divisor of the file length: the next file is prepared once a quarter of the present one is used.
A fast writer gets it in time, and an idle store does without."""

_EVERYTHING: Final = PhysicalOffset(1 << 63)


class BatchSlice(NamedTuple):
    """The rows of a batch for one file, perhaps none before its blank record."""

    first: int
    last: int
    offset: PhysicalOffset
    bytes_left: int
    """Length of the blank record behind the rows; -1 = there is none."""


class Placement(NamedTuple):
    """Places of a batch in the log before it is written."""

    pieces: Sequence[BatchSlice]
    physical_offsets: Ints
    end: PhysicalOffset


class CommitLog:
    """The log's files and its end.

    Owned by `MessageStore`, on the store's thread. `end` is the offset of the next record; only
    `write`, `extend` and recovery move it.
    """

    def __init__(self, files: FileSystem, root: Path, file_bytes: int) -> None:
        self._file_system = files
        self._root = root
        self.files = MappedFileQueue(files, commit_log_folder(root), file_bytes)
        self.pool: TransientPool | None = None
        """Pool of appended records before they are written to the files; None = there is none."""
        self.fills_ahead = True
        """True = files are filled with zeros ahead of the writer, for senders that wait for a sync.
        False = their space is only reserved."""
        self.end = PhysicalOffset(0)
        self._preparing: FileTask | None = None
        self._hole: int | None = None
        self._is_awaited = False
        """True once an append was refused for an unfilled file since the last fill task."""
        self._unfilled = _EVERYTHING
        """Log offset from which files are reserved and not yet filled with zeros."""
        self._is_wanted = False
        self._shortage: OSError | None = None
        self._scratch = memoryview(b"")

    @property
    def start(self) -> PhysicalOffset:
        """Log offset of the oldest record."""
        return PhysicalOffset(self.files.files[0].base if self.files.files else 0)

    @property
    def file_end(self) -> PhysicalOffset:
        """End of the file, existing or not, for the next record."""
        return PhysicalOffset(self.end - self.end % self.files.file_bytes + self.files.file_bytes)

    @property
    def committed(self) -> PhysicalOffset:
        """Log offset below which all bytes are in the log's files, not in the pool."""
        return self.end if self.pool is None else self.pool.committed(self.end)

    @property
    def shortage(self) -> OSError | None:
        """Error of the last attempt to make the next file; None when it was made."""
        return self._shortage

    def allocate(self, batch: Records, *, atomic: bool = False) -> Placement:
        """Allocate places for the records of `batch`, and make files where they are needed.

        An `atomic` batch goes into one file, the next one if need be.

        Raises:
            StoreFull: The disk cannot hold another file.
            BrokerBusy: The next file is being prepared, or the pool is full: try again later.
            MessageRefused: A record, or an atomic batch, is longer than a file.
        """
        total, begin = len(batch.data), self.end
        if self.pool is not None:
            self.pool.check_space(total)
        if self.files.has(begin):
            file = self.files.at(begin)
            if fits(total, file.end - begin):
                self._make_real(file, begin + total)
                piece = BatchSlice(0, len(batch), begin, -1)
                return Placement((piece,), batch.starts + begin, PhysicalOffset(begin + total))
        if atomic:
            return self._allocate_in_next(batch)
        return self._allocate_in_many(batch.starts, batch.sizes)

    def _allocate_in_next(self, batch: Records) -> Placement:
        """Place the batch in the file behind this one, which a blank record ends."""
        total, begin = len(batch.data), self.end
        self._check_length(total, "batch")
        pieces: list[BatchSlice] = []
        if self.files.has(begin):
            file = self._file_for(begin, BLANK_BYTES)
            pieces.append(BatchSlice(0, 0, begin, file.end - begin))
            begin = PhysicalOffset(file.end)
        self._file_for(begin, total)
        pieces.append(BatchSlice(0, len(batch), begin, -1))
        return Placement(pieces, batch.starts + begin, PhysicalOffset(begin + total))

    def _check_length(self, length: int, what: str) -> None:
        if not fits(length, self.files.file_bytes):
            raise MessageRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"a {what} of {length} bytes is longer than a file of the log",
            )

    def _allocate_in_many(self, starts: Ints, sizes: Ints) -> Placement:
        self._check_length(int(sizes.max()), "record")
        pieces: list[BatchSlice] = []
        offsets, ends = starts.copy(), starts + sizes
        first, at = 0, self.end
        while first < len(sizes):
            before = int(starts[first])
            file = self._file_for(at, int(ends[-1]) - before + BLANK_BYTES)
            room = file.end - at - BLANK_BYTES
            last = int(np.searchsorted(ends, before + room, side="right"))
            offsets[first:last] += at - before
            behind = at + (int(ends[last - 1]) - before if last > first else 0)
            full = last < len(sizes)
            pieces.append(BatchSlice(first, last, at, file.end - behind if full else -1))
            first, at = last, PhysicalOffset(file.end if full else behind)
        return Placement(pieces, offsets, at)

    def _file_for(self, offset: PhysicalOffset, length: int) -> MappedFile:
        """Return the file for `offset` with real space for `length` bytes, or for its rest."""
        if self.files.has(offset):
            file = self.files.at(offset)
            self._make_real(file, min(offset + length, file.end))
            return file
        if self._preparing is not None:
            raise BrokerBusy(ResponseCode.SYSTEM_BUSY, "the next file of the log is being created")
        if self._shortage is not None:
            what = f"the next file of the commit log cannot be created: {self._shortage}"
            raise StoreFull(what) from self._shortage
        if self.files.file_bytes > _ON_THE_SPOT_BYTES_MAX:
            self._is_wanted = True
            raise BrokerBusy(
                ResponseCode.SYSTEM_BUSY, "the next file of the log must be created first"
            )
        try:
            file = self.files.create_durable_file(offset, real_bytes=self.files.file_bytes)
        except OSError as error:
            check_full(error, "commit log")
            raise
        logger.info("commit log rolled file=%s", file_name(file.base))
        return file

    def _make_real(self, file: MappedFile, end: int) -> None:
        if file.base <= self._unfilled < end:
            self._is_awaited = True
            busy = "the log's present file is being filled"
            raise BrokerBusy(ResponseCode.SYSTEM_BUSY, busy)
        if file.real_bytes < file.file_bytes:
            try:
                file.make_real(file.file_bytes)
            except OSError as error:
                check_full(error, "commit log")
                raise

    def write(
        self,
        batch: Records,
        placement: Placement,
        *,
        queue_offsets: Ints,
        stored_at_ms: int,
        born_host: bytes | None,
        store_host: bytes,
    ) -> None:
        """Complete the records and write them to their `placement`, or into the pool.

        Records survive a crash of this process once this method has returned and they are
        `committed`. A process that is killed meanwhile leaves none of them.

        Raises:
            OSError: The disk failed; the content of the files is unknown from now on.
        """
        # Completed beside the log, so that no page of the log ever holds half-made records.
        done = self._copy(batch.data)
        batch.complete(
            done,
            queue_offsets=queue_offsets,
            physical_offsets=placement.physical_offsets,
            stored_at_ms=stored_at_ms,
            born_host=born_host,
            store_host=store_host,
        )
        if self.pool is not None:
            writes = [self._write_of(piece, batch, done) for piece in placement.pieces]
            self.pool.put(writes, self.end, placement.end, stored_at_ms=stored_at_ms)
        else:
            # A scan from the front meets the first piece first, so that one is written last, and of
            # every piece its first 8 bytes: until then there is nothing.
            for piece in reversed(placement.pieces):
                self._put(piece, batch, done)
        self.end = placement.end

    def _copy(self, data: bytes) -> memoryview:
        """Return a copy of `data`: a new one for the pool, else in a buffer for all batches."""
        if self.pool is not None:
            return memoryview(bytearray(data))
        if len(self._scratch) < len(data):
            self._scratch = memoryview(bytearray(max(len(data), _PIECE_BYTES)))
        done = self._scratch[: len(data)]
        done[:] = data
        return done

    def _write_of(self, piece: BatchSlice, batch: Records, done: memoryview) -> PoolWrite:
        file = self.files.at(piece.offset)
        parts: list[bytes | memoryview] = []
        if piece.last > piece.first:
            begin, end = _extent(piece, batch)
            parts.append(done[begin:end])
        if piece.bytes_left >= 0:
            parts.append(encode_blank(piece.bytes_left))
        return PoolWrite(file.file, piece.offset - file.base, parts)

    def _put(self, piece: BatchSlice, batch: Records, done: memoryview) -> None:
        file = self.files.at(piece.offset)
        if piece.bytes_left >= 0:
            position = file.file_bytes - piece.bytes_left
            write_records(file.file, position, encode_blank(piece.bytes_left))
        if piece.last > piece.first:
            begin, end = _extent(piece, batch)
            write_records(file.file, piece.offset - file.base, done[begin:end])

    def make_space_for(self, length: int) -> None:
        """Make space for `extend` to append `length` bytes within one file.

        Raises:
            StoreFull: The disk cannot hold another file.
            BrokerBusy: The file is being prepared, or the pool is full: try again.
            OSError: The disk failed.
        """
        if self.pool is not None:
            self.pool.check_space(length)
        end = self.end + length
        if self._unfilled < end and not isinstance(self._preparing, FillTask):
            # Only this copy waits for a sync of blocks that were only reserved.
            self._unfilled = PhysicalOffset(end + _FILL_LEAD_BYTES)
        self._file_for(self.end, length)

    def extend(self, data: bytes, *, stored_at_ms: int) -> None:
        """Append bytes of another replica's log, for which `make_space_for` has made space.

        All or none survive a crash of this process.

        Args:
            data: Checked records of one file, a blank record or damaged bytes.
            stored_at_ms: Store time of the newest record.
        """
        file = self.files.at(self.end)
        position, end = self.end - file.base, PhysicalOffset(self.end + len(data))
        if self.pool is not None:
            write = PoolWrite(file.file, position, [data])
            self.pool.put([write], self.end, end, stored_at_ms=stored_at_ms)
        else:
            write_records(file.file, position, data)
        self.end = end

    def record_at(self, offset: PhysicalOffset, end: PhysicalOffset) -> Record | None:
        """Return the good record that begins at `offset` and ends by `end`, or None."""
        if offset >= end or not self.files.has(offset):
            return None
        file = self.files.at(offset)
        try:
            record = decode_record(file.view, offset - file.base, at=offset)
        except CorruptRecord:
            return None
        return record if record and offset + record.header.total_bytes <= end else None

    def scan(self, at: PhysicalOffset, limit: int, *, records_max: int, verify: Verify) -> LogChunk:
        """Return the records from log offset `at` on. Positions in the result are in its file.

        A record that ends behind `limit`, which is at most the file's end, is left out.
        """
        file = self.files.at(at)
        return scan_records(
            file.view,
            at - file.base,
            limit - file.base,
            at=at,
            records_max=records_max,
            verify=verify,
        )

    def cut(self, end: PhysicalOffset, *, was_left_there: bool = False) -> int:
        """Cut the log at `end`, durably: zero the bytes behind it and remove later files.

        No record behind `end` can come back afterwards.

        Args:
            end: New end of the log, at the border of a record.
            was_left_there: True = a clean stop of this store left the end there, with zeros behind.
                If the next bytes are zeros still, all are: reading 1 GiB takes long.

        Returns:
            Count of the bytes that were not zeros.

        Raises:
            OSError: The log may not be cut; the store must not be used.
        """
        wiped = 0
        if self.files.has(end):
            file = self.files.at(end)
            self._hole = file.file.hole_after(end - file.base)
            position = end - file.base
            if not was_left_there or any(file.file.read(position, _PIECE_BYTES)):
                wiped = wipe(file.file, position, file.file_bytes)
                # Zeros found may be those of an earlier attempt that never reached the disk.
                file.file.sync()
        self._drop_behind(end)
        self.end = end
        return wiped

    def _drop_behind(self, end: PhysicalOffset) -> None:
        # One after the other, newest first: a crash in between must not leave a gap.
        while self.files.files and self.files.last.base > end:
            self.files.drop_from(self.files.last.base)
            self._file_system.sync_folder(self.files.folder)

    def prepare_due(self, *, is_copying: bool = False) -> FileTask | None:
        """Return the task of filling a file ahead, or of making the next one, that is due, or None.

        Space is only reserved without `fills_ahead`, and while a replica is `is_copying` a long
        log: zeros double the writes of the disk.
        """
        if self._preparing is not None:
            return None
        if not (self._is_wanted or is_copying) and self.files.has(self._unfilled):
            file, system = self.files.at(self._unfilled), self._file_system
            start = self._unfilled - file.base
            urgent, self._is_awaited = self._is_awaited, False
            task = next_fill(file.file, start, file.file_bytes, system, is_urgent=urgent)
            self._preparing = task
            return task
        file_bytes, files = self.files.file_bytes, self.files.files
        if not self._is_wanted and (
            not files or self.end - files[-1].base < file_bytes // _PREPARE_AFTER
        ):
            return None
        is_filled = self.fills_ahead and not is_copying
        self._preparing = self._prepare_task(file_bytes if is_filled else 0)
        return self._preparing

    def _prepare_task(self, zero_bytes: int) -> AllocateTask:
        base = self.files.last.end if self.files.files else self.end
        return AllocateTask(
            self._file_system,
            next_file_path(self._root),
            self.files.folder / file_name(base),
            self.files.file_bytes,
            min(zero_bytes, self.files.file_bytes),
        )

    def prepared(self, error: OSError | None) -> None:
        """Add the prepared file to the log, or record the `error` that prevented it.

        Raises:
            OSError: The file cannot be opened, or the disk failed while it was filled.
        """
        task, self._preparing = self._preparing, None
        if isinstance(task, FillTask):
            self._filled(task, error)
            return
        if error is not None:
            if self._shortage is None:
                logger.warning("next file of the commit log not created err=%s", error)
            self._shortage = error
            return
        self._shortage, self._is_wanted = None, False
        file = self.files.open_file(self.files.last.end if self.files.files else self.end)
        file.real_bytes = file.file_bytes
        if isinstance(task, AllocateTask):
            unfilled = PhysicalOffset(file.base + task.zero_bytes)
            is_usable = unfilled == file.end or not self.fills_ahead
            self._unfilled = _EVERYTHING if is_usable else min(self._unfilled, unfilled)

    def _filled(self, task: FillTask, error: OSError | None) -> None:
        if error is not None:
            check_only_full(error)
            logger.warning("file of the commit log not filled in advance err=%s", error)
        step = PhysicalOffset(self._unfilled + task.end - task.start)
        self._unfilled = step if error is None and self.files.has(step) else _EVERYTHING

    def make_space(self) -> None:
        """Make the space of the last file real, or make the first file: a blocking part of opening.

        A full disk is no error here; the first append is refused.

        Raises:
            OSError: The disk failed.
        """
        if self.files.files:
            last = self.files.last
            try:
                last.make_real(last.file_bytes)
                self._fill_some(last)
            except OSError as error:
                check_only_full(error)
        elif self.files.file_bytes > _ON_THE_SPOT_BYTES_MAX:
            first_bytes = _FIRST_ZERO_BYTES if self.fills_ahead else 0
            self._preparing = task = self._prepare_task(first_bytes)
            try:
                task.run()
            except OSError as error:
                check_only_full(error)
                self._is_wanted = True
                self.prepared(error)
            else:
                self.prepared(None)

    def _fill_some(self, file: MappedFile) -> None:
        """Fill the next bytes of a file of an earlier session; later tasks fill the rest."""
        is_short = file.file_bytes <= _ON_THE_SPOT_BYTES_MAX
        if is_short or self._hole is None or not self.fills_ahead:
            return
        near = min(self.end - file.base + _FIRST_ZERO_BYTES, file.file_bytes)
        while self._hole < near:
            task = next_fill(file.file, self._hole, near, self._file_system)
            task.run()
            self._hole = task.end
        is_filled = self._hole >= file.file_bytes
        self._unfilled = _EVERYTHING if is_filled else PhysicalOffset(file.base + self._hole)

    def files_between(self, start: PhysicalOffset, end: PhysicalOffset) -> Sequence[File]:
        """Return the files whose syncs bring the log from `start` to `end` to the disk."""
        return self.files.files_between(start, end)

    def close(self) -> None:
        """Remove an unused next file, and close the others."""
        self._drop_behind(self.end)
        self.files.close()


def _extent(piece: BatchSlice, batch: Records) -> tuple[int, int]:
    """Return start and end of the bytes of the rows of `piece`, at least one, in the batch."""
    if piece.last - piece.first == len(batch):
        return 0, len(batch.data)
    last = piece.last - 1
    return int(batch.starts[piece.first]), int(batch.starts[last] + batch.sizes[last])
