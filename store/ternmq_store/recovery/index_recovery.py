"""Recovery of the index: it is brought into agreement with the log.

The log is settled before. Its missing keys are read and added: after a crash, when files were
damaged or removed, or after a time without an index.

Source: RocketMQ `IndexService.load`, `CommitLogDispatcherBuildIndex`.
"""

import logging
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from ternmq_model.clock import Clock
from ternmq_model.index_keys import find_keys
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.scanner import Verify
from ternmq_store.config import StoreConfig
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.index.index_files import IndexFiles
from ternmq_store.log.commit_log import CommitLog
from ternmq_store.log.log_notes import LastUse
from ternmq_store.log.quarantine import Quarantine
from ternmq_store.log.store_session import StoreSession
from ternmq_store.opened_files import OpenedFiles
from ternmq_store.recovery.log_scan import find_good

logger = logging.getLogger(__name__)

_RECORDS_MAX: Final = 4096
_NEIGHBOURS: Final = 64


def open_index(
    files: FileSystem, root: Path, config: StoreConfig, clock: Clock, opened: OpenedFiles
) -> OpenedFiles:
    """Return `opened` with its complete index, unless the settings turn it off.

    Raises:
        OSError: A file cannot be read or written, or there is no space.
    """
    if not config.index_enabled:
        return opened
    index = IndexFiles.open(
        files, root, slots=config.index_slots, entries=config.index_entries, clock=clock
    )
    try:
        session = opened.session
        settle_index(
            index,
            opened.log,
            session.quarantine,
            opened.dispatcher.offset,
            durable=_durable(index, session),
            notes=session.index_notes,
        )
        for path in index.take_dirty():
            with closing(files.open(path)) as file:
                file.sync()
    except OSError:
        index.close()
        raise
    opened.dispatcher.index = index
    return replace(opened, index=index)


def _durable(index: IndexFiles, session: StoreSession) -> PhysicalOffset | None:
    """Return the log offset before which all entries are on the disk; None = all are."""
    match session.last_use:
        case LastUse.CLEAN | LastUse.FOREIGN_CLEAN:
            return None
        case LastUse.CRASHED:
            dispatched = PhysicalOffset(session.checkpoint.dispatched_offset)
            return max(dispatched, session.index_durable)
        case LastUse.FOREIGN_CRASHED:
            return index.durable_at(session.checkpoint.index_stored_at_ms)


def settle_index(
    index: IndexFiles,
    log: CommitLog,
    quarantine: Quarantine,
    end: PhysicalOffset,
    *,
    durable: PhysicalOffset | None,
    notes: Sequence[str] = (),
) -> int:
    """Bring the index into agreement with the log up to `end`.

    Args:
        index: Index before its first use.
        log: Log whose records are good, or in `quarantine`.
        quarantine: Damaged ranges of the log.
        end: End of the log, or of its dispatched part.
        durable: Log offset before which entries are on the disk after a crash; None = a clean stop.
        notes: `IndexFiles.notes` of the last clean stop, if known.

    Returns:
        Count of records read.

    Raises:
        OSError: A file cannot be read or written, or there is no space.
    """
    if durable is not None:
        index.cut(min(durable, end))
    elif any(info.has_entries and info.header.end_offset >= end for info in index.infos()):
        index.cut(end)
    if not _drop_behind_gap(index, log) and durable is None:
        index.trust_notes(notes)
    start = max(index.indexed_to, log.start)
    count = _catch_up(index, log, quarantine, start, end)
    if count > 1 and start < end:
        logger.info("index caught up from=%d to=%d records=%d", start, end, count)
    index.trust(end)
    return count


def _drop_behind_gap(index: IndexFiles, log: CommitLog) -> bool:
    """Drop all files behind a missing one, and return whether there was one.

    A file is missing if the log has a key between the records of two neighbours.
    """
    before = PhysicalOffset(-1)
    for info in index.infos():
        header = info.header
        if header.next_number > 1:
            if _has_key_between(log, before, PhysicalOffset(header.begin_offset)):
                index.drop_from(info.path)
                return True
            before = PhysicalOffset(header.end_offset)
    return False


def _has_key_between(log: CommitLog, before: PhysicalOffset, end: PhysicalOffset) -> bool:
    """Return whether a record right behind the one at `before` has a key."""
    at = max(before, log.start)
    for _ in range(2):  # the next record may lie in the next file
        if at >= min(end, log.end) or not log.files.has(at):
            return False
        file = log.files.at(at)
        limit = min(end, file.end, log.end)
        found = log.scan(at, limit, records_max=_NEIGHBOURS, verify=Verify.NOTHING)
        if found.batch is not None:
            keys = find_keys(found.batch)
            offsets = found.batch.headers["physical_offset"].astype(np.int64)[keys.rows]
            if (offsets > before).any():
                return True
        if not found.is_blank:
            return False
        at = PhysicalOffset(file.end)
    return False


def _catch_up(
    index: IndexFiles,
    log: CommitLog,
    quarantine: Quarantine,
    start: PhysicalOffset,
    log_end: PhysicalOffset,
) -> int:
    at, count = PhysicalOffset(start), 0
    while at < log_end:
        behind = quarantine.end_at(at)
        if behind is not None:
            at = behind
            continue
        file = log.files.at(at)
        bad = (damaged.start for damaged in quarantine.ranges if damaged.start > at)
        limit = min(log_end, file.end, next(bad, log_end))
        found = log.scan(at, limit, records_max=_RECORDS_MAX, verify=Verify.NOTHING)
        end = PhysicalOffset(file.base + found.end)
        if found.batch is not None:
            headers = found.batch.headers
            offsets = headers["physical_offset"].astype(np.int64)
            times = headers["stored_at_ms"].astype(np.int64)
            index.put(find_keys(found.batch), offsets, times, end)
            count += len(found.batch)
        if found.is_blank:
            end = PhysicalOffset(file.end)
        elif end == at:
            logger.warning("index skipped unreadable records log_offset=%d err=%s", at, found.error)
            good = find_good(log, PhysicalOffset(at + 1))
            end = PhysicalOffset(limit if good is None else min(limit, good.offset))
        at = end
    return count
