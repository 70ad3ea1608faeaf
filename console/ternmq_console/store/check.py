"""`ternmq store check`: check of all files of a data directory, without changes."""

import logging
from collections.abc import Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path

import click

from ternmq_console.cli.exit_codes import FAILED, errors_as_exits
from ternmq_console.cli.output import print_line, print_lines
from ternmq_console.store.next_start import next_start
from ternmq_console.store.repair_decisions import (
    decision_json,
    decision_lines,
    decisions,
    leftovers,
)
from ternmq_console.store.rows import (
    json_line,
)
from ternmq_console.store.table_check import check_tables, known_topics, look_at_tables, table_words
from ternmq_store.config import StoreConfig
from ternmq_store.disk.filesystem import FileSystem, RealFileSystem
from ternmq_store.inspection.audit import LogState, StoreAudit
from ternmq_store.inspection.audit_findings import AuditFinding
from ternmq_store.inspection.recovery_preview import (
    RecoveryPreview,
    preview_findings,
    preview_recovery,
)
from ternmq_store.recovery.recovery_decisions import RecoveryDecision


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object on each line instead of text."
)
def check(folder: Path, *, as_json: bool) -> None:
    """Check all files of the data directory DIR, without a change.

    The command compares every record with its consume queue unit and its index entries, and every
    unit and entry with its record. Exit code 0: sound; 1: problems found; 3: no store.
    """
    files = RealFileSystem()
    with errors_as_exits():
        audit = StoreAudit(files, folder, known_topics=known_topics(files, folder))
        areas: set[str] = set()
        found = look_at_tables(files, folder, audit.notes.tables)
        tables = audit.counted(check_tables(files, folder, found))
        preview: RecoveryPreview | None = None
        for finding in chain(audit.findings(), tables):
            if finding.is_problem:
                areas.add(finding.area)
            print_line(_finding_json(finding) if as_json else _finding_text(finding))
        if audit.state is not LogState.IN_USE:
            preview = _preview(files, folder)
        for finding in audit.counted(preview_findings(preview)):
            if finding.is_problem:
                areas.add(finding.area)
            print_line(_finding_json(finding) if as_json else _finding_text(finding))
        said = next_start(
            state=audit.state,
            last_use=audit.last_use,
            preview=preview,
            bad=audit.bad,
            areas=areas,
            tables=table_words(folder, found),
        )
        waiting: Sequence[RecoveryDecision] = ()
        if preview is not None:
            waiting = decisions(
                folder,
                preview=preview,
                found=found,
                bad=audit.bad,
                areas=areas,
                was_closed=audit.last_use.is_clean,
                leftovers=leftovers(files, folder),
            )
        _print_summary(audit, said, waiting, is_sound=not areas, as_json=as_json)
    if areas:
        raise SystemExit(FAILED)


def _preview(files: FileSystem, root: Path) -> RecoveryPreview:
    """Open the store in memory. Log lines are suppressed, since findings contain them."""
    logging.getLogger("ternmq_store").addHandler(logging.NullHandler())
    return preview_recovery(files, root, StoreConfig())


def _finding_json(finding: AuditFinding) -> str:
    row = {
        "kind": "problem" if finding.is_problem else "note",
        "area": finding.area,
        "file": None if finding.file is None else str(finding.file),
        "offset": finding.offset,
        "text": finding.text,
    }
    return json_line(row)


def _finding_text(finding: AuditFinding) -> str:
    kind = "problem" if finding.is_problem else "note"
    parts = [f"{kind:<8}{finding.area:<11}"]
    if finding.file is not None:
        parts.append(f"{finding.file} ")
    if finding.offset is not None:
        parts.append(f"offset {finding.offset}")
    return f"{''.join(parts).rstrip()}: {finding.text}"


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def _print_summary(
    audit: StoreAudit,
    said: Sequence[str],
    waiting: Sequence[RecoveryDecision],
    *,
    is_sound: bool,
    as_json: bool,
) -> None:
    counts = asdict(audit.counts)
    if as_json:
        for choice in waiting:
            print_line(decision_json(choice))
        row = {
            "kind": "summary",
            "isSound": is_sound,
            "state": audit.state.value,
            "start": audit.start,
            "end": audit.end,
            "nextStart": list(said),
            **{_camel(name): count for name, count in counts.items()},
        }
        print_line(json_line(row))
        return
    names = ", ".join(f"{value} {name.replace('_', ' ')}" for name, value in counts.items())
    print_line(f"log from {audit.start} to {audit.end}, {audit.state.value}")
    print_line(names)
    print_lines(chain(said, *map(decision_lines, waiting)))
    print_line("sound" if is_sound else "not sound")
