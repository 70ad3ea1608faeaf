"""Listeners for deletions of topics."""

from collections.abc import Callable, Generator
from contextlib import contextmanager


class TopicDeletionListeners:
    """Pulls and scans that end when their topic is deleted. Owned by the broker's loop.

    A later check is not enough: a topic of that name may have been created again.
    """

    def __init__(self) -> None:
        self._listeners: dict[Callable[[str], None], None] = {}

    @contextmanager
    def listening(self, listener: Callable[[str], None]) -> Generator[None]:
        """Call `listener` with the name of every topic that is deleted during the block."""
        self._listeners[listener] = None
        try:
            yield
        finally:
            del self._listeners[listener]

    def deleted(self, topic: str) -> None:
        """Call all listeners."""
        for listener in list(self._listeners):
            listener(topic)
