"""Yields of work for one client: other requests and threads go on before it does."""

import asyncio
from typing import Final

_ROUNDS: Final = 4
"""A send takes some rounds of the loop; who gives way but once makes it wait for a scan in each."""

RECORDS_AT_ONCE: Final = 64
"""Records that are looked at or stored one by one before others are let in: 1 to 3 ms."""

_PAUSE_S: Final = 0.001
"""A thread that has synced a file cannot tell so while Python code keeps running here: in the short
moments between two rounds it seldom gets the interpreter's lock. A pause lets it have that."""


async def yield_to_requests() -> None:
    """Yield to waiting requests before work for one client goes on. Takes 50 µs alone."""
    for _ in range(_ROUNDS):
        await asyncio.sleep(0)


async def yield_to_threads() -> None:
    """Yield to other tasks for some rounds of the loop, and to other threads."""
    await yield_to_requests()
    await asyncio.sleep(_PAUSE_S)
