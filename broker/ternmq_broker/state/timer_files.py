"""RocketMQ's wheel, with the timed messages from before this broker took over the directory.

This broker does not read the wheel: it finds waiting messages in their queue. RocketMQ would
deliver messages of an old wheel again, including cancelled ones. `config/timermetrics` stays: it
has counts for operators, and the store watches that folder.

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

    They hold no data of their own, so their errors do not stop the store.

    Args:
        files: File system; used in the blocking pool only.
        blocking: Runs calls on files.
        data: Data directory.
    """

    def __init__(self, files: FileSystem, blocking: Blocking, data: Path) -> None:
        self._disk = (FailStopFileSystem.under(files), data)
        self._blocking = blocking

    async def retire(self) -> None:
        """Move RocketMQ's wheel away, and remove the timer log that was written for RocketMQ.

        Raises:
            OSError: The disk refused; some files may remain.
        """
        await self._run(retire_wheel)

    async def leave(self, log: TimerLog) -> None:
        """Write a timer log for RocketMQ, durably.

        Raises:
            OSError: The disk refused; RocketMQ finds a part of the log, or none.
        """
        await self._run(write_timer_log, log)

    async def _run(self, function: Callable[..., Any], *args: Any) -> None:
        outcome: list[OSError | None] = []
        call = partial(function, *self._disk, *args)
        await run_shielded(self._blocking.run, call, outcome.append)
        if outcome[0] is not None:
            raise outcome[0]


def retired_folder(data: Path) -> Path:
    """Return the folder of a retired wheel, which is never read."""
    return data / "timer.retired"


def retire_wheel(files: FileSystem, data: Path) -> int:
    """Move RocketMQ's wheel away, durably; return the number of its files.

    The file of the wheel moves last: a timer log without it was written by a clean stop of this
    broker, and is removed. The next call without a wheel, or with another one, removes a retired
    wheel. After a crash the next call continues.

    Raises:
        OSError: The disk failed. Some of the files may be moved.
    """
    folder = retired_folder(data)
    found = _wheel_files(files, data)
    retired = _wheel_files(files, folder)
    if not files.exists(data / _WHEEL):
        _remove(files, [*found, *retired])
        return 0
    if files.exists(folder / _WHEEL):  # complete, so it was retired earlier
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
    """Return the existing files of a timer log, then the file of the wheel."""
    log = [folder / LOG_FOLDER / name for name in files.files(folder / LOG_FOLDER)]
    return [*log, folder / _WHEEL] if files.exists(folder / _WHEEL) else log


def _remove(files: FileSystem, paths: Sequence[Path]) -> None:
    for path in paths:
        files.remove(path)
        files.sync_folder(path.parent)
