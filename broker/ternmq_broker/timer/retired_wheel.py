"""RocketMQ's wheel, which tells of timed messages as they were when this broker took them over.

Nothing reads it here: what waits is found in its queue. Left where it is, it would let RocketMQ
deliver again what was delivered meanwhile, and what was cancelled. `config/timermetrics` stays: it
counts what waits for operators, and the store watches over that folder.

Source: RocketMQ `TimerMessageStore`.
"""

import logging
from pathlib import Path
from typing import Final

from ternmq_store.disk.filesystem import FileSystem

logger = logging.getLogger(__name__)

_WHEEL: Final = "timerwheel"
_LOG: Final = "timerlog"


def retired_folder(data: Path) -> Path:
    """Return where the files of a wheel lie that counts no more; nobody reads them."""
    return data / "timer.retired"


def retire_wheel(files: FileSystem, data: Path) -> int:
    """Put RocketMQ's wheel out of its way, durably; return how many files it had.

    Those of an earlier time are replaced. A crash leaves some files, which the next call moves.

    Raises:
        OSError: The disk failed. Some of the files may be moved.
    """
    old = [data / _WHEEL, *(data / _LOG / name for name in files.files(data / _LOG))]
    found = [path for path in old if files.exists(path)]
    if not found:
        return 0
    for path in found:
        new = retired_folder(data) / path.relative_to(data)
        files.make_folder(new.parent)
        files.rename(path, new)
        files.sync_folder(new.parent)
        files.sync_folder(path.parent)
    logger.warning(
        "wheel of RocketMQ retired, timed messages are delivered here files=%d folder=%s",
        *(len(found), retired_folder(data)),
    )
    return len(found)
