"""Queues of tickets for ordered sends, which enter in the order in which they began."""

import asyncio
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager

Ticket = asyncio.Event
"""Ticket of a send, set once it is the first of its queue."""


class TicketQueues:
    """Queues of tickets, one for each topic. Owned by one producer, on its event loop.

    An ordered send has a ticket until its link has the message: while it waits for the route, for
    its turn, and for buffer space.
    """

    def __init__(self) -> None:
        self._queues: dict[str, deque[Ticket]] = {}

    def admits(self, topic: str, ticket: Ticket | None) -> bool:
        """Return whether a send with `ticket`, or without one, overtakes no other send."""
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
