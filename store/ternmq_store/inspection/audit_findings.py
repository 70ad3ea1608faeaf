"""Findings of an audit. Pure."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """One finding of an audit."""

    is_problem: bool
    """True for a problem, False for a note."""

    area: str
    """Area of the store: `log`, `queue`, `index`, `checkpoint`, `notes` or `state`."""

    file: Path | None
    offset: int | None
    """Log offset, or position in another file."""

    text: str


def problem(area: str, file: Path | None, offset: int | None, text: str) -> AuditFinding:
    """Return a problem."""
    return AuditFinding(is_problem=True, area=area, file=file, offset=offset, text=text)


def note(area: str, file: Path | None, offset: int | None, text: str) -> AuditFinding:
    """Return a note."""
    return AuditFinding(is_problem=False, area=area, file=file, offset=offset, text=text)
