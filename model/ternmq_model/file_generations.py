"""Generations of a small state file: replacing it, and reading the newest right one. Pure.

Beside `topics.json` lie `topics.json.bak`, the generation before, and while a new one is written
`topics.json.tmp`.

A file that is not there is missing. One whose bytes are wrong is damaged, and the generation before
it stands for it. One that is there and cannot be read is neither: nobody knows what it holds.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from ternmq_model.errors import StateDamaged, StateUnreadable

T = TypeVar("T")


class StateFolder(Protocol):
    """Operations on the names in a folder of state files."""

    def exists(self, path: Path) -> bool:
        """Return whether a file is there."""
        ...

    def rename(self, old: Path, new: Path) -> None:
        """Rename a file, at once."""
        ...

    def sync_folder(self, folder: Path) -> None:
        """Return when the names in `folder` survive a loss of power."""
        ...


def previous_path(path: Path) -> Path:
    """Return the path of the generation before."""
    return path.with_name(f"{path.name}.bak")


def draft_path(path: Path) -> Path:
    """Return the path of a generation that is being written."""
    return path.with_name(f"{path.name}.tmp")


def replace_generations(
    folder: StateFolder,
    write: Callable[[Path], None],
    path: Path,
    *,
    keep_previous: bool = True,
    in_both: bool = False,
) -> None:
    """Replace the state file at `path`, durably. One writer at a time.

    A writer that is interrupted at any moment leaves the new generation or the one before.

    Args:
        folder: Operations on the folder of the file, which exists.
        write: Writes all of the new generation to a path and syncs it.
        path: The file.
        keep_previous: True = the generation before stays as `<name>.bak`.
        in_both: Write the generation before anew as well, so that either can be taken. Each is
            replaced in its place: the old file never becomes the generation before.

    Raises:
        OSError: The disk refused; the generation before can still be read.
    """
    draft, previous = draft_path(path), previous_path(path)
    for target in (path, previous) if in_both else (path,):
        write(draft)
        if keep_previous and not in_both and folder.exists(path):
            # Between the two renames there is no main file; a reader takes the previous one.
            folder.rename(path, previous)
        folder.rename(draft, target)
        folder.sync_folder(path.parent)


def read_state(read: Callable[[Path], bytes], path: Path) -> bytes | None:
    """Return the bytes of a state file; None when it is missing.

    Args:
        read: Returns the bytes of a file.
        path: The file.

    Raises:
        StateUnreadable: It is there and cannot be read.
        ValueError: As `read` does.
    """
    try:
        return read(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateUnreadable(path, error) from error


def newest_generation(
    read: Callable[[Path], bytes],
    generations: Sequence[Path],
    parse: Callable[[bytes], T],
    *,
    on_older: Callable[[Path, str], None],
) -> T | None:
    """Return what the newest right generation parses to; None when there is none at all.

    Args:
        read: Returns the bytes of a file.
        generations: The file, then the generation before it.
        parse: Raises ValueError, LookupError or TypeError for bytes that are no such file.
        on_older: Told which older one is taken, and why.

    Raises:
        StateUnreadable: One that is needed is there and cannot be read.
        StateDamaged: There are some, and none is right: what they held is not the same as nothing.
    """
    reasons: list[str] = []
    for path in generations:
        try:
            data = read_state(read, path)
            if data is None:
                continue
            value = parse(data)
        except (ValueError, LookupError, TypeError) as error:
            reasons.append(f"{path}: {type(error).__name__}: {error}")
            continue
        if path != generations[0]:
            on_older(path, reasons[0] if reasons else f"{generations[0]}: not there")
        return value
    if reasons:
        raise StateDamaged("damaged state file: " + "; ".join(reasons))
    return None
