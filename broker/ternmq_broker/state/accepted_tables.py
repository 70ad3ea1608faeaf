"""Tables that an operator accepts as they are, although no generation is valid.

An accepted table is written without a checksum, as RocketMQ writes it, so that the next start loads
it and adds the checksum. Every function here blocks; the caller holds the lock of the directory.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ternmq_broker.state.table_generations import StoredTable, bad_path, config_folder
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.state_file import read_whole, replace_file
from ternmq_store.log.log_notes import load_notes, save_notes


@dataclass(frozen=True, slots=True)
class TableAcceptance:
    """Acceptance of one table as it is, or of its absence."""

    text: str
    """Description of the accepted table."""

    found: StoredTable[Any]
    source: Path | None
    """File with the accepted table; None = the table is treated as new."""


def plan_acceptance(found: Iterable[StoredTable[Any]]) -> Sequence[TableAcceptance]:
    """Return the acceptance of each table that refuses a start. Pure.

    Raises:
        StateUnreadable: A table exists and cannot be read, so its loss cannot be judged.
    """
    plan: list[TableAcceptance] = []
    for each in found:
        if each.unreadable is not None:
            raise each.unreadable
        if not each.refusal:
            continue
        candidates = (each.main, *filter(None, [each.previous]))
        legible = next((one for one in candidates if one.table is not None), None)
        if legible is None:
            text = f"go on without {each.format.name}: {each.refusal}"
            plan.append(TableAcceptance(text, each, None))
        else:
            text = f"take {legible.path} as it is, although it {legible.fault}"
            plan.append(TableAcceptance(text, each, legible.path))
    return plan


def carry_out(files: FileSystem, root: Path, plan: Iterable[TableAcceptance]) -> None:
    """Carry out a plan durably. Copies of the replaced files are named `<name>.bad`.

    Raises:
        OSError: A part may be done; another plan continues the work.
    """
    absent: list[str] = []
    files.make_folder(config_folder(root))
    for each in plan:
        main, table = each.found.main, each.found.format
        if each.source is None:
            for one in (main, each.found.previous):
                if one is not None and one.is_there:
                    files.rename(one.path, bad_path(one.path))
            absent.append(table.name)
            continue
        data = read_whole(files, each.source)
        if each.source == main.path:
            # A copy: until the file is replaced its table lies nowhere else.
            replace_file(files, bad_path(main.path), data, keep_previous=False)
        elif main.is_there:
            files.rename(main.path, bad_path(main.path))
        replace_file(files, main.path, table.strip(data), keep_previous=False)
    files.sync_folder(config_folder(root))
    notes = load_notes(files, root, _ignore)
    kept = tuple(name for name in notes.tables if name not in absent)
    if kept != notes.tables:
        save_notes(files, root, replace(notes, tables=kept))


def _ignore(reason: str) -> None:
    """Ignore unreadable notes: the opening of the store reports them."""
