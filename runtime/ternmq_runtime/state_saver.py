"""Saving a table that changes faster than the disk takes it: one write at a time, its latest state.

Changes that come while a write is under way share the next one.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, Generic, TypeVar

from ternmq_model.errors import TernError
from ternmq_runtime.service import Job
from ternmq_runtime.shielded_call import run_shielded

T = TypeVar("T")

logger = logging.getLogger(__name__)


class StateSaver(Generic[T]):
    """The one writer of a table's file, and the waiters for it. Owned by one event loop.

    Every change gets a number above all before it, and a waiter waits for a number, never for a
    state: a table may equal the one that is being written, or one that a failed write left behind.
    The first of several failures is logged, and that a write succeeds again.

    Args:
        path: The file, to be named in the log.
        run: Runs what blocks, as `BlockingPool.run` does.
        state: Returns the table's state; any value that differs after a change from what it
            returned before.
        prepare: Returns the call that writes the table as it is now. Gets whether anybody waits
            for it.
        ended: Called with the state that was written, or was to be, and what the disk said; returns
            the error for the waiters, None when all is well.
        job_name: Name of the job that saves.
        interval_s: Pause between two checks of a table whose change nobody awaits, s.

    Attributes:
        job: Saves the table when it has changed.
    """

    def __init__(
        self,
        path: Path | None,
        run: Callable[[Callable[[], None]], Awaitable[None]],
        *,
        state: Callable[[], T],
        prepare: Callable[[bool], Callable[[], None]],
        ended: Callable[[T, OSError | None], TernError | None],
        job_name: str,
        interval_s: float = 1.0,
    ) -> None:
        self._path = path
        self._run = run
        self._state = state
        self._prepare = prepare
        self._ended = ended
        self.job: Final = Job(name=job_name, interval_s=interval_s, step=self.step)
        self._seen = state()
        self._number = 1
        self._saved = 0
        """The highest number that the file holds."""
        self._answered = 0
        """Highest number that was written while a caller waited."""
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._writing = asyncio.Lock()
        self._is_failing = False

    @property
    def is_saved(self) -> bool:
        """The file holds the table as it is now."""
        return self._look() == self._saved

    def mark_saved(self) -> None:
        """Record that the file holds the table as it is now."""
        self._saved = self._answered = self._look()

    def saved(self) -> asyncio.Future[None] | None:
        """Return None when the file holds the table as it is now, else what is done when it does.

        The future raises what `ended` returns when the disk refuses. It may be awaited, cancelled
        or left alone.
        """
        number = self._look()
        if number == self._answered:
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((number, future))
        self.job.wake()
        return future

    async def step(self) -> bool:
        """Save the table if it changed: a step of a job."""
        return await self.save() is None and bool(self._waiting)

    async def save(self) -> TernError | None:
        """Save the table if it changed, and answer the waiters; return the error, if any.

        Cancelling does not cut a write short: waiters are told before the cancellation is raised.
        """
        async with self._writing:
            self._waiting = [each for each in self._waiting if not each[1].done()]
            number, state, is_awaited = self._look(), self._seen, bool(self._waiting)
            if number == (self._answered if is_awaited else self._saved):
                return None
            errors: list[TernError | None] = []

            def settle(reason: OSError | None) -> None:
                self._log(reason)
                errors.append(self._ended(state, reason))
                self._settle(number, errors[0], is_awaited=is_awaited)

            await run_shielded(self._run, self._prepare(is_awaited), settle)
            return errors[0]

    def _settle(self, number: int, error: TernError | None, *, is_awaited: bool) -> None:
        """Answer the waiters whose change was written; after a failure, all of them."""
        waiting, self._waiting = self._waiting, []
        if error is None:
            self._saved = number
            self._answered = number if is_awaited else self._answered
        for wanted, future in waiting:
            if future.done():
                continue
            if error is not None:
                future.set_exception(error)
                future.exception()  # one that nobody awaits any more is no bug
            elif wanted <= self._answered:
                future.set_result(None)
            else:
                self._waiting.append((wanted, future))

    def _log(self, reason: OSError | None) -> None:
        if reason is not None and not self._is_failing:
            logger.error("table not saved file=%s error=%s", self._path, reason)
        elif reason is None and self._is_failing:
            logger.info("table saved again file=%s", self._path)
        self._is_failing = reason is not None

    def _look(self) -> int:
        """Return the number of the table's present state."""
        state = self._state()
        if state != self._seen:
            self._seen = state
            self._number += 1
        return self._number
