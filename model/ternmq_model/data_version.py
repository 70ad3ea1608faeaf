"""The version of a broker's table.

Source: RocketMQ `DataVersion`.
"""

from dataclasses import dataclass, replace
from typing import Self


@dataclass(frozen=True, slots=True)
class DataVersion:
    """The version of one table. Two are equal when every field is.

    The newer of two is the greater: state version first, then counter, then time stamp.
    """

    timestamp_ms: int
    """Unix milliseconds of the last change, or of the table's creation."""

    counter: int = 0
    """Changes so far."""

    state_version: int = 0
    """Raised when a broker changes its role."""

    def next(self, now_ms: int) -> Self:
        """Return the version after one more change.

        Args:
            now_ms: Wall clock. It may lie before `timestamp_ms`: the counter tells which is newer.
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
