"""Generations of a table on disk: the one that a start takes, and refusals of a start.

A table has two files, `<name>` and `<name>.bak`, the previous generation. A file is valid with a
right checksum, and without any, because RocketMQ and early versions wrote none. The notes of the
store list the tables that existed. Every function here blocks.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from ternmq_model.errors import StateUnreadable
from ternmq_model.file_generations import previous_path, read_state
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.state_file import read_whole
from ternmq_store.recovery.recovery_decisions import (
    RecoveryDecision,
    RecoveryOption,
    UndecidedState,
    UndecidedStore,
    repair_command,
)

T = TypeVar("T")

logger = logging.getLogger(__name__)

_MISSING: Final = "is not there"

BAD: Final = ".bad"
"""Suffix of rejected files of tables."""


@dataclass(frozen=True, slots=True)
class TableFormat(Generic[T]):
    """Format of the files of one table. Pure."""

    name: str
    """Name of the file in `config/`."""

    older: str
    """Consequence for users if the generation before is taken."""

    absent: str
    """Consequence for users without any generation."""

    is_replicated: bool
    """The master sends the table to its slaves."""

    verify: Callable[[bytes], bool]
    """Returns whether a file has a checksum. Raises ValueError when the checksum differs."""

    strip: Callable[[bytes], bytes]
    """Returns the content of the file without its checksum."""

    parse: Callable[[bytes, int], T]
    """Returns the table; the second argument is the wall clock in ms. Raises ValueError,
    LookupError or TypeError for invalid content."""


@dataclass(frozen=True, slots=True)
class TableGeneration(Generic[T]):
    """Content of one of the two files of a table."""

    path: Path
    fault: str
    """Reason for rejecting the file; empty for a valid one."""

    has_checksum: bool = False
    table: T | None = None
    """The parsed table, also with a wrong checksum; None = not parsed."""

    unreadable: StateUnreadable | None = None
    """Error of a file that exists and cannot be read."""

    @property
    def is_there(self) -> bool:
        """The file exists."""
        return self.fault != _MISSING


@dataclass(frozen=True, slots=True)
class StoredTable(Generic[T]):
    """One table on disk, with its generations, as a start finds it."""

    format: TableFormat[T]
    main: TableGeneration[T]
    previous: TableGeneration[T] | None
    """Previous generation, which is read only when the main file is rejected."""

    was_there: bool
    """True when the notes of the store list the table."""

    @property
    def taken(self) -> TableGeneration[T] | None:
        """The generation that a start takes."""
        if self.unreadable is not None:
            return None
        return next((each for each in (self.main, self.previous) if each and not each.fault), None)

    @property
    def table(self) -> T | None:
        """The table that a start takes; None without one."""
        return None if self.taken is None else self.taken.table

    @property
    def is_current(self) -> bool:
        """The main file is taken and has a checksum."""
        return not self.main.fault and self.main.has_checksum

    @property
    def unreadable(self) -> StateUnreadable | None:
        """Error of reading the newest file of the table; None without one."""
        before = None if self.previous is None else self.previous.unreadable
        return self.main.unreadable or before

    @property
    def is_absent(self) -> bool:
        """The table has no file."""
        return not (self.main.is_there or (self.previous and self.previous.is_there))

    @property
    def refusal(self) -> str:
        """Reason for refusing a start with the table; empty for none."""
        if self.taken is not None or (self.is_absent and not self.was_there):
            return ""
        faults = [f"{each.path} {each.fault}" for each in (self.main, self.previous) if each]
        return f"{' and '.join(faults)} (at stake: {self.format.absent})"


def find_table(
    files: FileSystem, folder: Path, table_format: TableFormat[T], *, was_there: bool, now_ms: int
) -> StoredTable[T]:
    """Return the generations of a table; nothing is changed.

    Args:
        files: The file system.
        folder: `config/`.
        table_format: Format of the table.
        was_there: The notes of the store list the table.
        now_ms: Wall clock, for a table without a version.
    """
    path = folder / table_format.name
    main = _generation(files, path, table_format, now_ms)
    previous = _generation(files, previous_path(path), table_format, now_ms) if main.fault else None
    return StoredTable(table_format, main, previous, was_there)


def _generation(
    files: FileSystem, path: Path, table_format: TableFormat[T], now_ms: int
) -> TableGeneration[T]:
    try:
        data = read_state(partial(read_whole, files), path)
        if data is None:
            return TableGeneration(path, _MISSING)
        table = table_format.parse(data, now_ms)
    except StateUnreadable as error:
        return TableGeneration(path, str(error.reason), unreadable=error)
    except (ValueError, LookupError, TypeError) as error:
        return TableGeneration(path, f"is damaged: {type(error).__name__}: {error}")
    try:
        return TableGeneration(path, "", table_format.verify(data), table)
    except ValueError as error:
        return TableGeneration(path, f"cannot be trusted: {error}", table=table)


def lost_tables(
    root: Path, found: Iterable[StoredTable[Any]], *, is_slave: bool
) -> RecoveryDecision | None:
    """Return the decision about tables without a valid generation; None where a start needs none.

    Tables that exist and cannot be read are not part of the decision.

    Args:
        root: The data directory.
        found: All tables.
        is_slave: The master will send its tables.
    """
    lost = [
        each.refusal
        for each in found
        if each.refusal and each.unreadable is None and not (is_slave and each.format.is_replicated)
    ]
    if not lost:
        return None
    ways = (
        RecoveryOption("Put them back if you have a backup"),
        RecoveryOption(
            "Promote a slave that has them, and let this member follow with an empty directory"
        ),
        RecoveryOption("To go on with what is there", repair_command(root, "--accept-tables")),
    )
    text = f"no start without these tables: {'; '.join(lost)}"
    return RecoveryDecision(UndecidedState.LOST_TABLES, text, ways)


def check_refusals(
    root: Path, found: Iterable[StoredTable[Any]], *, is_slave: bool = False
) -> None:
    """Refuse a start without the tables that it needs.

    Args:
        root: The data directory.
        found: All tables.
        is_slave: The master will send its tables.

    Raises:
        StateUnreadable: A table exists and cannot be read.
        UndecidedStore: Some tables have no valid generation; names all of them.
    """
    for error in filter(None, (each.unreadable for each in found)):
        raise error
    choice = lost_tables(root, found, is_slave=is_slave)
    if choice is not None:
        raise UndecidedStore(choice)


def settle(
    files: FileSystem, root: Path, found: Sequence[StoredTable[Any]], *, is_slave: bool = False
) -> None:
    """Log the generations that a start takes, and move rejected main files away.

    A rejected main file is renamed to `<name>.bad`: it must not become the previous generation.

    Args:
        files: The file system.
        root: The data directory.
        found: All tables.
        is_slave: The master will send its tables.

    Raises:
        UndecidedStore: `check_refusals` refuses the start; nothing was changed.
        OSError: The disk failed.
    """
    check_refusals(root, found, is_slave=is_slave)
    for each in found:
        if each.refusal:
            logger.error("table lost, waiting for the table of the master reason=%r", each.refusal)
        main, taken = each.main, each.taken
        if taken is not None and taken is not main:
            logger.error(
                "older generation used file=%s reason=%r consequence=%r",
                taken.path,
                f"{main.path} {main.fault}",
                each.format.older,
            )
        if taken is not None and not taken.has_checksum:
            logger.info(
                "table without a checksum accepted, from RocketMQ or an older version file=%s",
                taken.path,
            )
        if main.fault and main.is_there:
            files.rename(main.path, bad_path(main.path))


def bad_path(path: Path) -> Path:
    """Return the path to which a rejected file of a table is moved."""
    return path.with_name(path.name + BAD)


def config_folder(data: Path) -> Path:
    """Return the folder of the tables, beside the folders of the store."""
    return data / "config"
