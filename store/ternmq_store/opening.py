"""Opening a store's files: load them, check them, and bring them into agreement.

Nothing is appended before the log's end is known, what lies behind it is zeroed on the disk, and
the consume queues say what the log says.

Source: RocketMQ `DefaultMessageStore.load`, `recover`.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ternmq_model.errors import CorruptRecord, StoreError
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record import decode_record
from ternmq_store.checkpoint import Checkpoint, decode_checkpoint
from ternmq_store.commit_log import CommitLog
from ternmq_store.config import StoreConfig
from ternmq_store.consume_queue import ConsumeQueue
from ternmq_store.consume_queues import ConsumeQueues
from ternmq_store.dispatcher import Dispatcher
from ternmq_store.filesystem import FileSystem
from ternmq_store.layout import checkpoint_path, commit_log_folder, file_name, next_file_path
from ternmq_store.mapped_file_queue import FoundFile, find_files
from ternmq_store.recovery import FirstRecord, RecoveryReport, scan_start

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenedFiles:
    """A store's parts, in agreement with each other and on the disk."""

    log: CommitLog
    queues: ConsumeQueues
    dispatcher: Dispatcher
    checkpoint: Checkpoint
    report: RecoveryReport


def open_files(
    files: FileSystem, root: Path, config: StoreConfig, *, was_clean: bool
) -> OpenedFiles:
    """Load and recover what lies in `root`, which may be empty.

    Every record that was on disk before a crash, up to the first bad one, is kept. When this
    returns the log ends there, on the disk too, and the consume queues agree with it.

    Args:
        files: The file system.
        root: The store's directory, held by the caller.
        config: Sizes for a store that is new.
        was_clean: The store was closed as it should.

    Raises:
        StoreError: The log's files are not those of one log; nothing was changed.
        OSError: A file could not be read or written; opening again starts anew.
    """
    log = _load_log(files, root, config)
    queues = ConsumeQueues(files, root, config.consume_queue_file_bytes)
    are_whole = queues.load()
    checkpoint = _load_checkpoint(files, root)
    dispatcher = Dispatcher(log, queues)
    rebuild = not are_whole or not log.files.files
    if was_clean and not rebuild:
        start = _last_dispatched(log, queues)
        if start is None:
            rebuild = True
        else:
            dispatcher.offset = start
    if rebuild:
        dispatcher.offset = log.start
    elif not was_clean:
        dispatcher.offset = scan_start(_first_records(log), checkpoint.safe_at_ms)
    scanned_from = dispatcher.offset
    if rebuild or not was_clean:
        # What was on disk by then is whole; all that came later is built anew from the log.
        for queue in queues:
            queue.cut_from(scanned_from)
    _scan(log, dispatcher)
    cut_bytes = _settle(log, dispatcher, scanned_from)
    for queue in queues:
        queue.correct_min_offset(log.start)
    report = RecoveryReport(
        was_clean=was_clean,
        log_files=len(log.files.files),
        scanned_from=scanned_from,
        end=log.end,
        cut_bytes=cut_bytes,
        cut_reason=_reason(dispatcher.stopped_by) if cut_bytes else "",
        records_scanned=dispatcher.scanned,
        queues=len(queues),
        queues_rebuilt=rebuild and len(log.files.files) > 0,
    )
    dispatcher.stopped_by = None
    return OpenedFiles(log, queues, dispatcher, checkpoint, report)


def _reason(error: CorruptRecord | None) -> str:
    return error.reason if error else ""


def _load_log(files: FileSystem, root: Path, config: StoreConfig) -> CommitLog:
    if files.exists(next_file_path(root)):
        files.remove(next_file_path(root))
    found = find_files(files, commit_log_folder(root))
    while found and found[-1].file_bytes == 0:
        # The name of a new file reached the disk and nothing else did.
        files.remove(found[-1].path)
        found = found[:-1]
    file_bytes = found[0].file_bytes if found else config.commit_log_file_bytes
    _check_row(found, file_bytes)
    files.make_folder(commit_log_folder(root))
    log = CommitLog(files, root, file_bytes)
    for file in found:
        log.files.open_file(file.base)
    return log


def _check_row(found: Sequence[FoundFile], file_bytes: int) -> None:
    """Refuse files that cannot be those of one log.

    Raises:
        StoreError: Names the first file that does not fit.
    """
    for index, file in enumerate(found):
        if file.file_bytes != file_bytes:
            raise StoreError(f"{file.path} has {file.file_bytes} bytes, others have {file_bytes}")
        expected = found[0].base + index * file_bytes
        if file.base != expected or file.base % file_bytes:
            raise StoreError(f"{file.path} does not follow: {file_name(expected)} is missing")


def _load_checkpoint(files: FileSystem, root: Path) -> Checkpoint:
    path = checkpoint_path(root)
    if not files.exists(path):
        return Checkpoint()
    file = files.open(path)
    try:
        return decode_checkpoint(file.read(0, file.size()))
    finally:
        file.close()


def _last_dispatched(log: CommitLog, queues: ConsumeQueues) -> PhysicalOffset | None:
    """Return where the newest record with a unit ends, after a clean stop.

    None when a queue's last unit does not tell of its record: then no queue is believed.
    """
    newest = log.start
    for queue in queues:
        queue.find_written()
        unit = queue.last_unit()
        if unit is not None and unit.offset >= log.start:
            if not _tells_of(log, queue, unit.offset, unit.size):
                logger.warning(
                    "consume queue differs from the log topic=%s queue=%d end=%d",
                    *(queue.topic, queue.queue_id, queue.end),
                )
                return None
            newest = max(newest, PhysicalOffset(unit.offset + unit.size))
    return newest


def _tells_of(log: CommitLog, queue: ConsumeQueue, offset: PhysicalOffset, size: int) -> bool:
    end = PhysicalOffset(offset + size)
    record = log.record_at(offset, end)
    return (
        record is not None
        and record.header.total_bytes == size
        and record.header.queue_id == queue.queue_id
        and record.topic == queue.topic.encode()
    )


def _first_records(log: CommitLog) -> Sequence[FirstRecord]:
    first: list[FirstRecord] = []
    for file in log.files.files:
        base = PhysicalOffset(file.base)
        try:
            record = decode_record(file.view, 0, at=base)
        except CorruptRecord:
            record = None
        first.append(FirstRecord(base, record.header.stored_at_ms if record else 0))
    return first


def _scan(log: CommitLog, dispatcher: Dispatcher) -> None:
    limit = PhysicalOffset(log.files.last.end if log.files.files else 0)
    while dispatcher.stopped_by is None and dispatcher.offset < limit:
        dispatcher.scan(limit, {}, is_trusted=False)


def _settle(log: CommitLog, dispatcher: Dispatcher, scanned_from: PhysicalOffset) -> int:
    """Let the log end where the scan did, on the disk too; return how many bytes were cut."""
    if not log.files.files:
        return 0
    end = dispatcher.offset
    # After a crash of the process alone, what was scanned may still be in memory only.
    for file in log.files_between(scanned_from, end):
        file.sync()
    return log.cut(end)
