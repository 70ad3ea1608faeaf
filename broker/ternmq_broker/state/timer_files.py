"""RocketMQ's wheel, which tells of timed messages as they were when this broker took them over.

Nothing reads it here: what waits is found in its queue. Left where it is, it would let RocketMQ
deliver again what was delivered meanwhile, and what was cancelled. `config/timermetrics` stays: it
counts what waits for operators, and the store watches over that folder.

Source: RocketMQ `TimerMessageStore`.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from ternmq_broker.state.timer_log import LOG_FOLDER, TimerLog, write_timer_log
from ternmq_remoting.environment import Blocking
from ternmq_runtime.shielded_call import run_shielded
from ternmq_store.disk.fail_stop import FailStopFileSystem
from ternmq_store.disk.filesystem import FileSystem

logger = logging.getLogger(__name__)

_WHEEL: Final = "timerwheel"


class TimerFiles:
    """The files of RocketMQ's wheel and timer log. One call at a time.

    Nothing is lost with them, so an error of theirs leaves the store as it is.

    Args:
        files: The file system; used in the blocking pool only.
        blocking: That pool.
        data: The data directory.
    """

    def __init__(self, files: FileSystem, blocking: Blocking, data: Path) -> None:
        self._disk = (FailStopFileSystem.under(files), data)
        self._blocking = blocking

    async def retire(self) -> None:
        """Put RocketMQ's wheel out of its way, and remove the timer log that was left for it.

        Raises:
            OSError: The disk refused; some of it may be left.
        """
        await self._run(retire_wheel)

    async def leave(self, log: TimerLog) -> None:
        """Leave RocketMQ a timer log, durably.

        Raises:
            OSError: The disk refused; RocketMQ finds the beginning of it, or none.
        """
        await self._run(write_timer_log, log)

    async def _run(self, function: Callable[..., Any], *args: Any) -> None:
        outcome: list[OSError | None] = []
        call = partial(function, *self._disk, *args)
        await run_shielded(self._blocking.run, call, outcome.append)
        if outcome[0] is not None:
            raise outcome[0]


def retired_folder(data: Path) -> Path:
    """Return where the files of a wheel lie that counts no more; nobody reads them."""
    return data / "timer.retired"


def retire_wheel(files: FileSystem, data: Path) -> int:
    """Put RocketMQ's wheel out of its way, durably; return how many files it had.

    The wheel's own file goes last: a timer log without it is one that a stop in order left here,
    and removed. A wheel that was retired is removed by the next call that finds none, or another.
    A crash leaves some files, with which the next call goes on.

    Raises:
        OSError: The disk failed. Some of the files may be moved.
    """
    folder = retired_folder(data)
    found = _wheel_files(files, data)
    retired = _wheel_files(files, folder)
    if not files.exists(data / _WHEEL):
        _remove(files, [*found, *retired])
        return 0
    if files.exists(folder / _WHEEL):  # whole, so of an earlier time
        _remove(files, retired)
    for path in found:
        new = folder / path.relative_to(data)
        files.make_folder(new.parent)
        files.rename(path, new)
        files.sync_folder(new.parent)
        files.sync_folder(path.parent)
    logger.warning(
        "wheel of RocketMQ retired until the next start, timed messages are delivered here "
        "files=%d folder=%s",
        len(found),
        folder,
    )
    return len(found)


def _wheel_files(files: FileSystem, folder: Path) -> Sequence[Path]:
    """Return the files of a timer log, then that of the wheel; those that there are."""
    log = [folder / LOG_FOLDER / name for name in files.files(folder / LOG_FOLDER)]
    return [*log, folder / _WHEEL] if files.exists(folder / _WHEEL) else log


def _remove(files: FileSystem, paths: Sequence[Path]) -> None:
    for path in paths:
        files.remove(path)
        files.sync_folder(path.parent)
