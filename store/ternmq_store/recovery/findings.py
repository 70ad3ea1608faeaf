"""Findings of one recovery."""

import logging
from pathlib import Path

from ternmq_store.opened_files import RecoveryAction, RecoveryFinding

logger = logging.getLogger(__name__)

_LOSSES = frozenset({RecoveryAction.QUARANTINED, RecoveryAction.SET_ASIDE, RecoveryAction.LOST})


class RecoveryFindings:
    """Findings of one recovery, each of which is logged. Owned by the opening.

    Attributes:
        all: The findings, in the order in which they were added.
    """

    def __init__(self) -> None:
        self.all: list[RecoveryFinding] = []

    def add(self, what: RecoveryAction, file: Path, offset: int, length: int, reason: str) -> None:
        """Add a finding, and log it: as an error if messages may be lost."""
        self.all.append(RecoveryFinding(what, file, offset, length, reason))
        logger.log(
            logging.ERROR if what in _LOSSES else logging.WARNING,
            "store recovery what=%s file=%s offset=%s bytes=%s reason=%s",
            what.value,
            file,
            offset,
            length,
            reason,
        )
