"""Decisions that an operator must make about a data directory. Nothing is written."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from ternmq_broker.state.table_formats import StoredTables
from ternmq_broker.state.table_generations import BAD, config_folder, lost_tables
from ternmq_console.store.rows import json_line
from ternmq_console.store.table_check import is_slave
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.layout import aside_folder, cut_folder
from ternmq_store.inspection.audit import BadPlace
from ternmq_store.inspection.recovery_preview import RecoveryPreview
from ternmq_store.recovery.recovery_decisions import (
    RecoveryDecision,
    RecoveryOption,
    UndecidedState,
    repair_command,
)

_PLACES_MAX: Final = 5
"""Most places in the text of a decision. The text has the number of the others."""


def decisions(
    root: Path,
    *,
    preview: RecoveryPreview,
    found: StoredTables,
    bad: Sequence[BadPlace],
    areas: Collection[str],
    was_closed: bool,
    leftovers: Sequence[Path],
) -> Sequence[RecoveryDecision]:
    """Return the open decisions. Decisions that block a start come first. Pure.

    Args:
        root: Data directory that is not in use.
        preview: Result of opening the store in memory.
        found: Tables of the directory.
        bad: Damaged places of the log.
        areas: Areas of the problems, from `AuditFinding.area`.
        was_closed: The last use ended with a close.
        leftovers: Files that were set aside.
    """
    all_of = (
        preview.choice,
        lost_tables(root, found, is_slave=is_slave(found)),
        _damaged_log(preview, bad),
        _wrong_queues(root, preview, areas, was_closed=was_closed),
        _leftovers(root, leftovers),
    )
    return [each for each in all_of if each is not None]


def _damaged_log(preview: RecoveryPreview, bad: Sequence[BadPlace]) -> RecoveryDecision | None:
    if preview.report is None:
        return None
    end = preview.report.end
    places = [place for place in bad if place.offset < end]
    if not places:
        return None
    listed = [f"{place.file} offset {place.offset}" for place in places[:_PLACES_MAX]]
    more = f" and {len(places) - _PLACES_MAX} more places" if len(places) > _PLACES_MAX else ""
    text = f"the log is damaged at {', '.join(listed)}{more}; readers pass over it"
    ways = (
        RecoveryOption(
            "Promote a slave that has these records, and let this member follow with an empty"
            " directory"
        ),
        RecoveryOption("Otherwise no action is possible: the records there are lost"),
    )
    return RecoveryDecision(UndecidedState.DAMAGED_LOG, text, ways)


def _wrong_queues(
    root: Path, preview: RecoveryPreview, areas: Collection[str], *, was_closed: bool
) -> RecoveryDecision | None:
    wrong = [name for name in ("queue", "index") if name in areas]
    if preview.report is None or preview.report.queues_rebuilt or not wrong:
        return None
    names = {"queue": "consume queues", "index": "the index"}
    text = f"{' and '.join(names[each] for each in wrong)} and the log do not agree"
    ways = (
        RecoveryOption(
            "Start the broker: it completes what ends too early, and mends units as they are met"
        ),
        RecoveryOption(
            "To rebuild all of it at the next start"
            if was_closed
            else "To rebuild all of it, after the broker was started and stopped in order",
            repair_command(root),
        ),
    )
    return RecoveryDecision(UndecidedState.WRONG_QUEUES, text, ways)


def _leftovers(root: Path, found: Sequence[Path]) -> RecoveryDecision | None:
    if not found:
        return None
    listed = ", ".join(map(str, found[:_PLACES_MAX]))
    more = f" and {len(found) - _PLACES_MAX} more" if len(found) > _PLACES_MAX else ""
    ways = (
        RecoveryOption("Check whether you need any of these files: the broker reads none of them"),
        RecoveryOption("To remove all of it", repair_command(root, "--leftovers")),
    )
    return RecoveryDecision(
        UndecidedState.LEFTOVERS, f"set aside and kept for you: {listed}{more}", ways
    )


def leftovers(files: FileSystem, root: Path) -> Sequence[Path]:
    """Return the files that starts, cuts of the log and accepted tables set aside."""
    found = [
        folder / name
        for folder in (aside_folder(root), cut_folder(root))
        if files.exists(folder)
        for name in files.files(folder)
    ]
    config = config_folder(root)
    names = files.files(config) if files.exists(config) else ()
    return found + [config / name for name in names if name.endswith(BAD)]


def decision_lines(choice: RecoveryDecision) -> Sequence[str]:
    """Return a decision as text, with a line for each option."""
    lines = [f"decide  {choice.state.value}: {choice.text}"]
    for when, command in choice.ways:
        lines.append(f"        - {when}: {command}" if command else f"        - {when}")
    return lines


def decision_json(choice: RecoveryDecision) -> str:
    """Return a decision as one line of JSON."""
    row = {
        "kind": "decision",
        "state": choice.state.value,
        "text": choice.text,
        "ways": [{"when": when, "command": command or None} for when, command in choice.ways],
    }
    return json_line(row)
