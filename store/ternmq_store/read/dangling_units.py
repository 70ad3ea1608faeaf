"""Dangling units: they point to places of the log that have another record or none."""

from collections.abc import Sequence
from typing import Final

from ternmq_model.offsets import PhysicalOffset
from ternmq_store.disk.layout import base_of, file_name
from ternmq_store.log.quarantine import DamagedRange
from ternmq_store.read.cold_read import BadRecord

_PLACES_MAX: Final = 1_000


class DanglingUnits:
    """First thousand dangling units that readers met since the opening. Owned by `StoreReads`.

    No end of damage is known there, so it is no damaged range; a wrong unit may be all.
    """

    def __init__(self) -> None:
        self._places: dict[PhysicalOffset, BadRecord] = {}

    def add(self, bad: BadRecord) -> None:
        """Record a place."""
        if len(self._places) < _PLACES_MAX:
            self._places.setdefault(bad.start, bad)

    def ranges(self, start: PhysicalOffset, file_bytes: int) -> Sequence[DamagedRange]:
        """Return them in the order of the log, as their units have them, each with its file.

        Args:
            start: Where the log begins: what was before is gone.
            file_bytes: Of one file of the log.
        """
        return [
            DamagedRange(
                bad.start,
                PhysicalOffset(bad.start + bad.size),
                f"commitlog/{file_name(base_of(bad.start, file_bytes))}:"
                f" not the record that a unit tells of: {bad.reason}",
            )
            for bad in sorted(self._places.values(), key=lambda each: each.start)
            if bad.start >= start
        ]
