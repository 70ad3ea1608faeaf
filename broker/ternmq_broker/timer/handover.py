"""What RocketMQ has of timed messages beside their queue."""

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from ternmq_broker.timer.retired_wheel import retire_wheel
from ternmq_model.clock import Clock
from ternmq_remoting.environment import Blocking
from ternmq_runtime.whole_calls import run_whole
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.watched import WatchedFileSystem

logger = logging.getLogger(__name__)

_AGAIN_MS: Final = 60_000


class WheelFiles:
    """The files of RocketMQ's wheel and timer log. One call at a time.

    Nothing is lost with them, so an error of theirs leaves the store as it is.

    Args:
        files: The file system; used in the blocking pool only.
        blocking: That pool.
        data: The data directory.
    """

    def __init__(self, files: FileSystem, blocking: Blocking, data: Path) -> None:
        self._disk = (WatchedFileSystem.under(files), data)
        self._blocking = blocking

    async def retire(self) -> None:
        """Put RocketMQ's wheel out of its way.

        Raises:
            OSError: The disk refused; some of it may be left.
        """
        await self._run(retire_wheel)

    async def _run(self, function: Callable[..., Any], *args: Any) -> None:
        outcome: list[OSError | None] = []
        call = partial(function, *self._disk, *args)
        await run_whole(self._blocking.run, call, outcome.append)
        if outcome[0] is not None:
            raise outcome[0]


class Handover:
    """Takes timed messages over from RocketMQ. Owned by `TimerService`.

    Args:
        files: By which RocketMQ knows what waits.
        clock: For when to try again.
    """

    def __init__(self, files: WheelFiles, clock: Clock) -> None:
        self._files, self._clock = files, clock
        self._is_done = False
        self._again_at_ms = clock.monotonic_ms()

    async def take_over(self) -> float | None:
        """Have RocketMQ find no wheel; return in how many seconds to try again, None when done.

        What the disk refuses is logged: delivering goes on, the way back to RocketMQ is in doubt.
        """
        if self._is_done:
            return None
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._again_at_ms:
            try:
                await self._files.retire()
            except OSError as error:
                self._again_at_ms = now_ms + _AGAIN_MS
                logger.error("RocketMQ would repeat timed messages, tried again error=%s", error)
            else:
                self._is_done = True
                return None
        return (self._again_at_ms - now_ms) / 1000
