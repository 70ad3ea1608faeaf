"""Saving of a table that changes faster than the disk writes: one write at a time, latest state.

Changes during a write share the next one.
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
    """Only writer of a table's file, with its waiters. Owned by one event loop.

    Every change gets a higher number, and a waiter waits for a number, never for a state: the table
    may equal the state of a running or a failed write. The first of several failures is logged, and
    the first success after them.

    Args:
        path: Path of the file, for the log.
        run: Runner of blocking calls, such as `BlockingPool.run`.
        state: Function that returns a value which differs after every change of the table.
        prepare: Function that returns the call which writes the present table. Its argument says
            whether a caller waits.
        ended: Function of the written state and the OSError of the write, if any. It returns the
            error for the waiters; None = success.
        job_name: Name of the job.
        interval_s: Pause between two checks for changes without waiters, s.

    Attributes:
        job: Job that saves the changed table.
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
        """Highest number in the file."""
        self._answered = 0
        """Highest number that was written while a caller waited."""
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._writing = asyncio.Lock()
        self._is_failing = False

    @property
    def is_saved(self) -> bool:
        """True while the file has the present table."""
        return self._observe() == self._saved

    def mark_saved(self) -> None:
        """Mark the present table as saved."""
        self._saved = self._answered = self._observe()

    def saved(self) -> asyncio.Future[None] | None:
        """Return a future that is done when the file has the present table; None = it has it now.

        After a failed write the future raises the error of `ended`. The caller may await, cancel or
        ignore the future.
        """
        number = self._observe()
        if number == self._answered:
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((number, future))
        self.job.wake()
        return future

    async def step(self) -> bool:
        """Save the table if it changed. Step of a job."""
        return await self.save() is None and bool(self._waiting)

    async def save(self) -> TernError | None:
        """Save the table if it changed, and answer the waiters. Return the error, if any.

        A cancellation is raised only after the write and the answers.
        """
        async with self._writing:
            self._waiting = [each for each in self._waiting if not each[1].done()]
            number, state, is_awaited = self._observe(), self._seen, bool(self._waiting)
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
        """Answer the waiters of written changes; after a failure, all waiters."""
        waiting, self._waiting = self._waiting, []
        if error is None:
            self._saved = number
            self._answered = number if is_awaited else self._answered
        for awaited, future in waiting:
            if future.done():
                continue
            if error is not None:
                future.set_exception(error)
                future.exception()  # an error that no caller awaits is no bug
            elif awaited <= self._answered:
                future.set_result(None)
            else:
                self._waiting.append((awaited, future))

    def _log(self, reason: OSError | None) -> None:
        if reason is not None and not self._is_failing:
            logger.error("table not saved file=%s err=%s", self._path, reason)
        elif reason is None and self._is_failing:
            logger.info("table saved again file=%s", self._path)
        self._is_failing = reason is not None

    def _observe(self) -> int:
        """Return the number of the table's present state."""
        state = self._state()
        if state != self._seen:
            self._seen = state
            self._number += 1
        return self._number
