"""Which topics were deleted, and up to where: a side file, so that no scan brings them back.

The log keeps a deleted topic's records until their file goes. One line for each topic: the physical
offset before which its records count no more, a space, its name. RocketMQ ignores the file.
"""

from collections.abc import Mapping
from pathlib import Path

from ternmq_model.errors import IllegalName
from ternmq_model.names import check_topic
from ternmq_model.offsets import PhysicalOffset
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.layout import deletions_path
from ternmq_store.disk.shortage import check_full
from ternmq_store.disk.state_file import read_whole, replace_file
from ternmq_store.dispatcher import Dispatcher
from ternmq_store.log.commit_log import CommitLog


def load_deletions(files: FileSystem, path: Path) -> dict[str, PhysicalOffset]:
    """Return for each deleted topic before which offset its records count no more."""
    if not files.exists(path):
        return {}
    text = read_whole(files, path).decode("ascii", "replace")
    return dict(_parse(line) for line in text.splitlines() if _is_sound(line))


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
    text = "".join(f"{at} {topic}\n" for topic, at in deletions.items())
    replace_file(files, path, text.encode(), keep_previous=False)


def note_deletion(
    files: FileSystem, root: Path, dispatcher: Dispatcher, topic: str, at: PhysicalOffset
) -> None:
    """Let the records of `topic` before `at` count no more, durably.

    Raises:
        StoreFull: There is no space; they count still.
        OSError: The disk failed.
    """
    dropped = dispatcher.dropped | {topic: at}
    try:
        save_deletions(files, deletions_path(root), dropped)
    except OSError as error:
        check_full(error, "deleted topics")
        raise
    dispatcher.dropped = dropped


def settle_deletions(files: FileSystem, root: Path, log: CommitLog, dispatcher: Dispatcher) -> None:
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
