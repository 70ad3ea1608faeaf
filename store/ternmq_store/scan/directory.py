"""A store's directory as it is read from outside: which files it has, and what is known of them.

Nothing is opened for writing, and the lengths of files are read off the files. A broker may use the
directory meanwhile.
"""

import logging
from collections.abc import Sequence
from contextlib import closing
from functools import cached_property
from pathlib import Path

from ternmq_model.errors import CorruptRecord, StoreError
from ternmq_model.offsets import UNIT_BYTES, PhysicalOffset, QueueOffset
from ternmq_model.record.format import decode_record
from ternmq_model.record.scanner import Verify
from ternmq_store.config import StoreConfig
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.layout import (
    commit_log_folder,
    consume_queue_folder,
    file_base,
    lock_path,
    queue_ext_folder,
    queue_folder,
)
from ternmq_store.disk.mapped_file_queue import FoundFile
from ternmq_store.inspection.log_inspection import (
    check_folder,
    find_log_files,
)
from ternmq_store.inspection.overlay import OverlayFileSystem
from ternmq_store.inspection.queue_inspection import QueueFiles, find_queues
from ternmq_store.log.checksum_ranges import Ranges, is_inside, next_border
from ternmq_store.log.log_notes import LastUse, load_abort
from ternmq_store.log.log_window import LogWindow
from ternmq_store.log.quarantine import Quarantine
from ternmq_store.log.store_session import StoreSession
from ternmq_store.queues.consume_queue_ext import ExtSource
from ternmq_store.queues.consume_queues import count_in_row, unit_file_bytes
from ternmq_store.queues.offset_search import first_from, first_kept
from ternmq_store.queues.unit_files import UnitFiles
from ternmq_store.queues.units import PADDING_SIZE
from ternmq_store.read.log_source import LogSource
from ternmq_store.recovery.log_files import LogFilePlan, find_plan, right_path
from ternmq_store.scan.scan_spec import ScanRange

logger = logging.getLogger(__name__)


class StoreDirectory:
    """A store's directory for one reader. To make one reads little of it and leaves nothing open.

    Files of the log that do not fit are read as a start would leave them: without what is none of
    the log, and with what is missing as a damaged range.

    Raises:
        StoreNotFound: There is no store.
        UndecidedStore: No start would tell which files are the log's, or how long they are.
        StoreError: Somebody removed a file of the log while a broker uses it.
        OSError: It cannot be read.

    Attributes:
        files: The file system, with the log's files as they should be.
        root: The directory.
        broker_name: Name of the broker whose store this is, for rows.
        log_start: Where the log began when this was made.
        log_end: Behind its last file then.
        log_file_bytes: Of each file of the log; 0 when there is none.
        is_in_use: A broker used it then.
        was_cut_short: A broker uses it, or the last one did not bring its use to an end.
        quarantine: Ranges of the log that are known to be damaged.
        checksummed: Ranges of the log in which every record has a checksum of the whole.
        may_map: Files of the log may be mapped to read single records of them.
    """

    def __init__(self, files: FileSystem, root: Path, broker_name: str = "") -> None:
        check_folder(files, root)
        session = StoreSession(files, root, self._tell)
        # That a file cannot be read is for those to tell who want something of it.
        plan = find_plan(files, root, session, StoreConfig().commit_log_file_bytes, unread=OSError)
        self.files = files if plan.is_in_order else _fitted(files, plan)
        self.root = root
        self.broker_name = broker_name
        self.log_file_bytes = plan.file_bytes if plan.row else 0
        self.log_start = PhysicalOffset(plan.row[0].base if plan.row else 0)
        self.log_end = PhysicalOffset(plan.row[-1].base + plan.file_bytes if plan.row else 0)
        self.is_in_use = files.is_locked(lock_path(root))
        lost = [file.path for file in plan.row[:-1] if not file.file_bytes]
        if self.is_in_use and lost:  # a start puts a file there, and retention leaves no gap
            raise StoreError(f"{lost[0]} was removed while a broker uses the store")
        self.was_cut_short = load_abort(files, root) is not None
        # What was noted before somebody else used the directory does not count.
        counts = session.last_use in (LastUse.CLEAN, LastUse.CRASHED)
        self.quarantine = session.quarantine if counts else Quarantine()
        for damaged in plan.damage(session.flushed):
            self.quarantine.add(damaged.start, damaged.end, damaged.reason)
        self.checksummed: Ranges = tuple(session.ranges) if counts else ()
        self.may_map = True
        self._unit_file_bytes: int | None = None

    def _tell(self, reason: str) -> None:
        logger.warning("notes of a store do not count path=%s reason=%s", self.root, reason)

    def source(self, log_end: int | None = None) -> LogSource:
        """Return the log up to a place; None = as far as it went."""
        return LogSource(
            files=self.files,
            folder=commit_log_folder(self.root),
            file_bytes=self.log_file_bytes,
            start=self.log_start,
            end=self.log_end if log_end is None else PhysicalOffset(log_end),
            verify=self.verify,
            read_ahead=True,
            beginnings=(),
            damaged=self.quarantine.places,
        )

    def verify(self, offset: PhysicalOffset) -> Verify:
        """Return how much of the record at `offset` is checked."""
        return Verify.WHOLE if is_inside(self.checksummed, offset) else Verify.BODY

    def border_behind(self, offset: PhysicalOffset) -> PhysicalOffset | None:
        """Return the first place behind `offset` where `verify` may tell another thing."""
        return next_border(self.checksummed, offset)

    @property
    def unit_file_bytes(self) -> int:
        """Length of the queues' files; 0 when there is none."""
        if self._unit_file_bytes is None:
            self._unit_file_bytes = unit_file_bytes(
                [
                    file.file_bytes
                    for queue in find_queues(self.files, self.root)
                    for file in queue.files
                ]
            )
        return self._unit_file_bytes

    def unit_files(self, topic: str, queue_id: int, begin: int, end: int) -> UnitFiles:
        """Return the reader of a queue's units."""
        folder = queue_folder(self.root, topic, queue_id)
        return UnitFiles(self.files, folder, self.queue_file_bytes(topic, queue_id), begin, end)

    def queue_file_bytes(self, topic: str, queue_id: int) -> int:
        """Return the length of one queue's files; that of others when it has none yet."""
        folder = queue_folder(self.root, topic, queue_id)
        for name in self.files.files(folder):
            if file_base(name) is not None:
                length = _file_bytes(self.files, folder / name)
                if length and not length % UNIT_BYTES:
                    return length
        return self.unit_file_bytes or UNIT_BYTES

    def ext_source(self, topic: str, queue_id: int) -> ExtSource | None:
        """Return where the tag codes lie that units have no room for; None if there are none."""
        folder = queue_ext_folder(self.root, topic, queue_id)
        for name in self.files.files(folder):
            if file_base(name) is not None and (length := _file_bytes(self.files, folder / name)):
                return ExtSource(self.files, folder, length)
        return None

    def queues(self) -> Sequence[ScanRange]:
        """Return every queue with what can be read of it: from its first message to its last unit.

        Where nobody closed the store, as after a crash and in a copy of a directory in use, the
        last units may tell of messages that the log does not have: these do not count, as they
        would not for a broker that opens it. Queues of which no message is left are not returned.

        Raises:
            StoreError: Files of a queue are missing, or have several lengths; or there are only
                records, or only queues.
            OSError: It cannot be read.
        """
        found: list[ScanRange] = []
        is_closed = self.is_in_use or not self.was_cut_short
        content = None if is_closed else self._content_end
        queues = find_queues(self.files, self.root)
        self._check_whole(queues)
        length = unit_file_bytes([file.file_bytes for queue in queues for file in queue.files])
        for queue in queues:
            row = [file for file in queue.files if file.file_bytes]
            if not row:
                continue
            _check_row(row, length)
            begin, end = row[0].base // UNIT_BYTES, (row[-1].base + length) // UNIT_BYTES
            with closing(UnitFiles(self.files, queue.folder, length, begin, end)) as units:
                units.end = units.written_end()
                if content is not None:
                    self._cut(units, content, queue.folder)
                first = first_kept(units, self.log_start)
            if first < units.end:
                found.append(ScanRange(queue.topic, queue.queue_id, first, units.end))
        return found

    def _check_whole(self, queues: Sequence[QueueFiles]) -> None:
        """Refuse a directory that is not in use and lacks its queues, or its log, altogether."""
        folder = consume_queue_folder(self.root)
        if self.log_end and not self.is_in_use and not self.files.exists(folder):
            raise StoreError(
                f"{folder} is missing: without queues nobody knows which records are messages"
            )
        path = next((file.path for queue in queues for file in queue.files), None)
        if path is not None and not self.log_end:
            raise StoreError(f"{commit_log_folder(self.root)} has no files, though there is {path}")

    @cached_property
    def _content_end(self) -> PhysicalOffset:
        """Return where the log ends: behind it is nothing but zeros."""
        for file in reversed(find_log_files(self.files, self.root)):
            with closing(self.files.open(file.path, read_only=True)) as opened:
                if end := LogWindow.of_file(opened, file.base).content_end(0):
                    return PhysicalOffset(file.base + end)
        return self.log_start

    def _cut(self, units: UnitFiles, content: PhysicalOffset, folder: Path) -> None:
        """Leave out the last units when the log, which ends at `content`, lacks their records."""
        written = units.end
        units.end = first_from(units, content)
        if units.end > units.min_offset:
            place, size, _ = units.unit(QueueOffset(units.end - 1))
            is_last = size != PADDING_SIZE and place + size >= content and place >= self.log_start
            if is_last and not self._is_whole(place, size):
                units.end = QueueOffset(units.end - 1)
        if units.end < written:
            logger.warning(
                "the log ends before a queue does, which nobody closed path=%s messages=%d to %d",
                folder,
                units.end,
                written - 1,
            )

    def _is_whole(self, place: PhysicalOffset, size: int) -> bool:
        """Return whether the log's last record is all there: no property ends with a zero."""
        file, base = self.source().open(place)
        try:
            record = decode_record(file.read(place - base, size), 0, at=place)
        except CorruptRecord:
            return False
        finally:
            file.close()
        return record is not None and not record.properties.endswith(b"\0")

    def first_message(self, topic: str, queue_id: int, end: int) -> QueueOffset:
        """Return the first message of a queue whose record the log has now; `end` if none has.

        Args:
            topic: The queue's.
            queue_id: Its number.
            end: Behind its last message.
        """
        folder = consume_queue_folder(self.root) / topic / str(queue_id)
        bases = [base for base in map(file_base, self.files.files(folder)) if base is not None]
        log = [
            base
            for name in self.files.files(commit_log_folder(self.root))
            if (base := file_base(name)) is not None
        ]
        if not bases or not log:
            return QueueOffset(end)
        with closing(self.unit_files(topic, queue_id, min(bases) // UNIT_BYTES, end)) as units:
            return first_kept(units, PhysicalOffset(min(log)))


def _fitted(files: FileSystem, plan: LogFilePlan) -> FileSystem:
    """Return the files with those of the log as `plan` has them; none is changed."""
    fitted = OverlayFileSystem(files)
    for file in plan.misnamed:
        fitted.rename(file.path, right_path(file))
    for stray in plan.strays:
        fitted.remove(stray.file.path)
    for file in (*plan.long, *plan.short):
        fitted.open(file.path, create=True).resize(plan.file_bytes)
    strays = (stray.file for stray in plan.strays)
    for odd in (*plan.misnamed, *strays, *plan.long, *plan.short):
        logger.warning(
            "a file of the log does not fit, the next start mends it path=%s bytes=%d",
            odd.path,
            odd.file_bytes,
        )
    return fitted


def _check_row(row: Sequence[FoundFile], length: int) -> None:
    """Refuse files that do not follow each other.

    Raises:
        StoreError: One does not; names it.
    """
    fits = count_in_row([(file.base, file.file_bytes) for file in row], length)
    if fits < len(row):
        file = row[fits]
        if file.file_bytes != length:
            reason = f"has {file.file_bytes} bytes, others have {length}"
        else:
            reason = "does not follow the file before it"
        raise StoreError(f"{file.path} {reason}: files are missing, cut, or of several stores")


def _file_bytes(files: FileSystem, path: Path) -> int:
    """Return the length of the file at `path`; 0 when it was deleted meanwhile."""
    try:
        file = files.open(path, read_only=True)
    except FileNotFoundError:
        return 0
    with closing(file):
        return file.size()
