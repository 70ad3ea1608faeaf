"""Recent changes of a table: the keys that changed since an earlier read. Pure."""

from bisect import bisect_right
from collections.abc import Hashable, Sequence
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)

_SLACK = 1024


class ChangesSince(NamedTuple, Generic[K]):
    """Keys that changed after a given number."""

    keys: Sequence[tuple[K, bool]]
    """Each key once, oldest change first; True if it was removed since, and perhaps recreated."""

    number: int
    """Number for the next request."""

    more: bool
    """True when more changes follow than were requested."""


class RecentChanges(Generic[K]):
    """Changes of the entries of a table, in order. Owned by that table.

    Each change takes one place in a list. The places of older changes of an entry are removed when
    they are as many as the entries.
    """

    def __init__(self) -> None:
        self._number = 0
        self._log: list[tuple[int, K]] = []
        self._newest: dict[K, int] = {}
        self._removed: dict[K, int] = {}

    @property
    def places(self) -> int:
        """Number of places that changes take."""
        return len(self._log)

    def note(self, key: K, *, removed: bool = False) -> None:
        """Record that an entry changed or was removed."""
        self._number += 1
        self._newest[key] = self._number
        self._log.append((self._number, key))
        if removed:
            self._removed[key] = self._number
        if len(self._log) > 2 * len(self._newest) + _SLACK:
            self._log = [each for each in self._log if self._newest[each[1]] == each[0]]

    def since(self, number: int, *, most: int) -> ChangesSince[K]:
        """Return the changes after `number`.

        Args:
            number: Number that an earlier call returned; 0 = all changes.
            most: Largest number of entries to return.
        """
        found: list[tuple[K, bool]] = []
        last = number
        begin = bisect_right(self._log, number, key=lambda each: each[0])
        for at, key in islice(self._log, begin, None):
            if self._newest[key] != at:
                continue
            if len(found) == most:
                return ChangesSince(found, last, True)
            found.append((key, self._removed.get(key, 0) > number))
            last = at
        return ChangesSince(found, max(last, self._number), False)
