"""Version of a broker's table.

Source: RocketMQ `DataVersion`.
"""

from dataclasses import dataclass, replace
from typing import Self


@dataclass(frozen=True, slots=True)
class DataVersion:
    """Version of one table. Versions are equal if all fields are.

    A newer version is greater: state version first, then counter, then time stamp.
    """

    timestamp_ms: int
    """Unix milliseconds of the last change, or of the table's creation."""

    counter: int = 0
    """Number of changes."""

    state_version: int = 0
    """Raised when a broker changes its role."""

    def next(self, now_ms: int) -> Self:
        """Return the version after one more change.

        Args:
            now_ms: Wall clock, Unix ms. It may lie before `timestamp_ms`; the counter decides.
        """
        return replace(self, timestamp_ms=now_ms, counter=self.counter + 1)

    def __lt__(self, other: Self) -> bool:
        return self._order < other._order

    def __le__(self, other: Self) -> bool:
        return self._order <= other._order

    def __gt__(self, other: Self) -> bool:
        return self._order > other._order

    def __ge__(self, other: Self) -> bool:
        return self._order >= other._order

    @property
    def _order(self) -> tuple[int, int, int]:
        return (self.state_version, self.counter, self.timestamp_ms)
