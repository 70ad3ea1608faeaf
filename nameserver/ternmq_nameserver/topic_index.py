"""Index of topics: the broker names of each, in the order of topics. Pure."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import islice


class TopicIndex:
    """Broker names by topic. Owned by a `RouteTable`. A topic is on at least one broker.

    Topics are sorted at the first listing after a change, not for each page: a page out of 65,536
    topics costs as much as one out of 1,000.
    """

    def __init__(self) -> None:
        self._names: dict[str, set[str]] = {}
        self._sorted: list[str] | None = None

    def __len__(self) -> int:
        return len(self._names)

    def brokers(self, topic: str) -> list[str]:
        """Return the names of the brokers that have a topic, sorted."""
        return sorted(self._names.get(topic, ()))

    def add(self, topics: Iterable[str], broker_name: str) -> None:
        """Add topics of a broker."""
        for topic in topics:
            if topic not in self._names:
                self._sorted = None
            self._names.setdefault(topic, set()).add(broker_name)

    def remove(self, topics: Iterable[str], broker_name: str) -> None:
        """Remove topics of a broker, all of which must be present."""
        for topic in topics:
            names = self._names[topic]
            names.remove(broker_name)
            if not names:
                del self._names[topic]
                self._sorted = None

    def page(
        self, after: str, maximum: int | None, *, has_name: Callable[[str], bool] | None = None
    ) -> list[str]:
        """Return topics behind `after`, sorted. Changes between two pages move no other topic.

        Args:
            after: Name that need not be a topic; empty = from the first topic on.
            maximum: Limit on the topics; None = no limit.
            has_name: Selects topics by the names of their brokers; None = all topics.
        """
        return list(islice(self._behind(after, has_name), maximum))

    def _behind(self, after: str, has_name: Callable[[str], bool] | None) -> Iterator[str]:
        if self._sorted is None:
            self._sorted = sorted(self._names)
        for place in range(bisect_right(self._sorted, after), len(self._sorted)):
            topic = self._sorted[place]
            if has_name is None or any(map(has_name, self._names[topic])):
                yield topic
