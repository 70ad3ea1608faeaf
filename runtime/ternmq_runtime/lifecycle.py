"""Lifecycle of services and clients: `async with` opens all parts or none, and closes all.

    class Broker(Lifecycle):
        async def _open(self, stack: AsyncExitStack) -> None:
            store = await open_store()
            stack.push_async_callback(store.close)
            self._server = await stack.enter_async_context(serve(store))

Parts are closed in the reverse order of opening, also after a failed opening.
"""

import asyncio
import os
from abc import ABC, abstractmethod
from contextlib import AsyncExitStack
from threading import get_ident
from types import TracebackType
from typing import Self

from ternmq_runtime.fork_safety import check_loop, check_process, is_inherited


class Lifecycle(ABC):
    """Base of classes for `async with`. One task must enter and leave the block.

    Leaving has no effect if the object is not open, so a clean-up may be repeated, and in a forked
    child of the process that opened it: the object stays open for the parent.
    """

    __stack: AsyncExitStack | None = None
    __process_id = 0
    __loop: asyncio.AbstractEventLoop | None = None

    @abstractmethod
    async def _open(self, stack: AsyncExitStack) -> None:
        """Open every part and push its closing on `stack`.

        After an error the stack is closed, and `async with` raises the error.
        """

    def _check_owner(self) -> None:
        """Check that the block was opened in this process and on this event loop.

        Raises:
            ClosedError: This process was forked from the one that opened the block.
            UsageError: This thread runs another loop. The opened parts wait for futures of their
                own loop, which never wake a task of another one.
        """
        check_process(self.__process_id)
        loop = self.__loop
        # For every message: `get_running_loop` of Python 3.11 makes a system call. Loops of asyncio
        # store the thread that runs them, and a thread runs one loop.
        if loop is None or getattr(loop, "_thread_id", None) != get_ident():
            check_loop(loop)

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
