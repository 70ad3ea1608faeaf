"""Layout of a store's directory: names, positions and rolling of files. Pure.

Source: RocketMQ `UtilAll`, `StorePathConfigHelper`, `CommitLog`, `ConsumeQueue`, `IndexService`.
"""

from datetime import datetime
from pathlib import Path
from typing import Final

from ternmq_model.record.format import BLANK_BYTES

STEP_BYTES: Final = 64 << 10
"""Bytes of a consume queue file that are allocated at a time."""

_DIGITS: Final = 20
_INDEX_DIGITS: Final = 17


def file_name(base: int) -> str:
    """Return the name of the file that begins at byte `base`: 20 digits."""
    return f"{base:020d}"


def file_base(name: str) -> int | None:
    """Return the byte at which the file `name` begins; None = another kind of name."""
    return int(name) if len(name) == _DIGITS and name.isascii() and name.isdigit() else None


def base_of(offset: int, file_bytes: int) -> int:
    """Return the begin of the file with byte `offset`."""
    return offset - offset % file_bytes


def fits(record_bytes: int, bytes_left: int) -> bool:
    """Return whether a record fits into `bytes_left` of a file, with a blank record behind it.

    Source: RocketMQ `CommitLog.DefaultAppendMessageCallback`.
    """
    return record_bytes + BLANK_BYTES <= bytes_left


def step_end(position: int, file_bytes: int) -> int:
    """Return the end of the space to allocate before a write of bytes below `position`."""
    return min(-(-position // STEP_BYTES) * STEP_BYTES, file_bytes)


def commit_log_folder(root: Path) -> Path:
    """Return the folder of the log's files."""
    return root / "commitlog"


def next_file_path(root: Path) -> Path:
    """Return the path of the prepared next file of the log, outside the log's folder."""
    return root / "commitlog.next"


def consume_queue_folder(root: Path) -> Path:
    """Return the folder of consume queues, with a folder for each topic."""
    return root / "consumequeue"


def queue_folder(root: Path, topic: str, queue_id: int) -> Path:
    """Return the folder of one queue's files. The caller has checked `topic`."""
    return consume_queue_folder(root) / topic / str(queue_id)


def consume_queue_ext_folder(root: Path) -> Path:
    """Return the folder of the extensions of queues, with a folder for each topic."""
    return root / "consumequeue_ext"


def queue_ext_folder(root: Path, topic: str, queue_id: int) -> Path:
    """Return the folder of one queue's extension. The caller has checked `topic`."""
    return consume_queue_ext_folder(root) / topic / str(queue_id)


def index_folder(root: Path) -> Path:
    """Return the folder of the index files."""
    return root / "index"


def is_index_name(name: str) -> bool:
    """Return whether `name` is that of an index file: 17 digits."""
    return len(name) == _INDEX_DIGITS and name.isascii() and name.isdigit()


def index_name(now_ms: int, newest: str) -> str:
    """Return the name of a new index file: the local time, but always above `newest`.

    Args:
        now_ms: Wall time, Unix ms.
        newest: Name of the newest index file; empty = none.

    Source: RocketMQ `IndexService.getAndCreateLastIndexFile`.
    """
    name = f"{datetime.fromtimestamp(now_ms // 1000):%Y%m%d%H%M%S}{now_ms % 1000:03d}"
    return max(name, f"{int(newest) + 1:0{_INDEX_DIGITS}d}") if newest else name


def checkpoint_path(root: Path) -> Path:
    """Return the checkpoint file, with the times up to which all files are on disk."""
    return root / "checkpoint"


def deletions_path(root: Path) -> Path:
    """Return the side file of deleted topics. RocketMQ ignores it."""
    return root / "ternmq.deletions"


def notes_path(root: Path) -> Path:
    """Return the side file with notes about the log. RocketMQ ignores it."""
    return root / "ternmq.store"


def reserve_path(root: Path) -> Path:
    """Return the reserve file, space for an opening on a full disk. RocketMQ ignores it."""
    return root / "ternmq.reserve"


def cut_folder(root: Path) -> Path:
    """Return the folder of copies of cut tails of the log. RocketMQ ignores it."""
    return root / "cut"


def aside_folder(root: Path) -> Path:
    """Return the folder for foreign files of the log's folder. RocketMQ ignores it."""
    return root / "aside"


def cut_name(start: int, end: int) -> str:
    """Return the name of the copy of the log's bytes from `start` to `end`: 20 digits twice."""
    return f"{start:020d}-{end:020d}"


def cut_range(name: str) -> tuple[int, int] | None:
    """Return the range of log bytes in the copy `name`; None = another kind of name."""
    start, end = map(file_base, name.partition("-")[::2])
    return None if start is None or end is None else (start, end)


def abort_path(root: Path) -> Path:
    """Return the file `abort`, which exists while the store is open and after a crash."""
    return root / "abort"


def lock_path(root: Path) -> Path:
    """Return the file of an open store's lock."""
    return root / "lock"
