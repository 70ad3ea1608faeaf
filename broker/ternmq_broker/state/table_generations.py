"""Generations of a table on disk: the one that a start takes, and refusals of a start.

A table has two files, `<name>` and `<name>.bak`, the generation before. Each is right on its own:
its checksum says so, or it has none because RocketMQ or a version before there were checksums
wrote it. The store's notes tell which tables there were. Every function here blocks.
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
"""Ends the name of a table's file that does not count any more."""


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
    """A master tells it to its slaves."""

    verify: Callable[[bytes], bool]
    """Tells whether a file has a checksum. Raises ValueError when that is of other bytes."""

    strip: Callable[[bytes], bytes]
    """Returns a file that holds the same table without a checksum."""

    parse: Callable[[bytes, int], T]
    """Returns the table; the second argument is the wall clock in ms. Raises ValueError,
    LookupError or TypeError for what is no such table."""


@dataclass(frozen=True, slots=True)
class TableGeneration(Generic[T]):
    """Content of one of the two files of a table."""

    path: Path
    fault: str
    """The reason why it is not taken; empty when it is right."""

    has_checksum: bool = False
    table: T | None = None
    """None: it is no table. With a wrong checksum it may be one all the same."""

    unreadable: StateUnreadable | None = None
    """The file exists and the system denies reading."""

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
    """Looked at only when the main file is not right."""

    was_there: bool
    """The store's notes name the table."""

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
        """The error that hides the table that was written last; None when there is none."""
        before = None if self.previous is None else self.previous.unreadable
        return self.main.unreadable or before

    @property
    def is_absent(self) -> bool:
        """The table has no file."""
        return not (self.main.is_there or (self.previous and self.previous.is_there))

    @property
    def refusal(self) -> str:
        """The reason why no start can go on with the table; empty when one can."""
        if self.taken is not None or (self.is_absent and not self.was_there):
            return ""
        faults = [f"{each.path} {each.fault}" for each in (self.main, self.previous) if each]
        return f"{' and '.join(faults)} (at stake: {self.format.absent})"


def find_table(
    files: FileSystem, folder: Path, wanted: TableFormat[T], *, was_there: bool, now_ms: int
) -> StoredTable[T]:
    """Return what there is of a table; nothing is changed.

    Args:
        files: The file system.
        folder: `config/`.
        wanted: The table.
        was_there: The store's notes name it.
        now_ms: Wall clock, for a table that has no version yet.
    """
    path = folder / wanted.name
    main = _generation(files, path, wanted, now_ms)
    previous = _generation(files, previous_path(path), wanted, now_ms) if main.fault else None
    return StoredTable(wanted, main, previous, was_there)


def _generation(
    files: FileSystem, path: Path, wanted: TableFormat[T], now_ms: int
) -> TableGeneration[T]:
    try:
        data = read_state(partial(read_whole, files), path)
        if data is None:
            return TableGeneration(path, _MISSING)
        table = wanted.parse(data, now_ms)
    except StateUnreadable as error:
        return TableGeneration(path, str(error.reason), unreadable=error)
    except (ValueError, LookupError, TypeError) as error:
        return TableGeneration(path, f"is damaged: {type(error).__name__}: {error}")
    try:
        return TableGeneration(path, "", wanted.verify(data), table)
    except ValueError as error:
        return TableGeneration(path, f"cannot be believed: {error}", table=table)


def lost_tables(
    root: Path, found: Iterable[StoredTable[Any]], *, is_slave: bool
) -> RecoveryDecision | None:
    """Return the decision about tables without a right generation; None where a start needs none.

    Nothing can be decided about one that is there and cannot be read.

    Args:
        root: The data directory.
        found: All tables that were looked for.
        is_slave: A master tells its tables.
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
        found: All tables that were looked for.
        is_slave: A master tells its tables.

    Raises:
        StateUnreadable: One is there and cannot be read.
        UndecidedStore: Of some no generation is right; names them all.
    """
    for error in filter(None, (each.unreadable for each in found)):
        raise error
    choice = lost_tables(root, found, is_slave=is_slave)
    if choice is not None:
        raise UndecidedStore(choice)


def settle(
    files: FileSystem, root: Path, found: Sequence[StoredTable[Any]], *, is_slave: bool = False
) -> None:
    """Go on with the tables that were found, and log what is not as it was written.

    A main file that is not taken is renamed to `<name>.bad`: it must not become the generation
    before.

    Args:
        files: The file system.
        root: The data directory.
        found: All tables that were looked for.
        is_slave: A master tells its tables.

    Raises:
        UndecidedStore: As `check_refusals`; nothing was changed.
        OSError: The disk failed.
    """
    check_refusals(root, found, is_slave=is_slave)
    for each in found:
        if each.refusal:
            logger.error("table lost, the master's is awaited: %s", each.refusal)
        main, taken = each.main, each.taken
        if taken is not None and taken is not main:
            logger.error(
                "older generation taken file=%s reason=%r consequence=%r",
                taken.path,
                f"{main.path} {main.fault}",
                each.format.older,
            )
        if taken is not None and not taken.has_checksum:
            logger.info(
                "table without a checksum taken, from RocketMQ or an older version file=%s",
                taken.path,
            )
        if main.fault and main.is_there:
            files.rename(main.path, bad_path(main.path))


def bad_path(path: Path) -> Path:
    """Return where a table's file is put that is not right."""
    return path.with_name(path.name + BAD)


def config_folder(data: Path) -> Path:
    """Return where the tables lie, beside the store's folders."""
    return data / "config"
