"""What only a human can decide about a data directory. Pure."""

import enum
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ternmq_model.errors import StoreError


class Undecided(enum.Enum):
    """A state of a data directory that waits for a decision; `docs/howto/decisions.md` has each."""

    MISSING_FILE = "missing file"
    TWO_LOGS = "two logs"
    FILE_LENGTH = "file length"
    SWAPPED_FILES = "swapped files"
    LOST_TABLES = "lost tables"
    DAMAGED_LOG = "damaged log"
    WRONG_QUEUES = "wrong queues"
    LEFTOVERS = "leftovers"


class Way(NamedTuple):
    """One way to go on."""

    when: str
    """What must be the case, or what it does."""

    command: str = ""
    """Empty: no command of ours does it."""


class Choice(NamedTuple):
    """A decision that waits, and the ways that there are."""

    state: Undecided
    text: str
    """What was found, with its files."""

    ways: Sequence[Way]

    def __str__(self) -> str:
        """Return all of it in one line."""
        ways = [f"{when}: `{command}`" if command else when for when, command in self.ways]
        return f"{self.text}. {'; '.join(ways)}"


class UndecidedStore(StoreError):
    """No start goes on with the store before somebody decides.

    Attributes:
        choice: The decision.
    """

    def __init__(self, choice: Choice) -> None:
        super().__init__(str(choice))
        self.choice = choice


def repair_command(root: Path, *options: str) -> str:
    """Return the command that carries a decision about the directory `root` out."""
    return " ".join(("ternmq store repair", str(root), *options))
