"""Decisions about a data directory that only an operator can take. Pure."""

import enum
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ternmq_model.errors import StoreError


class UndecidedState(enum.Enum):
    """A state of a data directory that waits for a decision; `docs/howto/decisions.md` has each."""

    MISSING_FILE = "missing file"
    TWO_LOGS = "two logs"
    FILE_LENGTH = "file length"
    SWAPPED_FILES = "swapped files"
    LOST_TABLES = "lost tables"
    DAMAGED_LOG = "damaged log"
    WRONG_QUEUES = "wrong queues"
    LEFTOVERS = "leftovers"


class RecoveryOption(NamedTuple):
    """One option of a decision."""

    when: str
    """Condition of the option, or its effect."""

    command: str = ""
    """Empty: no command of ours does it."""


class RecoveryDecision(NamedTuple):
    """A decision that waits, and its options."""

    state: UndecidedState
    text: str
    """Findings, with their files."""

    ways: Sequence[RecoveryOption]

    def __str__(self) -> str:
        """Return all of it in one line."""
        ways = [f"{when}: `{command}`" if command else when for when, command in self.ways]
        return f"{self.text}. {'; '.join(ways)}"


class UndecidedStore(StoreError):
    """No start goes on with the store before somebody decides.

    Attributes:
        choice: The decision.
    """

    def __init__(self, choice: RecoveryDecision) -> None:
        super().__init__(str(choice))
        self.choice = choice


def repair_command(root: Path, *options: str) -> str:
    """Return the command that carries a decision about the directory `root` out."""
    return " ".join(("ternmq store repair", str(root), *options))
