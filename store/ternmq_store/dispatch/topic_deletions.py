"""Deleted topics and the ends of their records in the log, in the side file `ternmq.deletions`.

The log keeps a deleted topic's records until their file goes; no scan brings them back. One line
for each topic: the physical offset before which its records count no more, a space, its name. The
last line is a checksum, which versions before it pass over. RocketMQ ignores the file.
"""

import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

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
    """Return for each deleted topic before which offset its records count no more.

    When no generation is right, none is: a topic that comes back is better than a message that a
    wrong offset hides.

    Args:
        files: The file system.
        path: The file.
        tell: Gets the reason why a file that is there does not count.

    Raises:
        StateUnreadable: There is one, and it cannot be read.
    """
    try:
        return read_generations(files, path, decode_deletions) or {}
    except StateDamaged as error:
        tell(str(error))
        return {}


def encode_deletions(deletions: Mapping[str, PhysicalOffset]) -> bytes:
    """Return the file's bytes: a topic a line, in the end a checksum of the lines before it."""
    text = "".join(f"{at} {topic}\n" for topic, at in deletions.items()).encode()
    return text + _CHECKSUM + f"{zlib.crc32(text):08x}\n".encode()


def decode_deletions(data: bytes) -> dict[str, PhysicalOffset]:
    """Return what the file says. One of a version before the checksum has none.

    Raises:
        ValueError: The checksum is of other lines.
    """
    text, separator, checksum = data.rpartition(_CHECKSUM)
    if separator and checksum.strip() != f"{zlib.crc32(text):08x}".encode():
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
    """Replace the file, durably: a crash leaves the old one or the new one.

    Raises:
        OSError: One of the two is there.
    """
    replace_file(files, path, encode_deletions(deletions), in_both=True)


def note_deletions(
    files: FileSystem, root: Path, dispatcher: LogDispatcher, deleted: Mapping[str, PhysicalOffset]
) -> None:
    """Note durably for topics the offsets before which their records no longer count.

    Raises:
        StoreFull: There is no space; they count still.
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
    """Forget deletions of what is gone anyway, and those of records that were cut.

    Raises:
        OSError: They are as before.
    """
    settled = {
        topic: min(offset, log.end)
        for topic, offset in dispatcher.dropped.items()
        if offset > log.start
    }
    if settled != dispatcher.dropped:
        save_deletions(files, deletions_path(root), settled)
        dispatcher.dropped = settled
