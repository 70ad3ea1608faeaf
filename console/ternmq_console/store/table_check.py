"""Checks of the tables in the `config` folder of a data directory. Nothing is written."""

from collections.abc import Collection, Generator, Sequence
from pathlib import Path
from typing import Any, Final

from ternmq_broker.state.table_formats import TOPICS, StoredTables, find_tables, parse_table
from ternmq_broker.state.table_generations import (
    StoredTable,
    config_folder,
    find_table,
    lost_tables,
)
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.state_file import read_whole
from ternmq_store.inspection.audit_findings import AuditFinding, note, problem

_AREA: Final = "state"


def known_topics(files: FileSystem, root: Path) -> Collection[str] | None:
    """Return the names of all topics; None = the table cannot be read."""
    found = find_table(files, config_folder(root), TOPICS, was_there=False, now_ms=0)
    return None if found.table is None else {each.topic for each in found.table}


def look_at_tables(files: FileSystem, root: Path, noted: Sequence[str]) -> StoredTables:
    """Return every table of a data directory.

    Args:
        files: The file system.
        root: The data directory.
        noted: Names of tables' files from the notes of the store.
    """
    return find_tables(files, root, noted=noted, now_ms=0)


def check_tables(files: FileSystem, root: Path, found: StoredTables) -> Generator[AuditFinding]:
    """Yield a finding for each table whose last generation a start would not use as written."""
    for each in found:
        main = each.main
        if main.fault and (each.was_there or not each.is_absent):
            yield problem(_AREA, main.path, None, f"{main.fault}; {_rest(each)}")
        elif each.was_there and not each.is_current:
            text = (
                "has no checksum: another program wrote it since; the next start takes it as it is"
            )
            yield note(_AREA, main.path, None, text)
    names = {each.format.name for each in found}
    folder = config_folder(root)
    for name in files.files(folder):
        if name.endswith(".json") and name not in names:
            try:
                parse_table(read_whole(files, folder / name))
            except (OSError, ValueError) as error:
                yield problem(_AREA, folder / name, None, f"cannot be read: {error}")


def _rest(found: StoredTable[Any]) -> str:
    previous = found.previous
    if found.unreadable is not None:
        return "the broker does not start before it can be"
    if previous is None or not previous.is_there:
        return "there is no generation before it"
    if previous.fault:
        return f"the generation before {previous.fault}"
    name = previous.path.name
    return f"the next start takes the generation before, {name}: {found.format.older}"


def is_slave(found: StoredTables) -> bool:
    """Return whether the directory belongs to a slave, which receives tables. Pure."""
    kept = found.replication.table
    return kept is not None and kept.is_master is False


def table_words(root: Path, found: StoredTables) -> Sequence[str]:
    """Return sentences about tables without a valid generation at the next start. Pure."""
    slave = is_slave(found)
    fatal = lost_tables(root, found, is_slave=slave)
    said = [
        f"The slave takes a table from its master: {each.refusal}."
        for each in found
        if each.refusal and each.unreadable is None and each.format.is_replicated and slave
    ]
    said += [f"The broker does not start: {each.unreadable}." for each in found if each.unreadable]
    return said if fatal is None else [*said, f"The broker does not start: {fatal.text}."]
