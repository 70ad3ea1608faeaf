"""The one lifecycle of services and clients: `async with` opens all or nothing, and closes all.

    class Broker(Lifecycle):
        async def _open(self, stack: AsyncExitStack) -> None:
            store = await open_store()
            stack.push_async_callback(store.close)
            self._server = await stack.enter_async_context(serve(store))

What was opened first is closed last, also when opening fails half-way.
"""

from abc import ABC, abstractmethod
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self


class Lifecycle(ABC):
    """Base of what is used by `async with`. A block is entered and left by one and the same task.

    Leaving what is not open does nothing, so that a clean-up may be repeated.
    """

    __stack: AsyncExitStack | None = None

    @abstractmethod
    async def _open(self, stack: AsyncExitStack) -> None:
        """Open every part, and put on `stack` how each is closed.

        When this raises, what is on the stack is closed, and the error comes out of `async with`.
        """

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await self._open(stack)
            self.__stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        stack, self.__stack = self.__stack, None
        return None if stack is None else await stack.__aexit__(exc_type, exc, traceback)
