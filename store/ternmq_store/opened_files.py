"""The opened files of a store, and the report of their recovery.

Recovery makes them; reads, flushes, retention and replication work on them and know no recovery.
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
    """End of the log that never counted as stored, or of a queue: removed."""

    QUARANTINED = "quarantined"
    """Damaged part of the log: it stays in place, and readers pass over it."""

    REBUILT = "rebuilt"
    """Made anew from the log."""

    SET_ASIDE = "set aside"
    """Foreign to the log, and moved beside it."""

    REMOVED = "removed"
    """A file that held nothing of use."""

    REPAIRED = "repaired"
    """Brought back into its form."""

    LOST = "lost"
    """Once on the disk, and in no file any more."""

    REPORTED = "reported"
    """Left as it is."""


class RecoveryFinding(NamedTuple):
    """One finding of a recovery, with its outcome."""

    what: RecoveryAction
    file: Path
    offset: int
    """Byte offset in the log, or in the row of a queue's files, according to `file`."""
    length: int
    """Length in bytes; 0 = the finding has no extent."""
    reason: str


_LOSSES = frozenset({RecoveryAction.QUARANTINED, RecoveryAction.SET_ASIDE, RecoveryAction.LOST})


class RecoveryFindings:
    """Findings of one recovery, each of which is logged. Owned by the opening.

    Attributes:
        all: The findings, in the order in which they were added.
    """

    def __init__(self) -> None:
        self.all: list[RecoveryFinding] = []

    def extend(self, findings: Iterable[RecoveryFinding]) -> None:
        """Add and log several findings."""
        for finding in findings:
            self.add(*finding)

    def add(self, what: RecoveryAction, file: Path, offset: int, length: int, reason: str) -> None:
        """Add a finding, and log it: as an error if messages may be lost."""
        self.all.append(RecoveryFinding(what, file, offset, length, reason))
        logger.log(
            logging.ERROR if what in _LOSSES else logging.WARNING,
            "store recovery what=%s file=%s offset=%s bytes=%s reason=%s",
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
    """Bytes behind the end that were not zeros and are now."""

    cut_reason: str
    """Damage of the first bytes cut; empty when there was none."""

    records_scanned: int
    queues: int
    queues_rebuilt: bool
    """A consume queue was missing, cut or wrong: all were compared with the whole log."""

    findings: Sequence[RecoveryFinding] = ()
    """Findings, in the order in which they were made."""

    def as_rows(self) -> Sequence[tuple[str, str, int, int, str]]:
        """Return what, file, offset, bytes and reason of every finding: for a table."""
        return [(f.what.value, str(f.file), f.offset, f.length, f.reason) for f in self.findings]


@dataclass(frozen=True, slots=True)
class OpenedFiles:
    """The files of an open store, in agreement with each other and on the disk."""

    log: CommitLog
    queues: ConsumeQueues
    dispatcher: LogDispatcher
    session: StoreSession
    report: RecoveryReport
    stored_at_ms: int
    """Store time of the newest record that was read, dispatched or not."""

    serve_to: PhysicalOffset | None
    """Log offset behind which no record is dispatched; None = there is no limit."""

    index: IndexFiles | None = None
    """Index of message keys; None when the store has none."""
