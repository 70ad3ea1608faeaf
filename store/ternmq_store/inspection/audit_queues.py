"""Comparison of consume queues and log, both ways, beside the walk of the log."""

from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ternmq_model.arrays import Ints
from ternmq_model.delay import CODES_BESIDE, wheel_code
from ternmq_model.names import SCHEDULE_TOPIC, WHEEL_TOPIC
from ternmq_model.offsets import UNIT_BYTES, PhysicalOffset, QueueOffset
from ternmq_model.properties import TAGS, decode_properties, tag_code
from ternmq_model.record.format import FLAG_COMMIT, FLAG_TRANSACTION_MASK
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.inspection.audit_findings import AuditFinding, note, problem
from ternmq_store.inspection.log_inspection import FoundRecord
from ternmq_store.inspection.queue_inspection import (
    ExtReader,
    QueueCursor,
    QueueFiles,
    last_unit,
    misfits,
)
from ternmq_store.queues.unit_files import FileUnits
from ternmq_store.queues.units import PADDING_SIZE, Unit, find_turned, turned_unit

_IN_WRONG_ORDER: Final = "bytes in the wrong order: the verification repairs"

_EXT_ADDRESS_MAX: Final = -(1 << 31) - 1
"""Greatest value of a tag code that is an address in the ext files."""


@dataclass(slots=True)
class _Missing:
    """Records of one queue without a unit."""

    first: int
    offset: int
    count: int = 1


class QueueAudit:
    """Walk of all consume queues beside a walk of the log. Owned by one check.

    Attributes:
        units: Count of units so far.
        dispatched: End of the newest record with a unit.
        last_records: Queue offset and log offset of the last good record of each queue.
        faulty: Queues with a fault.
    """

    def __init__(
        self,
        files: FileSystem,
        root: Path,
        queues: Sequence[QueueFiles],
        dropped: Mapping[str, PhysicalOffset],
        known_topics: Collection[str] | None,
        *,
        log_start: int,
        log_end: int,
    ) -> None:
        self._files, self._root = files, root
        self._ext: dict[tuple[bytes, int], ExtReader] = {}
        self._queues = {
            (queue.topic.encode(), queue.queue_id): QueueCursor(files, queue) for queue in queues
        }
        self._dropped = {topic.encode(): offset for topic, offset in dropped.items()}
        self._known = None if known_topics is None else {name.encode() for name in known_topics}
        self._log_start, self._log_end = log_start, PhysicalOffset(log_end)
        self._missing: dict[tuple[bytes, int], _Missing] = {}
        self._without_topic: dict[bytes, int] = {}
        self._undispatched = 0
        self._bad: list[tuple[int, int]] = []
        self.last_records: dict[tuple[bytes, int], tuple[int, int]] = {}
        self.faulty: set[tuple[bytes, int]] = set()
        self.units = 0
        self.dispatched = max(
            (
                unit.offset + unit.size
                for queue in queues
                if (unit := last_unit(files, queue)) is not None
            ),
            default=0,
        )

    def pass_over(self, start: int, end: int) -> None:
        """Record a bad range of the log, into which units may point."""
        self._bad.append((start, end))

    def check(self, found: FoundRecord) -> Generator[AuditFinding]:
        """Yield the faults of a good record's unit, and the units before it without a record."""
        key = (found.record.topic, found.record.header.queue_id)
        for finding in self._check(found, key):
            self.faulty.add(key)
            yield finding

    def _check(self, found: FoundRecord, key: tuple[bytes, int]) -> Generator[AuditFinding]:
        header, topic = found.record.header, found.record.topic
        if header.sys_flag & FLAG_TRANSACTION_MASK not in (0, FLAG_COMMIT):
            return
        if found.offset < self._dropped.get(topic, 0):
            return
        self.last_records[key] = (header.queue_offset, found.offset)
        cursor = self._queues.get(key)
        if cursor is None:
            if self._known is not None and topic not in self._known:
                self._without_topic[topic] = self._without_topic.get(topic, 0) + 1
            else:
                self._miss(key, header.queue_offset, found.offset)
            return
        for units in cursor.take_to(header.queue_offset):
            yield from self._strays(cursor.queue, units)
        unit = cursor.take(header.queue_offset)
        if unit is None or unit[1][1] == 0:
            self._miss(key, header.queue_offset, found.offset)
            return
        self.units += 1
        file, (offset, size, code) = unit
        at = header.queue_offset * UNIT_BYTES - file.base
        right = found.offset, header.total_bytes
        if (offset, size) != right:
            text = f"unit {header.queue_offset} "
            if turned_unit(Unit(PhysicalOffset(offset), size, code))[:2] == right:
                text += f"has its {_IN_WRONG_ORDER} it"
            else:
                text += f"points to {size} bytes at {offset}, its record has"
                text += f" {header.total_bytes} at {found.offset}"
            yield problem("queue", file.path, at, text)
        elif code <= _EXT_ADDRESS_MAX:
            yield from self._check_ext(key, cursor.queue, found, code)
        elif not _is_tag_code(found, code):
            text = f"unit {header.queue_offset} has the tag code {code}, its record another tag"
            yield problem("queue", file.path, at, text)

    def _check_ext(
        self, key: tuple[bytes, int], queue: QueueFiles, found: FoundRecord, address: int
    ) -> Generator[AuditFinding]:
        """Compare the ext unit of a record with it."""
        reader = self._ext.get(key)
        if reader is None:
            reader = ExtReader(self._files, self._root, queue.topic, queue.queue_id)
            self._ext[key] = reader
        unit = reader.unit(address)
        header = found.record.header
        name = f"{queue.topic} {queue.queue_id}: unit {header.queue_offset}"
        if unit is None:
            yield problem("queue", queue.folder, None, f"{name} points to no ext unit")
        elif not _is_tag_code(found, unit.tag_code) or unit.stored_at_ms != header.stored_at_ms:
            text = f"{name} points to an ext unit of another tag or time"
            yield problem("queue", queue.folder, None, text)

    def _miss(self, key: tuple[bytes, int], queue_offset: int, offset: int) -> None:
        if offset >= self.dispatched:
            self._undispatched += 1
            return
        missing = self._missing.get(key)
        if missing is None:
            self._missing[key] = _Missing(queue_offset, offset)
        else:
            missing.count += 1

    def _strays(
        self, queue: QueueFiles, found: FileUnits, end: int | None = None
    ) -> Generator[AuditFinding]:
        """Yield the units without a record, but for records that were deleted or are bad."""
        units = found.units
        turned, _ = find_turned(units, self._log_end)
        yield from self._problem(queue, found, turned, f"have their {_IN_WRONG_ORDER} them")
        is_real = (units["size"] != 0) & (units["size"] != PADDING_SIZE)
        is_stray = is_real & (units["offset"] >= self._log_start)
        is_stray[turned] = False
        for start, stop in self._bad if is_stray.any() else ():
            is_stray &= (units["offset"] < start) | (units["offset"] >= stop)
        rows = is_stray.nonzero()[0]
        self.units += int((units["size"] != 0).sum())
        what = "point to no record"
        if end is not None and len(rows) and int(units["offset"][rows[0]]) >= end:
            what = "point behind the log's end"
        yield from self._problem(queue, found, rows, what)

    def _problem(
        self, queue: QueueFiles, found: FileUnits, rows: Ints, what: str
    ) -> Generator[AuditFinding]:
        """Yield a problem of the units in `rows`, if any."""
        if not len(rows):
            return
        first = found.first + int(rows[0])
        offset = int(found.units["offset"][rows[0]])
        text = f"{len(rows)} units {what}, the first is {first}, of {offset}"
        at = first * UNIT_BYTES - found.file.base
        yield problem("queue", found.file.path, at, f"{queue.topic} {queue.queue_id}: {text}")

    def check_files(self, *, was_clean: bool) -> Generator[AuditFinding]:
        """Yield the files that do not fit the others of their queue.

        After a crash, with `was_clean` False, an empty last file is a note: it is new.
        """
        queues = [cursor.queue for cursor in self._queues.values()]
        wrong = dict(misfits(queues))
        for queue in queues:
            for file in queue.files:
                if file.path not in wrong:
                    continue
                is_new = not was_clean and file is queue.files[-1] and not file.file_bytes
                finding = note if is_new else problem
                self.faulty.add((queue.topic.encode(), queue.queue_id))
                text = f"{wrong[file.path]}: the next start removes it"
                yield finding("queue", file.path, None, text)

    def finish(self, end: int) -> Generator[AuditFinding]:
        """Yield the units behind the log's end, and the records without a unit."""
        for cursor in self._queues.values():
            for units in cursor.take_to(QueueOffset(1 << 62)):
                for finding in self._strays(cursor.queue, units, end):
                    self.faulty.add((cursor.queue.topic.encode(), cursor.queue.queue_id))
                    yield finding
        for (topic, queue_id), missing in sorted(self._missing.items()):
            name = topic.decode(errors="replace")
            text = (
                f"{missing.count} records have no unit, the first is {missing.first},"
                f" at {missing.offset} of the log"
            )
            known = self._queues.get((topic, queue_id))
            path = None if known is None else known.queue.folder
            self.faulty.add((topic, queue_id))
            yield problem("queue", path, None, f"{name} {queue_id}: {text}")
        for topic, count in sorted(self._without_topic.items()):
            name = topic.decode(errors="replace")
            yield note("queue", None, None, f"{count} records of topic {name}, which was deleted")
        if self._undispatched:
            text = f"{self._undispatched} records have no unit yet; the next start makes them"
            yield note("queue", None, self.dispatched, text)


def _is_tag_code(found: FoundRecord, code: int) -> bool:
    """Return whether a unit of the record may have this tag code.

    Delayed messages have their delivery time instead, and so have timed ones, but not RocketMQ's.
    Versions that counted delays from before the store time have some ticks less.
    """
    record = found.record
    properties = decode_properties(record.properties)
    if record.topic == SCHEDULE_TOPIC.encode() and "DELAY" in properties:
        return code >= record.header.stored_at_ms
    if record.topic == WHEEL_TOPIC.encode():
        right = wheel_code(properties, record.header.stored_at_ms)
        if right is not None and code - right in CODES_BESIDE:
            return True
    return code == tag_code(properties.get(TAGS, ""))
