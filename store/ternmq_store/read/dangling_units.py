"""Places of the log where units point and the record is not that they tell of."""

from collections.abc import Sequence
from typing import Final

from ternmq_model.offsets import PhysicalOffset
from ternmq_store.disk.layout import base_of, file_name
from ternmq_store.log.quarantine import DamagedRange
from ternmq_store.read.cold_read import BadRecord

_PLACES_MAX: Final = 1_000


class DanglingUnits:
    """What readers met since the store was opened; the first thousand. Owned by `StoreReads`.

    Nothing is known to end there, so that it is no damaged stretch, and a wrong unit may be all.
    """

    def __init__(self) -> None:
        self._places: dict[PhysicalOffset, BadRecord] = {}

    def add(self, bad: BadRecord) -> None:
        """Take note of a place."""
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
