"""Opening a store's files: load them, check them, and bring them into agreement.

Nothing is appended before the log's end is known, what lies behind it is zeroed on the disk, and
the consume queues say what the log says.

Source: RocketMQ `DefaultMessageStore.load`, `recover`.
"""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ternmq_model.errors import CorruptRecord, StoreError
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record import decode_record
from ternmq_store.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from ternmq_store.commit_log import CommitLog
from ternmq_store.config import StoreConfig
from ternmq_store.consume_queue import ConsumeQueue
from ternmq_store.consume_queues import ConsumeQueues
from ternmq_store.deletions import load_deletions, save_deletions
from ternmq_store.dispatcher import Dispatcher
from ternmq_store.filesystem import FileSystem
from ternmq_store.flush import write_checkpoint
from ternmq_store.index import IndexFiles
from ternmq_store.layout import (
    abort_path,
    checkpoint_path,
    commit_log_folder,
    consume_queue_folder,
    deletions_path,
    file_name,
    next_file_path,
)
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
    index: IndexFiles | None = None
    """What finds messages by key; None when the store goes without."""


def open_files(files: FileSystem, root: Path, config: StoreConfig) -> OpenedFiles:
    """Load and recover what lies in `root`, which may be empty.

    Every record that was on disk before a crash, up to the first bad one, is kept. When this
    returns the log ends there, on the disk too, and the consume queues agree with it.

    Args:
        files: The file system.
        root: The store's directory, held by the caller.
        config: Sizes for a store that is new.

    Raises:
        StoreError: The log's files are not those of one log; nothing was changed.
        OSError: A file could not be read or written; opening again starts anew.
    """
    was_clean = not files.exists(abort_path(root))
    _write_abort(files, root)
    log = _load_log(files, root, config)
    queues = ConsumeQueues(files, root, config.consume_queue_file_bytes)
    dispatcher = Dispatcher(log, queues)
    dispatcher.dropped = load_deletions(files, deletions_path(root))
    start = _load_queues(queues, dispatcher, was_clean=was_clean)
    _sync_names(files, root, queues, was_clean=was_clean)
    checkpoint = _load_checkpoint(files, root)
    if start is not None and not was_clean:
        start = scan_start(_first_records(log), checkpoint.safe_at_ms) if len(queues) else None
        if start is not None:
            # What was on disk by then is whole; all that came later is built anew from the log.
            _cut_queues(queues, start)
    if start is not None:
        _scan(log, dispatcher, start)
    is_rebuilt = start is None or (dispatcher.gaps > 0 and start > log.start)
    if is_rebuilt:
        start = log.start
        # Until all queues are built anew, no checkpoint may say that they are on the disk.
        checkpoint = Checkpoint()
        write_checkpoint(files, checkpoint_path(root), encode_checkpoint(checkpoint))
        _cut_queues(queues, start)
        _scan(log, dispatcher, start)
    assert start is not None
    cut_bytes = _settle(log, dispatcher, start)
    _settle_deletions(files, root, log, dispatcher)
    for queue in queues:
        queue.correct_min_offset(log.start)
    report = RecoveryReport(
        was_clean=was_clean,
        log_files=len(log.files.files),
        scanned_from=start,
        end=log.end,
        cut_bytes=cut_bytes,
        cut_reason=_reason(dispatcher.stopped_by) if cut_bytes else "",
        records_scanned=dispatcher.scanned,
        queues=len(queues),
        queues_rebuilt=is_rebuilt and len(log.files.files) > 0,
    )
    dispatcher.stopped_by = None
    log.make_room()
    return OpenedFiles(log, queues, dispatcher, checkpoint, report)


def count_files(files: FileSystem, root: Path) -> int:
    """Return how many files of `root` an open store maps.

    Raises:
        OSError: A folder cannot be read.
    """
    count, queues = len(files.files(commit_log_folder(root))), consume_queue_folder(root)
    for topic in files.folders(queues):
        for queue_id in files.folders(queues / topic):
            count += len(files.files(queues / topic / queue_id))
    return count


def _load_queues(
    queues: ConsumeQueues, dispatcher: Dispatcher, *, was_clean: bool
) -> PhysicalOffset | None:
    """Map the queues' files, without those of deleted topics.

    Returns:
        After a clean stop, where the newest record with a unit ends; after a crash, anything. None
        when no queue is to be believed.
    """
    are_whole = queues.load(was_clean=was_clean)
    # A crash may have come between the note that a topic is deleted and the end of its files.
    stale = {
        queue.topic
        for queue in queues
        if queue.begins_before(dispatcher.dropped.get(queue.topic, PhysicalOffset(0)))
    }
    for topic in stale:
        queues.delete(topic)
    if not are_whole or not dispatcher.log.files.files:
        return None
    return _last_dispatched(dispatcher.log, queues) if was_clean else PhysicalOffset(0)


def _sync_names(files: FileSystem, root: Path, queues: ConsumeQueues, *, was_clean: bool) -> None:
    """Bring the names of all that was found to the disk.

    A process that is killed may leave names which only the next one relies on.
    """
    folders = [root, commit_log_folder(root), consume_queue_folder(root)]
    if not was_clean:
        folders += sorted({queue.files.folder.parent for queue in queues})
        folders += [queue.files.folder for queue in queues]
    for folder in folders:
        files.sync_folder(folder)


def _cut_queues(queues: ConsumeQueues, limit: PhysicalOffset) -> None:
    for queue in queues:
        queue.cut_from(limit)


def _write_abort(files: FileSystem, root: Path) -> None:
    """Leave the mark that only a clean stop takes away; it tells who holds the directory."""
    file = files.open(abort_path(root), create=True)
    try:
        file.resize(0)
        file.write(0, str(os.getpid()).encode())
        file.sync()
    finally:
        file.close()
    files.sync_folder(root)


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
    files.make_folder(consume_queue_folder(root))
    log = CommitLog(files, root, file_bytes)
    for file in found:
        log.files.open_file(file.base)
        log.files.park_before(file.base)
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


def _scan(log: CommitLog, dispatcher: Dispatcher, start: PhysicalOffset) -> None:
    """Check the log from `start` on, record by record, and dispatch what is good."""
    dispatcher.offset, dispatcher.stopped_by = start, None
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


def _settle_deletions(
    files: FileSystem, root: Path, log: CommitLog, dispatcher: Dispatcher
) -> None:
    """Forget deletions of what is gone anyway, and those of records that were cut."""
    settled = {
        topic: min(offset, log.end)
        for topic, offset in dispatcher.dropped.items()
        if offset > log.start
    }
    if settled != dispatcher.dropped:
        save_deletions(files, deletions_path(root), settled)
        dispatcher.dropped = settled
