"""Sharing of one call among concurrent callers."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from ternmq_model.errors import ClosedError, TernError
from ternmq_runtime.service import OwnedTasks

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class SingleFlight(Generic[K, T]):
    """Runner of at most one call for each key at a time, as a task of `tasks`."""

    def __init__(self, tasks: OwnedTasks) -> None:
        self._tasks = tasks
        self._running: dict[K, asyncio.Task[T | TernError]] = {}

    async def run(self, key: K, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result of the running call for `key`, or of `call`.

        Cancelling stops the wait, not the call, since other callers may wait for it.

        Raises:
            TernError: The call raised the error.
            ClosedError: The owner of the tasks is closing.
        """
        task = self._running.get(key)
        if task is None:
            task = self._tasks.spawn(_captured(call()), f"single-flight {key}")
            self._running[key] = task
            task.add_done_callback(lambda _: self._running.pop(key, None))
        await asyncio.wait((task,))
        if task.cancelled():
            raise ClosedError("the client was closed")
        outcome = task.result()
        if isinstance(outcome, TernError):
            raise outcome
        return outcome


async def _captured(call: Coroutine[Any, Any, T]) -> T | TernError:
    """Return the result or error of `call`: waiters raise the error, not the task."""
    try:
        return await call
    except TernError as error:
        return error
