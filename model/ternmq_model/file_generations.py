"""Generations of a small state file: the newest right one, and the errors when there is none.

A file that is not there is missing. One whose bytes are wrong is damaged, and the generation before
it stands for it. One that is there and cannot be read is neither: nobody knows what it holds.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from ternmq_model.errors import StateDamaged, StateUnreadable

T = TypeVar("T")


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
