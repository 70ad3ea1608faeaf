"""Description of the next start of a store. Pure."""

from collections.abc import Collection, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

from ternmq_store.disk.layout import consume_queue_folder
from ternmq_store.inspection.audit import BadPlace, LogState
from ternmq_store.inspection.recovery_preview import RecoveryPreview
from ternmq_store.log.log_notes import LastUse
from ternmq_store.opened_files import RecoveryAction, RecoveryFinding, RecoveryReport

_SAID_MAX: Final = 20
"""Most sentences of one kind. A last sentence has the number of the others."""


def next_start(
    *,
    state: LogState,
    last_use: LastUse,
    preview: RecoveryPreview | None,
    bad: Sequence[BadPlace],
    areas: Collection[str],
    tables: Sequence[str],
) -> Sequence[str]:
    """Return a sentence for each thing that the next start does.

    Args:
        state: State of the store: in use, or its last end.
        last_use: End of the last use.
        preview: Result of opening the store in memory; None = the store is in use.
        bad: Damaged places of the log.
        areas: Areas of the problems, from `AuditFinding.area`.
        tables: Sentences about tables without a valid generation.
    """
    if state is LogState.IN_USE or preview is None:
        return (
            "The store is in use: data written during the check may look unfinished here;"
            " check again, or check a copy. The effect of a start is unknown.",
        )
    said = [*tables]
    if preview.refusal:
        return [*said, f"The store is refused, and stays as it is: {preview.refusal}."]
    if preview.report is None:
        return [*said, f"The effect of a start is uncertain: {preview.unknown}."]
    report = preview.report
    said.append(_log_words(last_use, report))
    said += _finding_words(report.findings)
    said += _removed_words(preview.log_files_removed, report)
    said += _left_words(preview, bad, report)
    if "queue" in areas and not report.queues_rebuilt:
        said.append(
            "Consume queue units that are wrong stay so until a reader or the verification meets"
            " one."
        )
    if "index" in areas:
        said.append(
            "An index that ends too early is completed from the log; the verification mends"
            " wrong entries."
        )
    return said


def _log_words(last_use: LastUse, report: RecoveryReport) -> str:
    how = {
        LastUse.CLEAN: "The store was closed cleanly",
        LastUse.FOREIGN_CLEAN: "After an interrupted use another program closed the store",
        LastUse.CRASHED: "The store was not closed",
        LastUse.FOREIGN_CRASHED: "The store was not closed, and another program used it last",
    }[last_use]
    if last_use.is_clean and not report.findings and not report.records_scanned:
        return f"{how}: it is opened as it is."
    return f"{how}: the log is checked from {report.scanned_from} on, and ends at {report.end}."


def _finding_words(findings: Sequence[RecoveryFinding]) -> Sequence[str]:
    said: list[str] = []
    for what, group in groupby(sorted(findings, key=lambda one: one.what.value), _what):
        several = list(group)
        said += [_words(one) for one in several[:_SAID_MAX]]
        if len(several) > _SAID_MAX:
            said.append(f"And {len(several) - _SAID_MAX} more are {what.value}.")
    return said


def _what(finding: RecoveryFinding) -> RecoveryAction:
    return finding.what


def _words(finding: RecoveryFinding) -> str:
    what, path, offset, length, reason = finding
    match what:
        case RecoveryAction.CUT if consume_queue_folder(Path()).name in path.parts:
            return f"Queue {reason}."
        case RecoveryAction.CUT:
            return (
                f"The log is cut there: {length} bytes from {offset} on are removed, with"
                f" their units ({reason})."
            )
        case RecoveryAction.QUARANTINED:
            return (
                f"{length} bad bytes at {offset} of the log stay in place, with their units;"
                f" readers pass over them ({reason})."
            )
        case RecoveryAction.REBUILT:
            return f"All consume queues are rebuilt from the log ({reason})."
        case (
            RecoveryAction.SET_ASIDE
            | RecoveryAction.REMOVED
            | RecoveryAction.REPAIRED
            | RecoveryAction.LOST
            | RecoveryAction.REPORTED
        ):
            return f"{path}, from {offset} on, is {what.value}: {reason}."


def _removed_words(removed: Sequence[Path], report: RecoveryReport) -> Sequence[str]:
    reported = {one.file for one in report.findings if one.what is RecoveryAction.REMOVED}
    gone = [path for path in removed if path not in reported]
    if not gone:
        return ()
    return (f"{len(gone)} files of the log are removed, {gone[0].name} to {gone[-1].name}.",)


def _left_words(
    preview: RecoveryPreview, bad: Sequence[BadPlace], report: RecoveryReport
) -> Sequence[str]:
    left = [
        place.offset
        for place in bad
        if place.offset < report.end
        and not any(damage.start <= place.offset < damage.end for damage in preview.damaged)
    ]
    if not left:
        return ()
    return (
        f"{len(left)} bad records of the log are not searched for then, the first at {left[0]};"
        " readers that meet one pass over it and count it.",
    )
