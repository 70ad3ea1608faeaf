"""A cluster of another event loop, used like one of this loop."""

import asyncio
from collections.abc import Callable
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, cast

from ternmq_testing.cluster.cluster import Cluster
from ternmq_testing.cluster.members import BrokerHandle
from ternmq_testing.memory.other_loop import run_on


def elsewhere(cluster: Cluster, loop: asyncio.AbstractEventLoop) -> Cluster:
    """Return `cluster`, which lives on `loop` of another thread, for use on any other loop.

    Methods with `await` wait without blocking; the others block for the moment that they take.
    Clients that it makes live on the loop that enters them.
    """
    return cast("Cluster", _Elsewhere(cluster, loop))


class _Elsewhere:
    """An object of another loop, by its public methods."""

    def __init__(self, target: Cluster | BrokerHandle, loop: asyncio.AbstractEventLoop) -> None:
        self._target, self._loop = target, loop

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if not callable(value) or name in _MADE_HERE:
            return self._of_other_loop(value)
        return partial(self._wait if iscoroutinefunction(value) else self._call, value)

    async def _wait(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        try:
            return await run_on(self._loop, function(*args, **kwargs))
        except AssertionError as error:  # a failure is shown in the test
            raise error.with_traceback(None) from None

    def _call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        async def call() -> Any:
            return function(*args, **kwargs)

        __tracebackhide__ = True
        try:
            value = asyncio.run_coroutine_threadsafe(call(), self._loop).result()
        except AssertionError as error:
            raise error.with_traceback(None) from None
        return self._of_other_loop(value)

    def _of_other_loop(self, value: Any) -> Any:
        if isinstance(value, BrokerHandle):
            return _Elsewhere(value, self._loop)
        if isinstance(value, list):
            return list(map(self._of_other_loop, value))  # pyright: ignore[reportUnknownArgumentType]
        return value


_MADE_HERE = frozenset(
    {
        "producer",
        "transaction_producer",
        "push_consumer",
        "pull_consumer",
        "admin",
        "installed",
        "environment",
    }
)
"""Methods that need no loop: what they return belongs to the loop that enters it."""
