"""Blocking calls shielded from cancellation: a cancelled caller awaits their end first.

A cancelled `BlockingPool.run` leaves its thread at work. Where the thread writes, what comes next
must not: the directory's lock would be given back, or the same file written a second time.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress


class _ShieldedCall:
    """One call, its outcome, and its end."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function
        self._ended = threading.Event()
        self.error: BaseException | None = None

    def __call__(self) -> None:
        try:
            self._function()
        except BaseException as error:  # whatever it is, it is raised where the end is awaited
            self.error = error
        finally:
            self._ended.set()

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    def wait(self) -> None:
        self._ended.wait()


async def run_shielded(
    run: Callable[[Callable[[], None]], Awaitable[None]],
    function: Callable[[], None],
    done: Callable[[OSError | None], None],
) -> None:
    """Call `function` off the loop, then `done` on it, with how it ended.

    Cancelling does not cut that short: the cancellation is raised when `done` has been called.

    Args:
        run: Runs what blocks, as `BlockingPool.run` does.
        function: Does something to files.
        done: Gets the error that came out of it, None if none did.

    Raises:
        Exception: Any other than OSError that `function` raised; `done` is not called.
    """
    call = _ShieldedCall(function)
    try:
        await run(call)
    except asyncio.CancelledError:
        while not call.has_ended:
            # Calls begin in the order they came: this one takes no thread that the other needs.
            with suppress(asyncio.CancelledError):
                await run(call.wait)
        _tell(call.error, done)
        raise
    _tell(call.error, done)


def _tell(error: BaseException | None, done: Callable[[OSError | None], None]) -> None:
    if error is not None and not isinstance(error, OSError):
        raise error
    done(error)
