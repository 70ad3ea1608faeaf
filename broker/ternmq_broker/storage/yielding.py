"""Yields during work for one client, so that other requests and threads proceed."""

import asyncio
from typing import Final

_ROUNDS: Final = 4
"""Rounds of the loop in a yield. A send takes some rounds; with one round in each yield, it would
wait for a scan in every round."""

RECORDS_AT_ONCE: Final = 64
"""Records that are processed one by one between two yields: 1 to 3 ms."""

_PAUSE_S: Final = 0.001
"""Pause of a yield to threads. A thread that has synced a file needs the interpreter's lock to
report it, and seldom gets the lock between two rounds of the loop."""


async def yield_to_requests() -> None:
    """Yield to waiting requests before work for one client goes on. Takes 50 µs alone."""
    for _ in range(_ROUNDS):
        await asyncio.sleep(0)


async def yield_to_threads() -> None:
    """Yield to other tasks for some rounds of the loop, and to other threads."""
    await yield_to_requests()
    await asyncio.sleep(_PAUSE_S)
