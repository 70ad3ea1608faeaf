"""Generations of a small state file: replacement, and reads of the newest valid one. Pure.

`topics.json.bak` beside `topics.json` is the generation before. `topics.json.tmp` exists during a
write.

A file may be missing. A file with wrong bytes is damaged, and the generation before replaces it. A
file that exists and cannot be read is neither missing nor damaged: its content is unknown.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from ternmq_model.errors import StateDamaged, StateUnreadable

T = TypeVar("T")


class StateFolder(Protocol):
    """Operations on the names in a folder of state files."""

    def exists(self, path: Path) -> bool:
        """Return whether a file exists."""
        ...

    def rename(self, old: Path, new: Path) -> None:
        """Rename a file atomically."""
        ...

    def sync_folder(self, folder: Path) -> None:
        """Sync `folder`, so that its names survive a power loss."""
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
        write: Function that writes the new generation to a path and syncs it.
        path: Path of the file.
        keep_previous: True = the generation before stays as `<name>.bak`.
        in_both: True = the generation before gets the new content too, so that either can be read.
            Each file is replaced in place: the old file never becomes the generation before.

    Raises:
        OSError: The write failed. The generation before can still be read.
    """
    draft, previous = draft_path(path), previous_path(path)
    for target in (path, previous) if in_both else (path,):
        write(draft)
        if keep_previous and not in_both and folder.exists(path):
            # Between the two renames there is no main file. A reader uses the generation before.
            folder.rename(path, previous)
        folder.rename(draft, target)
        folder.sync_folder(path.parent)


def read_state(read: Callable[[Path], bytes], path: Path) -> bytes | None:
    """Return the bytes of a state file; None = it is missing.

    Args:
        read: Function that returns the bytes of a file.
        path: Path of the file.

    Raises:
        StateUnreadable: The file exists and cannot be read.
        ValueError: `read` raised the error.
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
    """Return the parsed content of the newest valid generation; None = there is no file.

    Args:
        read: Function that returns the bytes of a file.
        generations: Path of the file, then that of the generation before.
        parse: Function of the bytes. It raises ValueError, LookupError or TypeError for bytes of
            another form.
        on_older: Function that receives the path of the older generation in use, and the reason.

    Raises:
        StateUnreadable: A needed file exists and cannot be read.
        StateDamaged: All existing generations are damaged. The state is unknown, not empty.
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
