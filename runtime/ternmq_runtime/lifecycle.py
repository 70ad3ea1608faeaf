"""The one lifecycle of services and clients: `async with` opens all or nothing, and closes all.

    class Broker(Lifecycle):
        async def _open(self, stack: AsyncExitStack) -> None:
            store = await open_store()
            stack.push_async_callback(store.close)
            self._server = await stack.enter_async_context(serve(store))

What was opened first is closed last, also when opening fails half-way.
"""

import asyncio
import os
from abc import ABC, abstractmethod
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from ternmq_runtime.fork_safety import check_loop, check_process, is_inherited


class Lifecycle(ABC):
    """Base of what is used by `async with`. A block is entered and left by one and the same task.

    Leaving what is not open does nothing, so that a clean-up may be repeated. Neither does leaving
    in a child process what its parent opened before the fork: it stays the parent's, and open.
    """

    __stack: AsyncExitStack | None = None
    __process_id = 0
    __loop: asyncio.AbstractEventLoop | None = None

    @abstractmethod
    async def _open(self, stack: AsyncExitStack) -> None:
        """Open every part, and put on `stack` how each is closed.

        When this raises, what is on the stack is closed, and the error comes out of `async with`.
        """

    def _check_owner(self) -> None:
        """Check that the block was opened in this process and on this event loop.

        Raises:
            ClosedError: This process was forked from that which opened it.
            UsageError: The loop that runs here is not that which opened it. What is opened waits
                for futures of its own loop, which would never wake a task of this one.
        """
        check_process(self.__process_id)
        check_loop(self.__loop)

    async def __aenter__(self) -> Self:
        self._check_owner()
        async with AsyncExitStack() as stack:
            await self._open(stack)
            self.__stack, self.__process_id = stack.pop_all(), os.getpid()
            self.__loop = asyncio.get_running_loop()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        if is_inherited(self.__process_id):
            return None
        stack, self.__stack = self.__stack, None
        self.__process_id, self.__loop = 0, None
        return None if stack is None else await stack.__aexit__(exc_type, exc, traceback)
