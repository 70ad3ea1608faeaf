"""Committed offsets of every group in every queue: a plain table.

Source: RocketMQ `ConsumerOffsetManager`.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Self

from ternmq_broker.state.fastjson import as_int, version_from_dict, version_to_dict
from ternmq_broker.state.offset_versions import OffsetVersions
from ternmq_broker.state.recent_changes import RecentChanges
from ternmq_model.data_version import DataVersion
from ternmq_model.json_checksum import as_object
from ternmq_model.names import check_stored_group, check_topic, is_legal
from ternmq_model.offsets import QueueOffset

logger = logging.getLogger(__name__)

_SEPARATOR: Final = "@"
_COMMITS_PER_VERSION: Final = 500
_TOPICS_BY_GROUP: Final = "groupTopicMap"
"""RocketMQ 5.3 writes it. It follows from the offsets."""


class VersionedOffset(NamedTuple):
    """One offset with its version."""

    group: str
    topic: str
    queue_id: int
    offset: QueueOffset | None
    """None = the offset was removed."""

    version: int


class OffsetTable:
    """The next offset to consume, by group, topic and queue. Owned by the broker's loop.

    Offsets of one version only rise. A reset or a seek raises the version; a commit under an older
    version is refused. Other members of the file are written back unchanged.

    Attributes:
        changes: Number of changes; a save is due when it differs from the saved one.
        versions: Versions of the offsets, with a file of their own.
        odd: Entries of the file under illegal names of topics or groups. They are unused, and are
            written back unchanged.
        is_awaited: True while a slave that lost its offsets waits for its master's: until then a
            missing offset proves nothing.
    """

    def __init__(self, version: DataVersion, versions: OffsetVersions | None = None) -> None:
        self.versions = OffsetVersions() if versions is None else versions
        self.odd: Mapping[str, Any] = {}
        self.is_awaited = False
        self._version = version
        self._offsets: dict[str, dict[int, QueueOffset]] = {}
        self._extras: dict[str, Any] = {}
        self._refused: set[tuple[str, int]] = set()
        self._recent = RecentChanges[tuple[str, int]]()
        self._unsaved_begins: dict[tuple[str, int], int] = {}
        """First offsets that the file may lack, each with its change; oldest first."""
        self._commits = 0
        self.changes = 0

    def commit(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: QueueOffset,
        version: int = 0,
        *,
        force: bool = False,
        now_ms: int,
    ) -> bool:
        """Store `offset` unless a higher one, or one of a higher version, is stored.

        Args:
            group: Legal name of the group.
            topic: Legal name of the topic.
            queue_id: Not negative.
            offset: The next to consume; not negative.
            version: Version that the consumer received. A crash lost a version above the stored
                one, together with its offset, so both are stored.
            force: Store the offset whatever is stored, and raise the version.
            now_ms: Wall clock.

        Returns:
            True when the offset is stored.
        """
        key = topic + _SEPARATOR + group
        queues = self._offsets.setdefault(key, {})
        kept = queues.get(queue_id)
        version_kept = self.versions.get(group, topic, queue_id)
        if not force and (
            version < version_kept
            or (version == version_kept and kept is not None and offset < kept)
        ):
            if (key, queue_id) not in self._refused:
                self._refused.add((key, queue_id))
                logger.warning(
                    "lower offset refused group=%s topic=%s queue=%s offset=%s kept=%s version=%s"
                    " version_kept=%s",
                    group,
                    topic,
                    queue_id,
                    offset,
                    kept,
                    version,
                    version_kept,
                )
            return False
        if force:
            following = self.versions.next(group, topic, queue_id, version)
            self.versions.put(group, topic, queue_id, following)
        elif version > version_kept:
            self.versions.put(group, topic, queue_id, version)
        self._refused.discard((key, queue_id))
        if offset != kept:
            queues[queue_id] = offset
            self.changes += 1
        if kept is None:
            self._note_begin(key, queue_id)
        if offset != kept or version != version_kept or force:
            self._recent.note((key, queue_id))
        self._commits += 1
        if self._commits % _COMMITS_PER_VERSION == 0:
            self._version = self._version.next(now_ms)
        return True

    def merge(self, other: VersionedOffset) -> bool:
        """Copy an offset of another member of the broker's name if it is newer.

        The newer of two offsets has the higher version, or in one version is the higher offset. An
        offset that the other member removed is removed here too, with its version.

        Returns:
            True when the table changed.
        """
        group, topic, queue_id, offset, version = other
        key = topic + _SEPARATOR + group
        queues = self._offsets.get(key, {})
        kept, version_kept = queues.get(queue_id), self.versions.get(group, topic, queue_id)
        if offset is None:
            if kept is None:
                return False
            del queues[queue_id]
            self.versions.remove_queue(group, topic, queue_id)
        else:
            newest = (version_kept, -1 if kept is None else kept)
            if (version, offset) <= newest:
                return False
            self._offsets.setdefault(key, {})[queue_id] = offset
            if version != version_kept:
                self.versions.put(group, topic, queue_id, version)
        self.changes += 1
        self._recent.note((key, queue_id), removed=offset is None)
        if kept is None:
            self._note_begin(key, queue_id)
        return True

    def note_saved(self, changes: int) -> None:
        """Record that the file holds the table as it was after so many `changes`."""
        begins = self._unsaved_begins
        while begins and begins[first := next(iter(begins))] <= changes:
            del begins[first]

    def has_unsaved_begin(self, group: str, topic: str, queue_id: int) -> bool:
        """Return whether a crash may make the group one that never consumed the queue."""
        return (topic + _SEPARATOR + group, queue_id) in self._unsaved_begins

    def _note_begin(self, key: str, queue_id: int) -> None:
        self._unsaved_begins.pop((key, queue_id), None)  # of an offset that was removed since
        self._unsaved_begins[key, queue_id] = self.changes

    def clamp(self, group: str, topic: str, queue_id: int, end: QueueOffset) -> bool:
        """Set an offset beyond the end of its queue to that end; return whether it was beyond.

        The version rises: new messages will be stored behind that end, and neither an earlier
        commit nor another member's offset may make the group skip them.
        """
        key = topic + _SEPARATOR + group
        kept = self._offsets.get(key, {}).get(queue_id)
        if kept is None or kept <= end:
            return False
        self._offsets[key][queue_id] = end
        self.versions.put(group, topic, queue_id, self.versions.next(group, topic, queue_id))
        self.changes += 1
        self._recent.note((key, queue_id))
        return True

    def changed_since(
        self, number: int, *, most: int
    ) -> tuple[Sequence[tuple[VersionedOffset, bool]], int, bool]:
        """Return the offsets that changed since an earlier call, oldest change first.

        Args:
            number: Number that the earlier call returned; 0 = all changes.
            most: Largest number of offsets to return.

        Returns:
            The offsets, each with True if it was removed in between, and perhaps recreated; the
            number for the next call; True when more changes follow.
        """
        since = self._recent.since(number, most=most)
        found: list[tuple[VersionedOffset, bool]] = []
        for (key, queue_id), was_removed in since.keys:
            topic, _, group = key.partition(_SEPARATOR)
            offset = self._offsets.get(key, {}).get(queue_id)
            version = self.versions.get(group, topic, queue_id)
            found.append((VersionedOffset(group, topic, queue_id, offset, version), was_removed))
        return found, since.number, since.more

    def version(self, group: str, topic: str, queue_id: int) -> int:
        """Return the version of an offset: the number of its resets and seeks."""
        return self.versions.get(group, topic, queue_id)

    def query(self, group: str, topic: str, queue_id: int) -> QueueOffset | None:
        """Return the next offset to consume, or None when the group never consumed the queue."""
        return self._offsets.get(topic + _SEPARATOR + group, {}).get(queue_id)

    def topics_of(self, group: str) -> dict[str, dict[int, QueueOffset]]:
        """Return the offsets of one group by topic and queue, both sorted."""
        found: dict[str, dict[int, QueueOffset]] = {}
        for key in sorted(self._offsets):
            topic, _, owner = key.partition(_SEPARATOR)
            if owner == group:
                found[topic] = dict(sorted(self._offsets[key].items()))
        return found

    def kept(self) -> Iterator[tuple[str, str, Mapping[int, QueueOffset]]]:
        """Yield the topic, group and offsets by queue of all pairs; the offsets are not copied.

        The table may change meanwhile.
        """
        for key, queues in list(self._offsets.items()):
            topic, _, group = key.partition(_SEPARATOR)
            yield topic, group, queues

    def groups_beyond(self, topic: str, queue_id: int, offset: QueueOffset) -> Sequence[str]:
        """Return the groups that have committed an offset beyond `offset` of a queue, sorted."""
        keys = (key for key, queues in self._offsets.items() if queues.get(queue_id, 0) > offset)
        parts = (key.partition(_SEPARATOR) for key in keys)
        return sorted(group for own, _, group in parts if own == topic)

    def groups(self) -> set[str]:
        """Return every group that has an offset."""
        return {key.partition(_SEPARATOR)[2] for key, queues in self._offsets.items() if queues}

    def remove_topic(self, topic: str) -> None:
        """Remove the offsets of all groups in `topic`, with their versions."""
        self.versions.remove_topic(topic)
        self._remove(lambda key: key.partition(_SEPARATOR)[0] == topic)

    def remove_group(self, group: str) -> None:
        """Remove the offsets of `group` in all topics, with their versions."""
        self.versions.remove_group(group)
        self._remove(lambda key: key.partition(_SEPARATOR)[2] == group)

    def _remove(self, is_doomed: Callable[[str], bool]) -> None:
        for key in [key for key in self._offsets if is_doomed(key)]:
            for queue_id in self._offsets.pop(key):
                self._recent.note((key, queue_id), removed=True)
            self.changes += 1
        self._refused = {entry for entry in self._refused if entry[0] in self._offsets}

    def keep_up_to(
        self,
        end_of: Callable[[str, int], QueueOffset | None],
        *,
        deleted: Collection[str] = (),
    ) -> None:
        """Set offsets beyond the end of their queue to that end, as `clamp` does.

        The log may have lost its end: the lost messages were consumed, and those that replace them
        were not. An offset in a recreated topic may count deleted messages: it is set to 0, so that
        no new message is skipped. Offsets in missing topics are removed.

        Args:
            end_of: Returns the end of a topic's queue; None when there is no such topic.
            deleted: Topics that were deleted once, while the log still has their old records.
        """
        for key, queues in list(self._offsets.items()):
            topic, _, group = key.partition(_SEPARATOR)
            for queue_id, offset in list(queues.items()):
                end = end_of(topic, queue_id)
                if end is None:
                    del queues[queue_id]
                    self.changes += 1
                    self._recent.note((key, queue_id), removed=True)
                    logger.warning(
                        "offset of a deleted topic ignored group=%s topic=%s queue=%s offset=%s",
                        group,
                        topic,
                        queue_id,
                        offset,
                    )
                elif offset > end:
                    kept = QueueOffset(0) if topic in deleted else end
                    self.clamp(group, topic, queue_id, kept)
                    logger.warning(
                        "offset beyond the end reduced group=%s topic=%s queue=%s offset=%s"
                        " end=%s kept=%s",
                        group,
                        topic,
                        queue_id,
                        offset,
                        end,
                        kept,
                    )
            if not queues:
                del self._offsets[key]

    def cut_to(self, end_of: Callable[[str, int], QueueOffset]) -> None:
        """Set offsets beyond the end of their queue to that end, and forget all versions.

        The log was cut to that of a new master, and the master's offsets win from now on. A version
        that rose here in the meantime would refuse them for ever.

        Args:
            end_of: Returns the end of a topic's queue.
        """
        self.versions.forget()
        for key, queues in self._offsets.items():
            topic = key.partition(_SEPARATOR)[0]
            for queue_id, offset in queues.items():
                end = end_of(topic, queue_id)
                if offset > end:
                    queues[queue_id] = end
                    self.changes += 1
                    self._recent.note((key, queue_id))

    def to_dict(self) -> dict[str, Any]:
        """Return the content of `consumerOffset.json`."""
        table = {
            key: {str(queue_id): offset for queue_id, offset in sorted(queues.items())}
            for key, queues in self._offsets.items()
            if queues
        }
        extras = dict(self._extras)
        if _TOPICS_BY_GROUP in extras:
            extras[_TOPICS_BY_GROUP] = {name: list(self.topics_of(name)) for name in self.groups()}
        version = version_to_dict(self._version)
        return {**extras, "dataVersion": version, "offsetTable": {**self.odd, **table}}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any], now_ms: int) -> Self:
        """Return the table in the content of `consumerOffset.json`.

        Raises:
            ValueError: A member has another type. An unknown offset is never taken for 0.
        """
        table = cls(version_from_dict(value.get("dataVersion"), now_ms=now_ms))
        entries = as_object(value.get("offsetTable", {}), "offsetTable")
        table.odd = {key: entries[key] for key in entries if _is_odd(key)}
        for key, queues in entries.items():
            if key in table.odd:
                continue
            kept: dict[int, QueueOffset] = {}
            for queue_id, offset in as_object(queues, key).items():
                number = as_int(offset, f"offset of {key} queue {queue_id}")
                if int(queue_id) < 0:
                    raise ValueError(f"offsets of {key!r}: queue id {queue_id} is negative")
                if number >= 0:  # RocketMQ writes -1 for what it does not know
                    kept[int(queue_id)] = QueueOffset(number)
                    table._recent.note((key, int(queue_id)))
            table._offsets[key] = kept
        known = ("dataVersion", "offsetTable")
        table._extras = {name: value[name] for name in value if name not in known}
        return table


def _is_odd(key: str) -> bool:
    """Return whether an entry of the file names an illegal topic or group.

    Raises:
        ValueError: The key is not `topic@group`.
    """
    topic, separator, group = key.partition(_SEPARATOR)
    if not (topic and separator and group):
        raise ValueError(f"offsets of {key!r}: the key must be topic@group")
    return not (is_legal(check_topic, topic) and is_legal(check_stored_group, group))
