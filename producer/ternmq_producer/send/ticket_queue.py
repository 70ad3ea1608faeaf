"""Queues of tickets for ordered sends that cannot enter at once: they enter as they began."""

import asyncio
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager

Ticket = asyncio.Event
"""Place of a send in its queue: set once nobody is before it."""


class TicketQueues:
    """Queues of tickets, one for each topic. Owned by one producer, on its event loop.

    An ordered send has a ticket from its beginning until its message is with a link: while it
    waits for the route, for its turn, and for room in the buffer.
    """

    def __init__(self) -> None:
        self._queues: dict[str, deque[Ticket]] = {}

    def admits(self, topic: str, ticket: Ticket | None) -> bool:
        """Return whether a send to `topic` would overtake nobody.

        Args:
            topic: Its topic.
            ticket: Its own ticket, if it has one.
        """
        queue = self._queues.get(topic)
        return queue is None or queue[0] is ticket

    @contextmanager
    def join(self, topic: str) -> Generator[Ticket]:
        """Yield a ticket at the end of the queue of `topic`, and remove it after the block."""
        ticket = Ticket()
        queue = self._queues.setdefault(topic, deque())
        queue.append(ticket)
        queue[0].set()
        try:
            yield ticket
        finally:
            queue.remove(ticket)
            if queue:
                queue[0].set()
            else:
                del self._queues[topic]
