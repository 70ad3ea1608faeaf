"""One consume queue: log offsets of a queue's messages (docs/formats/consume-queue.md).

Unit `n` belongs to the message with queue offset `n`. All units can be rebuilt from the log.

Source: RocketMQ `ConsumeQueue`.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ternmq_model.arrays import Bytes, Ints
from ternmq_model.delay import CODES_BESIDE
from ternmq_model.names import WHEEL_TOPIC
from ternmq_model.offsets import UNIT_BYTES, LogicOffset, PhysicalOffset, QueueOffset, logic_offset
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.layout import base_of, queue_folder
from ternmq_store.disk.mapped_file import MappedFile
from ternmq_store.disk.mapped_file_queue import UnsyncedNames
from ternmq_store.queues.appended_files import AppendedFiles
from ternmq_store.queues.consume_queue_ext import (
    ADDRESS_MAX,
    ConsumeQueueExt,
    ExtRows,
    TagCodes,
    is_address,
    plain_tag_codes,
    rows_from,
)
from ternmq_store.queues.offset_search import first_kept, last_message
from ternmq_store.queues.unit_files import UnitFiles, count_written
from ternmq_store.queues.units import (
    PADDING_SIZE,
    UNIT,
    Unit,
    UnitRepair,
    Units,
    as_units,
    can_be,
    good_units,
    make_padding,
    make_units,
    one_unit_bytes,
    read_unit,
    read_units,
    unit_bytes,
)

logger = logging.getLogger(__name__)

_TAG_CODE_MAX: Final = 1 << 31
_PIECE_UNITS: Final = 3_200
_PADDING_UNITS: Final = 100_000  # in one step


def point_to_same(there: Units, right: Units) -> NDArray[np.bool_]:
    """Return for each row whether both units point to the same record."""
    same: NDArray[np.bool_] = there["offset"] == right["offset"]
    same &= there["size"] == right["size"]
    return same


def are_same_codes(topic: str, there: TagCodes, right: Units) -> NDArray[np.bool_]:
    """Return for each row whether a unit, or its extension, has the tag code of its message."""
    same: NDArray[np.bool_] = there.codes == right["tag_code"]
    if topic == WHEEL_TOPIC:  # RocketMQ stores the tag's code there, TernMQ the delivery time
        same |= np.abs(there.codes) <= _TAG_CODE_MAX
        same |= np.isin(there.codes - right["tag_code"], CODES_BESIDE)
    return same if there.is_known is None else same & there.is_known


class ConsumeQueue(AppendedFiles):
    """Units of one queue.

    Owned by `ConsumeQueues`, on the store's thread.

    Attributes:
        min_offset: Queue offset of the first readable message.
        end: Queue offset behind the last readable message.
        next_offset: Queue offset of the next message to be stored; at least `end`.
        ext: Extension of the queue; None when it never had one.
        ext_unit_bytes: Bytes to reserve for each extension unit; 0 = none is added.
        repeated: Count of records that were left out because their queue offset is impossible or
            belongs to another record.
        skipped: Count of queue offsets that no record has.
        fileless: Count of records that were left out because the file of their unit is gone.
    """

    def __init__(
        self, files: FileSystem, root: Path, topic: str, queue_id: int, file_bytes: int
    ) -> None:
        super().__init__(files, queue_folder(root, topic, queue_id), file_bytes)
        self.topic = topic
        self.queue_id = queue_id
        self.min_offset = QueueOffset(0)
        self.end = QueueOffset(0)
        self.next_offset = QueueOffset(0)
        self.ext: ConsumeQueueExt | None = None
        self.ext_unit_bytes = 0
        self.repeated = self.skipped = self.fileless = 0

    def reserve(self, until: QueueOffset) -> None:
        """Make the space of the units below `until` real.

        Raises:
            OSError: There is no space, or the disk failed. The queue is as before.
        """
        if self.ext is not None and self.ext_unit_bytes:
            self.ext.reserve(until - self.end, self.ext_unit_bytes)
        self._make_real(logic_offset(self.end), logic_offset(until))

    def append(self, units: Units, ext: ExtRows | None = None) -> None:
        """Add the units of the next messages; they can be read from now on.

        Args:
            units: Units of the messages.
            ext: Extension units of the messages, if any.

        Raises:
            OSError: There was no space, and none was reserved. Nothing was added.
        """
        count = len(units)
        at = logic_offset(self.end)
        end = QueueOffset(self.end + count)
        if self._real_end < at + count * UNIT_BYTES:
            self._make_real(at, logic_offset(end))
        data = unit_bytes(self._extend(units, ext))
        file = self.files.at(at)
        position = at - file.base
        if position + len(data) <= file.file_bytes:
            file.bytes[position : position + len(data)] = data
        else:
            self._write(at, data)
        if self._dirty_from is None:
            self._dirty_from = at
        self.end = end
        if end > self.next_offset:
            self.next_offset = end

    def append_one(self, unit: Unit) -> None:
        """Add the unit of the next message, without an extension, as `append` does."""
        end, at = self.end, logic_offset(self.end)
        if self._real_end < at + UNIT_BYTES:
            self._make_real(at, at + UNIT_BYTES)
        file = self.files.at(at)
        position = at - file.base
        file.bytes[position : position + UNIT_BYTES] = one_unit_bytes(unit)
        if self._dirty_from is None:
            self._dirty_from = at
        self.end = end = QueueOffset(end + 1)
        if end > self.next_offset:
            self.next_offset = end

    def _extend(self, units: Units, ext: ExtRows | None) -> Units:
        if self.ext is None or ext is None:
            return units
        addresses = self.ext.append(units["tag_code"].astype(np.int64), ext)
        return make_units(units["offset"], units["size"], addresses)

    def tag_codes(self, units: Units) -> TagCodes:
        """Return the tag codes of units, from the units or the extension."""
        return plain_tag_codes(units) if self.ext is None else self.ext.tag_codes(units)

    def _write(self, at: LogicOffset, data: Bytes) -> None:
        done = 0
        while done < len(data):
            file = self.files.at(at + done)
            position = at + done - file.base
            count = min(len(data) - done, file.file_bytes - position)
            file.bytes[position : position + count] = data[done : done + count]
            done += count

    def put(
        self, offsets: Ints, units: Units, ext: ExtRows | None = None, *, pads: bool = True
    ) -> bool:
        """Add units of records in the order of the log; some may be in the queue already.

        Right units of the queue stay; wrong ones are rewritten.

        Args:
            offsets: Queue offsets of the messages.
            units: Units of the messages.
            ext: Extension units of the messages, if any.
            pads: True = missing units are padded; False = messages behind a gap are left out.

        Returns:
            True if each message followed the one before; False if units are missing.

        Raises:
            OSError: There was no space. Some units may have been added.
        """
        first, count = int(offsets[0]), len(offsets)
        if count == 1 or bool((np.diff(offsets) == 1).all()):
            if first == self.end:
                self.append(units, ext)
                return True
            known = self._count_same(QueueOffset(first), units)
            if known == count:
                return True
            if known and first + known == self.end:
                self.append(units[known:], rows_from(ext, known, count))
                return True
        has_gap = False
        for row, offset in enumerate(map(QueueOffset, offsets.tolist())):
            has_gap |= offset > self.end
            if pads or offset <= self.end:
                self._put_one(offset, units[row : row + 1], rows_from(ext, row, row + 1))
        return not has_gap

    def _count_same(self, first: QueueOffset, units: Units) -> int:
        count = 0
        while count < len(units) and self._first <= first + count < self.end:
            there = self.units(QueueOffset(first + count), len(units) - count)
            same = self._are_same(there, units[count : count + len(there)])
            if not same.all():
                return count + int(same.argmin())
            count += len(there)
        return count

    def _are_same(self, there: Units, right: Units) -> NDArray[np.bool_]:
        same = are_same_codes(self.topic, self.tag_codes(there), right)
        return same & point_to_same(there, right)

    @property
    def _first(self) -> QueueOffset:
        return QueueOffset(self.files.files[0].base // UNIT_BYTES if self.files.files else self.end)

    def _put_one(self, offset: QueueOffset, unit: Units, ext: ExtRows | None) -> None:
        physical = int(unit["offset"][0])
        if offset < self._first:
            self.fileless += 1
            return  # retention deleted the file of the unit
        if offset < self.end and (
            physical <= self.newest_before(self.end) or self.unit(offset).size == PADDING_SIZE
        ):
            self._correct(offset, unit, ext)
            return
        if 0 < offset < self.end or (
            offset > self.end and self.files.files and not can_be(offset, unit)
        ):
            logger.warning(
                "record not added to its queue topic=%s queue=%d offset=%d end=%d log_offset=%d",
                self.topic,
                self.queue_id,
                offset,
                self.end,
                physical,
            )
            self.repeated += 1
            return
        if offset < self.end:
            # RocketMQ deleted the topic, and its queue restarted at 0: the later record counts.
            self.cut(offset)
        if offset > self.end:
            self._pad(offset)
        self.append(unit, ext)

    def _correct(self, offset: QueueOffset, unit: Units, ext: ExtRows | None) -> None:
        there, physical = self.unit(offset), int(unit["offset"][0])
        if self._are_same(self.units(offset, 1), unit).all():
            return
        if there.size > 0 and physical < there.offset and physical <= self.newest_before(offset):
            return  # the unit of a later record, behind a deletion of the topic
        self._rewrite(offset, self._extend(unit, ext))

    def repair(self, repair: UnitRepair) -> bool:
        """Write the right unit over a damaged one; return whether it was still there."""
        offset, was, unit = repair
        if not self._first <= offset < self.end or self.unit(offset) != was:
            return False
        self._rewrite(offset, as_units(unit))
        return True

    def _rewrite(self, offset: QueueOffset, unit: Units) -> None:
        there = self.unit(offset)
        if there.size != PADDING_SIZE:
            logger.warning(
                "consume queue unit was wrong topic=%s queue=%d offset=%d before=%s after=%s",
                self.topic,
                self.queue_id,
                offset,
                tuple(there),
                unit[0].tolist(),
            )
        at = logic_offset(offset)
        self._write(at, unit_bytes(unit))
        self._mark_dirty(at)

    def newest_before(self, end: QueueOffset) -> int:
        """Return the log offset of the last message before `end`; -1 if there is none."""
        unit = self.last_unit(end)
        return unit.offset if unit else -1

    def _pad(self, until: QueueOffset) -> None:
        if not self.files.files:
            # As RocketMQ begins a queue in the middle of a file: `fillPreBlank`.
            base = base_of(logic_offset(until), self.files.file_bytes)
            self._real_end = LogicOffset(base)
            self.end = self.min_offset = QueueOffset(base // UNIT_BYTES)
            self.min_offset = until
        else:
            self.skipped += until - self.end
            logger.warning(
                "gap in a consume queue topic=%s queue=%d from=%d to=%d",
                self.topic,
                self.queue_id,
                self.end,
                until,
            )
        while until > self.end:
            self.append(make_padding(min(until - self.end, _PADDING_UNITS)))

    def units(self, offset: QueueOffset, count: int) -> Units:
        """Return up to `count` units from `offset` on, of one file: a view, to be released soon."""
        at = logic_offset(offset)
        file = self.files.at(at)
        last = min(QueueOffset(offset + count), self.end)
        position = at - file.base
        return file.bytes[position : min(logic_offset(last), file.end) - file.base].view(UNIT)

    def unit(self, offset: QueueOffset) -> Unit:
        """Return the unit of message `offset`, which must exist."""
        at = logic_offset(offset)
        file = self.files.at(at)
        return read_unit(file.view, at - file.base)

    def last_unit(self, end: QueueOffset | None = None) -> Unit | None:
        """Return the newest unit of a message, of those before `end`; None if there is none."""
        found = last_message(self, self.end if end is None else end, begin=self._first)
        return None if found is None else self.unit(found)

    @property
    def lacks_ext(self) -> bool:
        """True if the extension of the newest unit is gone."""
        unit = self.last_unit()
        if unit is None or unit.tag_code > ADDRESS_MAX:
            return False
        return self.ext is None or self.ext.unit(unit.tag_code) is None

    def unit_files(self) -> UnitFiles:
        """Return a reader of all units of the queue's files, written or not."""
        files = self.files.files
        if not files:
            return self.units_between(0, 0)
        return self.units_between(files[0].base // UNIT_BYTES, files[-1].end // UNIT_BYTES)

    def units_between(self, begin: int, end: int) -> UnitFiles:
        """Return a reader of the units from `begin` on before `end`, for another thread."""
        files = self.files
        return UnitFiles(self._file_system, files.folder, files.file_bytes, begin, end)

    def begins_before(self, offset: PhysicalOffset) -> bool:
        """Return whether the first unit is written for a record before `offset`."""
        files = self.files.files
        return bool(files) and len(good_units(read_units(files[0].file, 0, 1), offset)) > 0

    def find_written(self) -> None:
        """Set the end behind the last written unit, after a clean stop."""
        if self.files.files:
            last = self.files.last
            count = count_written(last.file, last.file_bytes // UNIT_BYTES)
            self._end_at(QueueOffset(last.base // UNIT_BYTES + count))

    def cut_from(self, limit: PhysicalOffset) -> None:
        """Wipe all units but those of records before `limit`.

        Raises:
            OSError: The disk failed.

        Source: RocketMQ `ConsumeQueue.truncateDirtyLogicFiles`.
        """
        files = self.files.files
        count = len(files)
        while files and not len(good_units(read_units(files[-1].file, 0, 1), limit)):
            self.files.drop_from(files[-1].base)
        if len(files) < count:
            # Files that reappear after a power loss would count as files of a queue in use.
            self._file_system.sync_folder(self.files.folder)
        if not files:
            self.cut(QueueOffset(0))
            return
        count, piece = 0, _PIECE_UNITS
        while piece == _PIECE_UNITS:
            piece = len(good_units(read_units(files[-1].file, count, _PIECE_UNITS), limit))
            count += piece
        self.cut(QueueOffset(files[-1].base // UNIT_BYTES + count))

    def cut(self, end: QueueOffset) -> None:
        """Cut the queue at `end`, and wipe the units behind it."""
        at = logic_offset(end)
        self._drop_files(at)
        if self.files.files:
            self._wipe(at)
            self._mark_dirty(at)
        else:
            self._dirty_from = None
        self._end_at(end)

    def _end_at(self, end: QueueOffset) -> None:
        self.end = self.next_offset = end
        if self.ext is not None:
            self.ext.cut_behind(self._newest_address())
        files = self.files.files
        first = files[0].base // UNIT_BYTES if files else end
        self.min_offset = QueueOffset(min(max(self.min_offset, first), end))
        # Space behind the end, in the file that holds it, is made real again on demand.
        self._real_end = LogicOffset(
            min(files[-1].base + files[-1].real_bytes, files[-1].end) if files else 0
        )

    def _newest_address(self) -> int | None:
        end = self.end
        while end > self._first:
            base = base_of(logic_offset(end) - 1, self.files.file_bytes) // UNIT_BYTES
            begin = QueueOffset(max(end - _PIECE_UNITS, base))
            codes = self.units(begin, end - begin)["tag_code"].astype(np.int64)
            found = np.flatnonzero(is_address(codes))
            if len(found):
                return int(codes[found[-1]])
            end = begin
        return None

    def correct_min_offset(self, log_start: PhysicalOffset) -> None:
        """Set the start to the first message whose record is still in the log."""
        self.min_offset = max(self.min_offset, self._first)
        self.min_offset = first_kept(self, log_start)

    def begin_at(self, offset: QueueOffset) -> None:
        """Move the start to `offset`, unless the queue starts later already."""
        self.min_offset = max(self.min_offset, min(offset, self.end))

    def delete_read(self) -> Sequence[MappedFile]:
        """Release the files before the first message; the caller removes them, oldest first.

        The file with the newest unit stays: it determines the next offset.

        Source: RocketMQ `ConsumeQueue.deleteExpiredFile`.
        """
        kept = QueueOffset(max(min(self.min_offset, self.end - 1), 0))
        return self.files.drop_before(logic_offset(kept))

    def delete_read_ext(self) -> Sequence[MappedFile]:
        """Release the files of extension units before the first message, like `delete_read`."""
        if self.ext is None:
            return ()
        for begin in range(max(self.min_offset, self._first), self.end, _PIECE_UNITS):
            codes = self.units(QueueOffset(begin), _PIECE_UNITS)["tag_code"].astype(np.int64)
            if (found := is_address(codes)).any():
                return self.ext.delete_before(int(codes[found.argmax()]))
        return ()

    def take_dirty(self) -> Sequence[Path]:
        """Return the files with unsynced units; the caller syncs them.

        Files of `take_new` are among them only if they have such units.
        """
        further = () if self.ext is None else self.ext.take_dirty()
        if self._dirty_from is None:
            return further
        return [*further, *self._take_dirty(logic_offset(self.end))]

    def take_new(self) -> Sequence[UnsyncedNames]:
        """Return the files and folders created since the last call; the caller syncs them.

        Until then a crash may remove them, and their units with them.
        """
        ext = () if self.ext is None else (self.ext.files.take_new(),)
        return (*ext, self.files.take_new())

    def close(self) -> None:
        """Unmap and close the files."""
        super().close()
        if self.ext is not None:
            self.ext.close()
