"""Deleted topics and the ends of their records in the log, in the side file `ternmq.deletions`.

The log has a deleted topic's records until their file is deleted, and no scan may bring them back.
The file has a line for each topic: the physical offset before which its records no longer count, a
space, and the name. The last line is a checksum, which earlier versions ignore. RocketMQ ignores
the file.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from ternmq_model.crc32 import crc32
from ternmq_model.errors import IllegalName, StateDamaged
from ternmq_model.names import check_topic
from ternmq_model.offsets import PhysicalOffset
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.layout import deletions_path
from ternmq_store.disk.resource_exhaustion import check_full
from ternmq_store.disk.state_file import read_generations, replace_file
from ternmq_store.dispatch.log_dispatcher import LogDispatcher
from ternmq_store.log.commit_log import CommitLog

_CHECKSUM: Final = b"crc32 "


def load_deletions(
    files: FileSystem, path: Path, tell: Callable[[str], None]
) -> dict[str, PhysicalOffset]:
    """Return the offset of each deleted topic before which its records no longer count.

    Without a valid generation the result is empty: a topic that comes back is better than a message
    hidden by a wrong offset.

    Args:
        files: File system of the store.
        path: Path of the file.
        tell: Function that receives the reason against an invalid file.

    Raises:
        StateUnreadable: The file exists and cannot be read.
    """
    try:
        return read_generations(files, path, decode_deletions) or {}
    except StateDamaged as error:
        tell(str(error))
        return {}


def encode_deletions(deletions: Mapping[str, PhysicalOffset]) -> bytes:
    """Return the file's bytes: a line for each topic, and a checksum of these lines."""
    text = "".join(f"{at} {topic}\n" for topic, at in deletions.items()).encode()
    return text + _CHECKSUM + f"{crc32(text):08x}\n".encode()


def decode_deletions(data: bytes) -> dict[str, PhysicalOffset]:
    """Return the deletions in the file's bytes. Files of early versions have no checksum.

    Raises:
        ValueError: The checksum does not match.
    """
    text, separator, checksum = data.rpartition(_CHECKSUM)
    if separator and checksum.strip() != f"{crc32(text):08x}".encode():
        raise ValueError("the checksum differs")
    lines = (text if separator else data).decode("ascii", "replace").splitlines()
    return dict(_parse(line) for line in lines if _is_sound(line))


def _parse(line: str) -> tuple[str, PhysicalOffset]:
    offset, _, topic = line.partition(" ")
    return topic, PhysicalOffset(int(offset))


def _is_sound(line: str) -> bool:
    offset, _, topic = line.partition(" ")
    try:
        check_topic(topic)
    except IllegalName:
        return False
    return offset.isascii() and offset.isdigit()


def save_deletions(files: FileSystem, path: Path, deletions: Mapping[str, PhysicalOffset]) -> None:
    """Replace the file durably. A crash leaves the old or the new file.

    Raises:
        OSError: The write failed. The old or the new file exists.
    """
    replace_file(files, path, encode_deletions(deletions), in_both=True)


def note_deletions(
    files: FileSystem, root: Path, dispatcher: LogDispatcher, deleted: Mapping[str, PhysicalOffset]
) -> None:
    """Store durably the offsets before which the records of topics no longer count.

    Raises:
        StoreFull: There is no space. The records still count.
        OSError: The disk failed.
    """
    dropped = {**dispatcher.dropped, **deleted}
    try:
        save_deletions(files, deletions_path(root), dropped)
    except OSError as error:
        check_full(error, "deleted topics")
        raise
    dispatcher.dropped = dropped


def settle_deletions(
    files: FileSystem, root: Path, log: CommitLog, dispatcher: LogDispatcher
) -> None:
    """Drop deletions of records that are deleted or cut off.

    Raises:
        OSError: The write failed. The deletions are unchanged.
    """
    settled = {
        topic: min(offset, log.end)
        for topic, offset in dispatcher.dropped.items()
        if offset > log.start
    }
    if settled != dispatcher.dropped:
        save_deletions(files, deletions_path(root), settled)
        dispatcher.dropped = settled
