"""Search for messages by key: the index gives candidates, and their records decide.

A search is made on the store's thread and holds plain values; it runs in any thread, beside
everything else. What retention removes meanwhile is not found.

Source: RocketMQ `DefaultMessageStore.queryMessage`.
"""

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ternmq_model.arrays import Ints
from ternmq_model.index_keys import key_hash
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.properties import KEY_SEPARATOR, KEYS, UNIQUE_KEY, decode_properties
from ternmq_model.record.format import Record
from ternmq_store.index.index_lookup import IndexLookup
from ternmq_store.opened_files import OpenedFiles
from ternmq_store.query.multi_get import MultiGet
from ternmq_store.query.prepared_search import PreparedSearch
from ternmq_store.query.range_size import QueueRangeSize
from ternmq_store.query.time_search import (
    BoundaryType,
    StoreTimeLookup,
    StoreTimeQuery,
    TimeSearch,
)
from ternmq_store.query.unique_key_search import UNIQUE_KEYS_MAX, UniqueKeySearch
from ternmq_store.queues.offset_search import first_from
from ternmq_store.queues.units import UNIT, Units
from ternmq_store.read.log_source import LogSource
from ternmq_store.read.record_reader import RecordReader
from ternmq_store.read.store_reads import StoreReads

MATCHES_MAX: Final = 64
"""Limit of messages of one search, as in RocketMQ."""

UNKNOWN_CODE: Final = 1 << 62

_BYTES_MAX: Final = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyQuery:
    """A query by key."""

    topics: Sequence[str]
    key: str
    """A message's unique key, or one of its keys."""

    begin_ms: int = 0
    """The earliest store time."""

    end_ms: int = 1 << 62
    """The latest."""

    maximum: int = MATCHES_MAX
    is_unique: bool = False
    """Only a unique key is meant."""

    def matches(self, record: Record, topic: str) -> bool:
        """Return whether the record is one that is looked for."""
        if record.topic != topic.encode():
            return False
        if not self.begin_ms <= record.header.stored_at_ms <= self.end_ms:
            return False
        pairs = decode_properties(record.properties)
        if pairs.get(UNIQUE_KEY) == self.key:
            return True
        return not self.is_unique and self.key in pairs.get(KEYS, "").split(KEY_SEPARATOR)


@dataclass(frozen=True, slots=True)
class KeySearch:
    """Search for messages by key; `run` may be called in any thread."""

    query: KeyQuery
    source: LogSource
    lookups: Sequence[tuple[str, PhysicalOffset, IndexLookup]]
    """For each topic, before which offset its records count no more, and where to look."""

    def run(self) -> Sequence[bytes]:
        """Return the newest records that match, oldest first: 4 MiB of them, or one longer.

        Raises:
            OSError: The disk failed.
        """
        found: dict[PhysicalOffset, bytes] = {}
        with closing(RecordReader(self.source)) as reader:
            for topic, floor, lookup in self.lookups:
                self._find(topic, floor, lookup, reader, found)
        newest, total = sorted(found, reverse=True)[: self.query.maximum], 0
        kept: list[bytes] = []
        for offset in newest:
            total += len(found[offset])
            if kept and total > _BYTES_MAX:
                break
            kept.append(found[offset])
        return kept[::-1]

    def _find(
        self,
        topic: str,
        floor: PhysicalOffset,
        lookup: IndexLookup,
        reader: RecordReader,
        found: dict[PhysicalOffset, bytes],
    ) -> None:
        count = total = 0
        for offset in lookup.offsets(lookup.hashes[0]):
            if offset in found or offset < floor:
                continue
            read = reader.read(offset)
            if read is None or not self.query.matches(read.record, topic):
                continue
            found[offset] = read.data
            count += 1
            total += len(read.data)
            if count >= self.query.maximum or total > _BYTES_MAX:
                return  # no more of the topic can be returned, and none is kept in memory


class KeySearches:
    """Factory of searches. Owned by `MessageStore`, on the store's thread."""

    def __init__(self, opened: OpenedFiles, reads: StoreReads) -> None:
        self._index = opened.index
        self._queues = opened.queues
        self._dispatcher = opened.dispatcher
        self._reads = reads
        self._source = reads.source

    @property
    def has_index(self) -> bool:
        """True if there is an index to search."""
        return self._index is not None

    def by_key(self, query: KeyQuery) -> KeySearch:
        """Return the search for messages that can be read; without an index it finds nothing."""
        index, dropped = self._index, self._dispatcher.dropped
        lookups: list[tuple[str, PhysicalOffset, IndexLookup]] = []
        if index is not None:
            infos = tuple(reversed(index.infos()))
            for topic in query.topics:
                lookup = index.lookup(
                    infos, (key_hash(topic, query.key),), query.begin_ms, query.end_ms
                )
                lookups.append((topic, dropped.get(topic, PhysicalOffset(0)), lookup))
        return KeySearch(query, self._source(), lookups)

    def unique(
        self,
        topic: str,
        keys: Sequence[bytes],
        *,
        start: PhysicalOffset = PhysicalOffset(0),  # noqa: B008
        end: PhysicalOffset,
    ) -> UniqueKeySearch:
        """Return the look for records of a topic with these unique keys, indexed yet or not.

        Args:
            topic: What they are stored under.
            keys: At most `UNIQUE_KEYS_MAX`.
            start: Records before it do not count.
            end: Records before it can be read from the log's files: confirmed ones or not.
        """
        assert len(keys) <= UNIQUE_KEYS_MAX, "more are looked up in several goes"
        texts = [key.decode("utf-8", "replace") for key in keys]
        hashes = [key_hash(topic, text) for text in texts]
        index, lookup = self._index, None
        if index is not None:
            infos = [each for each in index.infos() if each.header.end_offset >= start]
            lookup = index.lookup(infos[::-1], hashes, 0, 1 << 62)
        return UniqueKeySearch(
            topic,
            texts,
            max(start, self._dispatcher.dropped.get(topic, PhysicalOffset(0))),
            replace(self._source(), end=end),
            self._dispatcher.undispatched(end),
            lookup,
            hashes,
        )

    def codes_at(self, topic: str, queue_id: int, offset: QueueOffset, count: int) -> Ints:
        """Return what a queue keeps of messages besides their place: tag codes or delivery times.

        Args:
            topic: Whose.
            queue_id: Of it.
            offset: The first message; one that can be read, or the end.
            count: How many at most; fewer at the end of a file of the queue.

        Returns:
            What cannot be found out is `UNKNOWN_CODE`: later than any time.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None or not queue.min_offset <= offset < queue.end:
            return np.zeros(0, dtype=np.int64)
        codes, is_known = queue.tag_codes(queue.units(offset, count))
        return codes if is_known is None else np.where(is_known, codes, UNKNOWN_CODE)

    def places_at(self, topic: str, queue_id: int, offset: QueueOffset, count: int) -> Ints:
        """Return where messages of a queue lie in the log, by their units; as `codes_at`."""
        return self.units_at(topic, queue_id, offset, count)["offset"].astype(np.int64)

    def units_at(self, topic: str, queue_id: int, offset: QueueOffset, count: int) -> Units:
        """Return a copy of a queue's units; as `codes_at`."""
        queue = self._queues.find(topic, queue_id)
        if queue is None or not queue.min_offset <= offset < queue.end:
            return np.zeros(0, dtype=UNIT)
        return queue.units(offset, count).copy()

    def place_of(self, topic: str, queue_id: int, offset: QueueOffset) -> PhysicalOffset | None:
        """Return where a queue's message lies in the log, by its unit; None when it is gone."""
        queue = self._queues.find(topic, queue_id)
        if queue is None or not queue.min_offset <= offset < queue.end:
            return None
        place, source = queue.unit(offset).offset, self._source()
        return place if source.start <= place < source.end else None

    def prepared(
        self, start: PhysicalOffset, transactions: Iterable[PhysicalOffset], *, skipped_topic: str
    ) -> PreparedSearch:
        """Return the look through the log, from `start` on, for records of transactions."""
        return PreparedSearch(self._source(), start, transactions, skipped_topic=skipped_topic)

    def records_at(
        self, topic: str, queue_id: int, offsets: Sequence[int], *, bytes_max: int
    ) -> MultiGet:
        """Return the read of single messages of a queue, which may lie far from each other.

        Args:
            topic: Whose.
            queue_id: Of it.
            offsets: Theirs, in any order.
            bytes_max: After so many bytes no more is read; at least one message is.

        Returns:
            The read; `records_done` follows.
        """
        queue, reads = self._queues.find(topic, queue_id), self._reads
        units = None if queue is None else reads.source_of(queue)
        return MultiGet(reads.source(), units, offsets, bytes_max=bytes_max)

    def records_done(self, read: MultiGet) -> None:
        """Mend the units that a read found damaged."""
        queue = read.queue and self._queues.find(read.queue.topic, read.queue.queue_id)
        if queue is not None:
            self._reads.repair.repair(queue, read.repairs)
            self._reads.repair.note_searched(queue, read.searched)

    def first_from(self, topic: str, queue_id: int, place: PhysicalOffset) -> QueueOffset:
        """Return the first message of a queue that lies at `place` of the log, or behind it.

        Returns:
            The queue's end where there is none; 0 when there is no such queue.
        """
        queue = self._queues.find(topic, queue_id)
        return QueueOffset(0) if queue is None else first_from(queue, place)

    def by_time(
        self, topic: str, queue_id: int, at_ms: int, boundary: BoundaryType
    ) -> TimeSearch | None:
        """Return the search for a queue's offset at a time; None when there is no such queue."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return None
        units = queue.units_between(queue.min_offset, queue.end)
        return TimeSearch(units, self._source(), at_ms, boundary)

    def size_of(
        self, topic: str, queue_id: int, begin: QueueOffset, end: QueueOffset, *, bytes_max: int
    ) -> QueueRangeSize:
        """Return the measurement of a range of a queue; see `QueueRangeSize`."""
        queue = self._queues.find(topic, queue_id)
        return QueueRangeSize(queue, begin, end, bytes_max=bytes_max)

    def times_at(self, wanted: Sequence[tuple[str, int, Sequence[QueueOffset]]]) -> StoreTimeLookup:
        """Return the look-up of the store times of single messages.

        Args:
            wanted: Topic, queue id and offsets; messages that can be read.
        """
        queries: list[StoreTimeQuery | None] = []
        for topic, queue_id, offsets in wanted:
            queue = self._queues.find(topic, queue_id)
            units = None if queue is None else queue.units_between(queue.min_offset, queue.end)
            queries.append(None if units is None else (units, tuple(offsets)))
        return StoreTimeLookup(self._source(), queries)
