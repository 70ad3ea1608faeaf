"""Preview of the next recovery, by the same code in memory, without a change."""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from ternmq_model.errors import StoreError
from ternmq_store.config import StoreConfig
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.layout import commit_log_folder
from ternmq_store.inspection.audit_findings import AuditFinding, note, problem
from ternmq_store.inspection.overlay import OverlayFileSystem
from ternmq_store.log.quarantine import DamagedRange
from ternmq_store.opened_files import RecoveryAction, RecoveryReport
from ternmq_store.recovery.log_recovery import open_files
from ternmq_store.recovery.recovery_decisions import RecoveryDecision, UndecidedStore

_AREAS: Final[Mapping[str, str]] = {
    "commitlog": "log",
    "checkpoint": "checkpoint",
    "ternmq.store": "notes",
    "ternmq.deletions": "notes",
}


@dataclass(frozen=True, slots=True)
class RecoveryPreview:
    """Outcome of the next opening of a store."""

    report: RecoveryReport | None = None
    """Report of the opening; None = the opening fails."""

    refusal: str = ""
    """Reason of a refusal; empty = the store opens."""

    choice: RecoveryDecision | None = None
    """Decision that the opening needs, or None."""

    unknown: str = ""
    """Reason of an unknown outcome; empty = the outcome is known."""

    log_files_removed: Sequence[Path] = ()
    damaged: Sequence[DamagedRange] = ()
    """Damaged ranges of the log, which stay in place; readers pass over them."""

    ends: Mapping[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])
    """Offset of the next message, by topic and queue id."""


def preview_recovery(
    files: FileSystem, root: Path, config: StoreConfig, *, without: Sequence[Path] = ()
) -> RecoveryPreview:
    """Open the store at `root` in memory and return the outcome, without a change.

    New and changed files take memory: at most `MEMORY_BYTES_MAX`, and the files at the log's end.

    The store must not be in use. Files and empty folders in `without` are removed before.
    """
    overlay = OverlayFileSystem(files)
    try:
        for path in without:
            overlay.remove(path)
        told = _opened(overlay, root, config)
        own = set(without)
        folder = commit_log_folder(root)
        gone = [path for path in overlay.removed if path.parent == folder and path not in own]
        return replace(told, log_files_removed=sorted(gone))
    except UndecidedStore as error:
        return RecoveryPreview(refusal=error.choice.text, choice=error.choice)
    except StoreError as error:
        return RecoveryPreview(refusal=str(error))
    except OSError as error:
        return RecoveryPreview(unknown=str(error))
    finally:
        overlay.close()


def _opened(overlay: OverlayFileSystem, root: Path, config: StoreConfig) -> RecoveryPreview:
    opened = open_files(overlay, root, config, now_ms=0)
    try:
        return RecoveryPreview(
            report=opened.report,
            damaged=opened.session.quarantine.ranges,
            ends={(queue.topic, queue.queue_id): queue.next_offset for queue in opened.queues},
        )
    finally:
        opened.queues.close()
        opened.log.close()


def preview_findings(preview: RecoveryPreview | None) -> Generator[AuditFinding]:
    """Yield the findings of a preview that an audit of the files lacks.

    Refusals, foreign files and losses are problems.
    """
    if preview is None:
        return
    if preview.refusal:
        yield problem("log", None, None, f"the store is refused: {preview.refusal}")
    if preview.report is None:
        return
    for found in preview.report.findings:
        if found.what in {RecoveryAction.LOST, RecoveryAction.REPORTED}:
            area = _AREAS.get(found.file.parent.name, _AREAS.get(found.file.name, "queue"))
            yield problem(area, found.file, found.offset, found.reason)
        elif found.what is RecoveryAction.SET_ASIDE:
            text = f"the next start sets {found.length} bytes aside: {found.reason}"
            yield problem("log", found.file, found.offset, text)
        elif found.what is RecoveryAction.REBUILT:
            yield note("queue", found.file, None, f"{found.reason}: the next start builds them")
