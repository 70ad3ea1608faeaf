"""Blocking calls shielded from cancellation: a cancelled caller awaits their end first.

After a cancelled `BlockingPool.run` the thread goes on. While the thread writes, the caller must
not release the lock of the directory or write the same file again.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress


class _ShieldedCall:
    """Shielded call with its outcome."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function
        # A lock costs a twentieth of an event, and each synchronous send waits for a call.
        self._running = threading.Lock()
        self._running.acquire()
        self.error: BaseException | None = None

    def __call__(self) -> None:
        try:
            self._function()
        except BaseException as error:  # every exception is raised where the end is awaited
            self.error = error
        finally:
            self._running.release()

    @property
    def has_ended(self) -> bool:
        return not self._running.locked()

    def wait(self) -> None:
        with self._running:
            return


async def run_shielded(
    run: Callable[[Callable[[], None]], Awaitable[None]],
    function: Callable[[], None],
    done: Callable[[OSError | None], None],
) -> None:
    """Call `function` in a thread, then `done` on the loop with its outcome.

    A cancellation is raised only after the call of `done`.

    Args:
        run: Runner of blocking calls, such as `BlockingPool.run`.
        function: Function that works on files.
        done: Function that receives the OSError of `function`; None = success.

    Raises:
        Exception: `function` raised another error than OSError. `done` is not called.
    """
    call = _ShieldedCall(function)
    try:
        await run(call)
    except asyncio.CancelledError:
        while not call.has_ended:
            # Calls begin in their order, so this one takes no thread that an earlier one needs.
            with suppress(asyncio.CancelledError):
                await run(call.wait)
        _tell(call.error, done)
        raise
    _tell(call.error, done)


def _tell(error: BaseException | None, done: Callable[[OSError | None], None]) -> None:
    if error is not None and not isinstance(error, OSError):
        raise error
    done(error)
