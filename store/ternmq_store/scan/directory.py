"""Read-only view of a store's directory: its files, and the known facts about them.

No file is opened for writing, and the lengths of files come from the files. A broker may use the
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
    """A store's directory for one reader. Its creation reads little and leaves no file open.

    Log files that do not fit are read as a start would leave them: without foreign files, and with
    missing bytes as a damaged range.

    Raises:
        StoreNotFound: There is no store.
        UndecidedStore: The log's files, or their length, are undecided; a start would fail, too.
        StoreError: A log file was removed while a broker uses the store.
        OSError: The directory cannot be read.

    Attributes:
        files: The file system, with the log files as they should be.
        root: The directory.
        broker_name: Name of the broker whose store this is, for rows.
        log_start: Start of the log at the creation of this object.
        log_end: Log offset behind the last file then.
        log_file_bytes: Length of each log file; 0 = there is none.
        is_in_use: True if a broker used the store then.
        was_cut_short: True if a broker uses the store, or the last one did not close it.
        quarantine: Ranges of the log that are known to be damaged.
        checksummed: Ranges of the log in which every record has a checksum of the whole.
        may_map: True = log files may be mapped for reads of single records.
    """

    def __init__(self, files: FileSystem, root: Path, broker_name: str = "") -> None:
        check_folder(files, root)
        session = StoreSession(files, root, self._log_reason)
        # Only a read of an unreadable file raises its error.
        plan = find_plan(files, root, session, StoreConfig().commit_log_file_bytes, unread=OSError)
        self.files = files if plan.is_in_order else _fitted(files, plan)
        self.root = root
        self.broker_name = broker_name
        self.log_file_bytes = plan.file_bytes if plan.row else 0
        self.log_start = PhysicalOffset(plan.row[0].base if plan.row else 0)
        self.log_end = PhysicalOffset(plan.row[-1].base + plan.file_bytes if plan.row else 0)
        self.is_in_use = files.is_locked(lock_path(root))
        lost = [file.path for file in plan.row[:-1] if not file.file_bytes]
        if self.is_in_use and lost:  # a start fills a gap with a file, and retention leaves none
            raise StoreError(f"{lost[0]} was removed while a broker uses the store")
        self.was_cut_short = load_abort(files, root) is not None
        # Notes from before another program used the directory do not count.
        counts = session.last_use in (LastUse.CLEAN, LastUse.CRASHED)
        self.quarantine = session.quarantine if counts else Quarantine()
        for damaged in plan.damage(session.flushed):
            self.quarantine.add(damaged.start, damaged.end, damaged.reason)
        self.checksummed: Ranges = tuple(session.ranges) if counts else ()
        self.may_map = True
        self._unit_file_bytes: int | None = None

    def _log_reason(self, reason: str) -> None:
        logger.warning("notes of a store ignored folder=%s reason=%s", self.root, reason)

    def source(self, log_end: int | None = None) -> LogSource:
        """Return the source of the log up to a log offset; None = `log_end`."""
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
        """Return the depth of the check of the record at `offset`."""
        return Verify.WHOLE if is_inside(self.checksummed, offset) else Verify.BODY

    def border_behind(self, offset: PhysicalOffset) -> PhysicalOffset | None:
        """Return the next log offset at which `verify` may change; None if there is none."""
        return next_border(self.checksummed, offset)

    @property
    def unit_file_bytes(self) -> int:
        """Length of the consume queue files; 0 = there is none."""
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
        """Return the length of one queue's files; that of other queues if it has none yet."""
        folder = queue_folder(self.root, topic, queue_id)
        for name in self.files.files(folder):
            if file_base(name) is not None:
                length = _file_bytes(self.files, folder / name)
                if length and not length % UNIT_BYTES:
                    return length
        return self.unit_file_bytes or UNIT_BYTES

    def ext_source(self, topic: str, queue_id: int) -> ExtSource | None:
        """Return the source of a queue's extension; None if it has none."""
        folder = queue_ext_folder(self.root, topic, queue_id)
        for name in self.files.files(folder):
            if file_base(name) is not None and (length := _file_bytes(self.files, folder / name)):
                return ExtSource(self.files, folder, length)
        return None

    def queues(self) -> Sequence[ScanRange]:
        """Return the readable range of every queue: from its first message to its last unit.

        After a crash, and in a copy of a directory in use, the last units may point to records that
        the log does not have: these units do not count, as at the start of a broker. Queues without
        messages are left out.

        Raises:
            StoreError: Files of a queue are missing, or have several lengths; or there are only
                records, or only queues.
            OSError: The directory cannot be read.
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
        """Refuse a directory that is not in use and has no queues at all, or no log."""
        folder = consume_queue_folder(self.root)
        if self.log_end and not self.is_in_use and not self.files.exists(folder):
            raise StoreError(
                f"{folder} is missing: the queues distinguish messages from other records"
            )
        path = next((file.path for queue in queues for file in queue.files), None)
        if path is not None and not self.log_end:
            raise StoreError(f"{commit_log_folder(self.root)} has no files, though there is {path}")

    @cached_property
    def _content_end(self) -> PhysicalOffset:
        """Return the log offset behind which the files have only zeros."""
        for file in reversed(find_log_files(self.files, self.root)):
            with closing(self.files.open(file.path, read_only=True)) as opened:
                if end := LogWindow.of_file(opened, file.base).content_end(0):
                    return PhysicalOffset(file.base + end)
        return self.log_start

    def _cut(self, units: UnitFiles, content: PhysicalOffset, folder: Path) -> None:
        """Cut the last units whose records the log, which ends at `content`, does not have."""
        written = units.end
        units.end = first_from(units, content)
        if units.end > units.min_offset:
            place, size, _ = units.unit(QueueOffset(units.end - 1))
            is_last = size != PADDING_SIZE and place + size >= content and place >= self.log_start
            if is_last and not self._is_complete(place, size):
                units.end = QueueOffset(units.end - 1)
        if units.end < written:
            logger.warning(
                "an unclosed log ends before one of its queues folder=%s from=%d to=%d",
                folder,
                units.end,
                written - 1,
            )

    def _is_complete(self, place: PhysicalOffset, size: int) -> bool:
        """Return whether the log's last record is complete: no property ends with a zero."""
        file, base = self.source().open(place)
        try:
            record = decode_record(file.read(place - base, size), 0, at=place)
        except CorruptRecord:
            return False
        finally:
            file.close()
        return record is not None and not record.properties.endswith(b"\0")

    def first_message(self, topic: str, queue_id: int, end: int) -> QueueOffset:
        """Return the first message of a queue whose record is in the log now; `end` if none is.

        Args:
            topic: Topic of the queue.
            queue_id: Number of the queue.
            end: Queue offset behind the last message.
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
    """Return a view of the files with the log files as in `plan`; no file is changed."""
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
            "a file of the log has a wrong length, the next start repairs it file=%s bytes=%d",
            odd.path,
            odd.file_bytes,
        )
    return fitted


def _check_row(row: Sequence[FoundFile], length: int) -> None:
    """Refuse files that do not follow each other.

    Raises:
        StoreError: A file does not follow the one before; the text names it.
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
    """Return the length of the file at `path`; 0 when it was deleted during the scan."""
    try:
        file = files.open(path, read_only=True)
    except FileNotFoundError:
        return 0
    with closing(file):
        return file.size()
