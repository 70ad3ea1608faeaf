"""Sends that keep an order and cannot enter at once: they enter as they began."""

import asyncio
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager

Place = asyncio.Event
"""A place in a line: set once nobody is before it."""


class Lines:
    """One line for each topic, first come, first served. Owned by one producer, on its event loop.

    A send is in its topic's line from its beginning until its message is with a link: while it
    waits for the route, for its turn, and for room in the buffer.
    """

    def __init__(self) -> None:
        self._lines: dict[str, deque[Place]] = {}

    def lets_in(self, topic: str, place: Place | None) -> bool:
        """Tell whether a send to `topic` would overtake nobody.

        Args:
            topic: Its topic.
            place: Its own place, if it has one.
        """
        line = self._lines.get(topic)
        return line is None or line[0] is place

    @contextmanager
    def join(self, topic: str) -> Generator[Place]:
        """Give a place at the end of the line of `topic`, and take it back after the block."""
        place = Place()
        line = self._lines.setdefault(topic, deque())
        line.append(place)
        line[0].set()
        try:
            yield place
        finally:
            line.remove(place)
            if line:
                line[0].set()
            else:
                del self._lines[topic]
