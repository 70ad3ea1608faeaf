"""Decisions about a data directory that an operator has to take. Pure."""

import enum
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ternmq_model.errors import StoreError


class UndecidedState(enum.Enum):
    """State of a data directory that waits for a decision (docs/howto/decisions.md)."""

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
    """Command of the option; empty = there is none."""


class RecoveryDecision(NamedTuple):
    """A pending decision and its options."""

    state: UndecidedState
    text: str
    """Description of the state, with its files."""

    ways: Sequence[RecoveryOption]

    def __str__(self) -> str:
        """Return text and options in one line."""
        ways = [f"{when}: `{command}`" if command else when for when, command in self.ways]
        return f"{self.text}. {'; '.join(ways)}"


class UndecidedStore(StoreError):
    """Refusal of a start before an operator takes the decision `choice`."""

    def __init__(self, choice: RecoveryDecision) -> None:
        super().__init__(str(choice))
        self.choice = choice


def repair_command(root: Path, *options: str) -> str:
    """Return the command that carries out a decision about the directory `root`."""
    return " ".join(("ternmq store repair", str(root), *options))
