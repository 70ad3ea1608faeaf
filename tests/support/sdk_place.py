"""Where a test of the SDK works: a cluster, and names that no other test has."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

SOON_S: Final = 150.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where one test works."""

    nameserver: str
    topic: str
    group: str

    def run(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run the test's coroutine, which has to end soon."""

        async def limited() -> None:
            async with asyncio.timeout(SOON_S):
                await main()

        asyncio.run(limited())


async def eventually(is_so: Callable[[], bool | Awaitable[bool]]) -> None:
    """Wait until `is_so` tells that it is; the test's own limit ends the waiting."""
    while True:
        found = is_so()
        if found if isinstance(found, bool) else await found:
            return
        await asyncio.sleep(0.02)
