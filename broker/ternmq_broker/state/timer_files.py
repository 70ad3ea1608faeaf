"""RocketMQ's wheel, which tells of timed messages as they were when this broker took them over.

Nothing reads it here: what waits is found in its queue. Left where it is, it would let RocketMQ
deliver again what was delivered meanwhile, and what was cancelled. `config/timermetrics` stays: it
counts what waits for operators, and the store watches over that folder.

Source: RocketMQ `TimerMessageStore`.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ternmq_broker.state.timer_log import LOG_FOLDER
from ternmq_store.disk.filesystem import FileSystem

logger = logging.getLogger(__name__)

_WHEEL: Final = "timerwheel"


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
        *(len(found), folder),
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
