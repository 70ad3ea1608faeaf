"""Offsets of one broadcasting member, in a file of its own.

Source: RocketMQ `LocalFileOffsetStore`.
"""

import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from ternmq_consumer.offsets.offset_store import QueriedOffset
from ternmq_model.errors import StoreError
from ternmq_model.json_checksum import add_checksum, verify_checksum
from ternmq_model.names import GROUP_BYTES_MAX
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_remoting.environment import Blocking
from ternmq_runtime.durable_file import make_directory_durably, read_newest, replace_durably
from ternmq_runtime.state_saver import StateSaver

logger = logging.getLogger(__name__)

FILE_NAME: Final = "offsets.json"
_FORMAT: Final = 1
_DIGEST_CHARACTERS: Final = 8


def default_folder() -> Path:
    """Return the default folder of offsets: `~/.ternmq/offsets`."""
    return Path.home() / ".ternmq" / "offsets"


def offsets_path(folder: Path, client_id: str, group: str) -> Path:
    """Return the path of a client's offsets of a group. Pure."""
    # Any host name gives the name of one folder, never a path to another place.
    return folder / quote(client_id, safe="@#").replace(".", "%2E") / quote(group) / FILE_NAME


def own_group(group: str, client_id: str) -> str:
    """Return the group name under which brokers store the offsets of one member. Pure.

    The name is unique for each client: a digest stands for characters that are illegal in a group.
    """
    legal = re.sub(r"[^a-zA-Z0-9_-]", "-", client_id)
    name = f"{group}%{legal}"
    digest = hashlib.sha256(f"{group}\n{client_id}".encode()).hexdigest()[:_DIGEST_CHARACTERS]
    return f"{name[: GROUP_BYTES_MAX - len(digest) - 1]}-{digest}"


class LocalOffset(NamedTuple):
    """Offset of one queue in the file of a member."""

    offset: QueueOffset
    epoch: int = 0
    """Epoch of the broker at that time; 0 = unknown. In a later epoch other messages may lie before
    the offset."""


def encode_offsets(offsets: dict[MessageQueue, LocalOffset]) -> bytes:
    """Return the bytes of an offsets file. Pure."""
    rows = [
        {
            "topic": queue.topic,
            "broker_name": queue.broker_name,
            "queue_id": queue.queue_id,
            "offset": noted.offset,
            "epoch": noted.epoch,
        }
        for queue, noted in sorted(offsets.items())
    ]
    return add_checksum(json.dumps({"format": _FORMAT, "offsets": rows}, indent=1))


def decode_offsets(data: bytes) -> dict[MessageQueue, LocalOffset]:
    """Return the offsets in the bytes of an offsets file. Pure.

    Raises:
        ValueError: The bytes are no offsets file, have a later format or a wrong checksum.
        LookupError: An entry is missing.
        TypeError: An entry has a wrong type.
    """
    verify_checksum(data)
    content: Any = json.loads(data)
    if content["format"] != _FORMAT:
        raise ValueError(f"format {content['format']} is not known")
    found: dict[MessageQueue, LocalOffset] = {}
    for row in content["offsets"]:
        topic, broker_name = row["topic"], row["broker_name"]
        queue_id, offset, epoch = row["queue_id"], row["offset"], row.get("epoch", 0)
        if not (isinstance(topic, str) and isinstance(broker_name, str)):
            raise TypeError(f"names no queue: {row}")
        if not (isinstance(queue_id, int) and isinstance(offset, int)) or offset < 0:
            raise TypeError(f"is no offset: {row}")
        if not isinstance(epoch, int) or epoch < 0:
            raise TypeError(f"is no epoch: {row}")
        found[MessageQueue(topic, broker_name, queue_id)] = LocalOffset(QueueOffset(offset), epoch)
    return found


async def open_local_offset_store(
    path: Path, blocking: Blocking, epoch_of: Callable[[str], int]
) -> "LocalOffsetStore":
    """Return the store of the offsets in the file at `path`; an empty store without the file.

    Args:
        path: Path of the file.
        blocking: Pool of threads that reads and writes the file.
        epoch_of: Function that returns the newest known epoch of a broker name; 0 = none.

    Raises:
        StoreError: The file and its generation before cannot be read. Unknown offsets are not 0.
        OSError: The folder cannot be created.
    """
    await blocking.run(make_directory_durably, path.parent)
    kept = await blocking.run(read_newest, path, decode_offsets)
    logger.info("local offsets file=%s queues=%s", path, len(kept or {}))
    return LocalOffsetStore(path, blocking, kept or {}, epoch_of)


class LocalOffsetStore:
    """Offsets of one broadcasting member, in a file. See `OffsetStore`.

    Owned by one consumer. Offsets survive a power loss after `commit` has returned True.

    Args:
        kept: Offsets in the file. This object changes the mapping.
        epoch_of: Function that returns the newest known epoch of a broker name; 0 = none.
    """

    def __init__(
        self,
        path: Path,
        blocking: Blocking,
        kept: dict[MessageQueue, LocalOffset],
        epoch_of: Callable[[str], int],
    ) -> None:
        self._path = path
        self._kept = kept
        self._epoch_of = epoch_of
        self._begun = frozenset(kept)
        """Queues with an offset in the file."""
        self._owned: set[MessageQueue] = set()
        self._changes = 0
        self._is_moved = False
        """True = the generation before is wrong: it lacks a queue, or is ahead of a restart."""
        self._writing = (self._begun, False)
        """Queues of the running write, and whether it writes both generations."""
        self._saver = StateSaver(
            path,
            blocking.run,
            state=lambda: self._changes,
            prepare=self._prepare,
            ended=self._ended,
            job_name="local-offsets",
        )
        self._saver.mark_saved()

    async def query(self, queue: MessageQueue) -> QueriedOffset | None:
        """Return the stored offset of `queue`; None = this member never consumed it."""
        noted = self._kept.get(queue)
        return None if noted is None else QueriedOffset(noted.offset, queue in self._begun)

    def epoch(self, queue: MessageQueue) -> int | None:
        """Return the epoch of the offset of `queue`. See `OffsetStore`."""
        noted = self._kept.get(queue)
        return None if noted is None else noted.epoch

    def begin(
        self, queue: MessageQueue, offset: QueueOffset, committed: QueueOffset | None
    ) -> None:
        """Add `queue` to the store. See `OffsetStore`."""
        self._owned.add(queue)
        if offset != committed:
            self._put(queue, offset)

    def has_begun(self, queue: MessageQueue) -> bool:
        """Return whether the file has an offset of `queue`."""
        return queue in self._begun

    def update(self, queue: MessageQueue, offset: QueueOffset) -> None:
        """Raise the offset of `queue` to `offset`: all messages below are finished."""
        noted = self._kept.get(queue)
        if queue in self._owned and (noted is None or offset > noted.offset):
            self._put(queue, offset)

    def restart(self, queue: MessageQueue, offset: QueueOffset) -> None:
        """Set the offset of `queue`, also to a lower one."""
        if queue in self._owned:
            self._put(queue, offset)
            self._is_moved = True

    def reset(self, queue: MessageQueue, offset: QueueOffset, version: int) -> bool:
        """Return False: resets change offsets of the group, not those of this member."""
        return False

    def forget(self, queues: Iterable[MessageQueue]) -> None:
        """Stop recording offsets of these queues. Recorded offsets stay for their return."""
        self._owned.difference_update(queues)

    def gone(self, queue: MessageQueue) -> None:
        """Drop a queue that its broker no longer has. A later queue with its name is new."""
        self._owned.discard(queue)
        if self._kept.pop(queue, None) is not None:
            self._changes += 1

    async def commit(self, queues: Iterable[MessageQueue] | None = None) -> bool:
        """Write the file if offsets have changed. Return whether it holds all offsets.

        A failed write is logged, and the next call tries again. Cancelling leaves the old or the
        new file.
        """
        return await self._saver.save() is None

    def _prepare(self, _is_awaited: bool) -> Callable[[], None]:
        writing = dict(self._kept)
        in_both = self._is_moved or not self._begun.issuperset(writing)
        self._writing, self._is_moved = (frozenset(writing), in_both), False
        return lambda: replace_durably(self._path, encode_offsets(writing), in_both=in_both)

    def _ended(self, _changes: int, reason: OSError | None) -> StoreError | None:
        queues, in_both = self._writing
        if reason is None:
            self._begun = queues
            return None
        self._is_moved |= in_both
        return StoreError(f"{self._path} not written: {reason}")

    def _put(self, queue: MessageQueue, offset: QueueOffset) -> None:
        self._kept[queue] = LocalOffset(offset, self._epoch_of(queue.broker_name))
        self._changes += 1
