"""Index of topics: the broker names of each, in the order of topics. Pure."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import islice


class TopicIndex:
    """Broker names by topic. Owned by a `RouteTable`. A topic is on at least one broker.

    Topics are sorted when they are listed after a change, not with each page: a page of 65,536
    topics costs as much as one of 1,000.
    """

    def __init__(self) -> None:
        self._names: dict[str, set[str]] = {}
        self._sorted: list[str] | None = None

    def brokers(self, topic: str) -> list[str]:
        """Return the names of the brokers that have a topic, sorted."""
        return sorted(self._names.get(topic, ()))

    def add(self, topics: Iterable[str], broker_name: str) -> None:
        """Note that a broker has topics."""
        for topic in topics:
            if topic not in self._names:
                self._sorted = None
            self._names.setdefault(topic, set()).add(broker_name)

    def remove(self, topics: Iterable[str], broker_name: str) -> None:
        """Note that a broker does not have topics any more, all of which it had."""
        for topic in topics:
            names = self._names[topic]
            names.remove(broker_name)
            if not names:
                del self._names[topic]
                self._sorted = None

    def page(
        self, after: str, maximum: int | None, *, is_wanted: Callable[[str], bool] | None = None
    ) -> list[str]:
        """Return topics behind `after`, sorted. What changes meanwhile moves no other topic.

        Args:
            after: Need not be a topic; empty = from the first one on.
            maximum: At most so many. None = all.
            is_wanted: Only topics that a broker has whose name passes.
        """
        return list(islice(self._behind(after, is_wanted), maximum))

    def _behind(self, after: str, is_wanted: Callable[[str], bool] | None) -> Iterator[str]:
        if self._sorted is None:
            self._sorted = sorted(self._names)
        for place in range(bisect_right(self._sorted, after), len(self._sorted)):
            topic = self._sorted[place]
            if is_wanted is None or any(map(is_wanted, self._names[topic])):
                yield topic
