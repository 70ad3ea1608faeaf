"""Recent changes of a table: the keys that changed since an earlier look. Pure."""

from bisect import bisect_right
from collections.abc import Hashable, Sequence
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)

_SLACK = 1024


class ChangesSince(NamedTuple, Generic[K]):
    """Keys that changed after a given number."""

    keys: Sequence[tuple[K, bool]]
    """Each once, the one that changed longest ago first; whether it was removed meanwhile, and
    perhaps made anew."""

    number: int
    """To be asked with the next time."""

    more: bool
    """True when more changes follow than the request asked for."""


class RecentChanges(Generic[K]):
    """The order in which entries changed. Owned by the table whose entries they are.

    An entry costs one place in a list for its newest change; the places of older ones are swept
    out when there are as many of them.
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
        """Return what changed after `number`.

        Args:
            number: As told by an earlier call; 0 = everything that there ever was.
            most: Largest number of entries to return.
        """
        found: list[tuple[K, bool]] = []
        told = number
        begin = bisect_right(self._log, number, key=lambda each: each[0])
        for at, key in islice(self._log, begin, None):
            if self._newest[key] != at:
                continue
            if len(found) == most:
                return ChangesSince(found, told, True)
            found.append((key, self._removed.get(key, 0) > number))
            told = at
        return ChangesSince(found, max(told, self._number), False)
