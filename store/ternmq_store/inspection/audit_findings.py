"""What a check of a store finds. Pure."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a check has to say."""

    is_problem: bool
    """No sound store has it; else it is a note."""

    area: str
    """What it is about: `log`, `queue`, `index`, `checkpoint`, `notes` or `state`."""

    file: Path | None
    offset: int | None
    """Where: a physical offset of the log, or the byte in another file."""

    text: str


def problem(area: str, file: Path | None, offset: int | None, text: str) -> Finding:
    """Return a problem."""
    return Finding(is_problem=True, area=area, file=file, offset=offset, text=text)


def note(area: str, file: Path | None, offset: int | None, text: str) -> Finding:
    """Return a note."""
    return Finding(is_problem=False, area=area, file=file, offset=offset, text=text)
