"""Opened files of a store, and findings and report of their recovery.

Recovery makes them; reads, flushes, retention and replication use them without recovery.
"""

import enum
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ternmq_model.offsets import PhysicalOffset
from ternmq_store.dispatch.log_dispatcher import LogDispatcher
from ternmq_store.index.index_files import IndexFiles
from ternmq_store.log.commit_log import CommitLog
from ternmq_store.log.store_session import StoreSession
from ternmq_store.queues.consume_queues import ConsumeQueues

logger = logging.getLogger(__name__)


class RecoveryAction(enum.Enum):
    """Outcome of a recovery finding."""

    CUT = "cut"
    """Removed end of a queue, or of the log, where it never counted as stored."""

    QUARANTINED = "quarantined"
    """Damaged part of the log, left in place; readers pass over it."""

    REBUILT = "rebuilt"
    """Built again from the log."""

    SET_ASIDE = "set aside"
    """File or bytes foreign to the log, moved beside it."""

    REMOVED = "removed"
    """File without a record."""

    REPAIRED = "repaired"
    """File, unit or range that is right again."""

    LOST = "lost"
    """Part of the log that was on the disk and is in no file now."""

    REPORTED = "reported"
    """Oddity that is left in place."""


class RecoveryFinding(NamedTuple):
    """One finding of a recovery, with its outcome."""

    what: RecoveryAction
    file: Path
    offset: int
    """Byte offset in the log or in a queue, according to `file`."""
    length: int
    """Length in bytes; 0 = the finding has no extent."""
    reason: str


_LOSSES = frozenset({RecoveryAction.QUARANTINED, RecoveryAction.SET_ASIDE, RecoveryAction.LOST})


class RecoveryFindings:
    """Findings of one recovery, each of which is logged. Owned by the opening."""

    def __init__(self) -> None:
        self.all: list[RecoveryFinding] = []
        """Findings in the order of `add`."""

    def extend(self, findings: Iterable[RecoveryFinding]) -> None:
        """Add and log several findings."""
        for finding in findings:
            self.add(*finding)

    def add(self, what: RecoveryAction, file: Path, offset: int, length: int, reason: str) -> None:
        """Add and log a finding; one that may have lost messages is an error."""
        self.all.append(RecoveryFinding(what, file, offset, length, reason))
        logger.log(
            logging.ERROR if what in _LOSSES else logging.WARNING,
            "store recovery action=%s file=%s position=%s bytes=%s reason=%s",
            what.value,
            file,
            offset,
            length,
            reason,
        )


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """Report of a recovery."""

    was_clean: bool
    """True after a clean stop."""

    log_files: int
    scanned_from: PhysicalOffset
    """Log offset from which records were checked."""

    end: PhysicalOffset
    """End of the log."""

    cut_bytes: int
    """Count of bytes behind the end that were zeroed."""

    cut_reason: str
    """Damage of the first bytes cut; empty = no bytes were cut."""

    records_scanned: int
    queues: int
    queues_rebuilt: bool
    """True if a consume queue was missing or wrong, and all were built from the whole log."""

    findings: Sequence[RecoveryFinding] = ()
    """Findings in the order of the recovery."""


@dataclass(frozen=True, slots=True)
class OpenedFiles:
    """The files of an open store, in agreement with each other and on the disk."""

    log: CommitLog
    queues: ConsumeQueues
    dispatcher: LogDispatcher
    session: StoreSession
    report: RecoveryReport
    stored_at_ms: int
    """Store time of the newest record that the scan read, dispatched or not."""

    serve_to: PhysicalOffset | None
    """Log offset behind which no record is dispatched; None = there is no limit."""

    index: IndexFiles | None = None
    """Index of message keys; None when the store has none."""

    def newest_stored_at_ms(self) -> int:
        """Return the store time of the last readable message of the log; 0 if there is none.

        Other messages may have a later store time, if the clock was ahead at their storage.
        """
        units = [unit for queue in self.queues if (unit := queue.last_unit()) is not None]
        for unit in sorted(units, key=lambda unit: unit.offset, reverse=True):
            record = self.log.record_at(unit.offset, self.dispatcher.offset)
            if record is not None and record.header.stored_at_ms:
                return record.header.stored_at_ms
        return 0
