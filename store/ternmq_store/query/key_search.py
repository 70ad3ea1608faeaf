"""Search for messages by key: the index gives candidates, and their records decide.

The store's thread creates a search with plain values, and any thread runs it. Messages that
retention deletes meanwhile are not found.

Source: RocketMQ `DefaultMessageStore.queryMessage`.
"""

from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ternmq_model.arrays import Ints
from ternmq_model.index_keys import key_hash
from ternmq_model.offsets import UNIT_BYTES, PhysicalOffset, QueueOffset, logic_offset
from ternmq_model.properties import KEY_SEPARATOR, KEYS, UNIQUE_KEY, decode_properties
from ternmq_model.record.format import HEADER_BYTES_MAX, Record
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
    stored_at_ms,
)
from ternmq_store.query.unique_key_search import UNIQUE_KEYS_MAX, UniqueKeySearch
from ternmq_store.queues.offset_search import first_from
from ternmq_store.queues.units import UNIT, Units, read_unit
from ternmq_store.read.log_source import LogSource
from ternmq_store.read.record_reader import RecordReader
from ternmq_store.read.store_reads import StoreReads

MATCHES_MAX: Final = 64
"""Most messages of one search, as in RocketMQ."""

UNKNOWN_CODE: Final = 1 << 62

_BYTES_MAX: Final = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyQuery:
    """Query by key."""

    topics: Sequence[str]
    key: str
    """Unique key of a message, or one of its keys."""

    begin_ms: int = 0
    """Earliest store time, Unix ms."""

    end_ms: int = 1 << 62
    """Latest store time, Unix ms."""

    maximum: int = MATCHES_MAX
    is_unique: bool = False
    """True = only unique keys match."""

    def matches(self, record: Record, topic: str) -> bool:
        """Return whether the record matches the query."""
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
    """Each topic with the offset before which its records no longer count, and its look-up."""

    def run(self) -> Sequence[bytes]:
        """Return the newest matching records, oldest first: at most 4 MiB, or one longer record.

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
        self._log = opened.log
        self._queues = opened.queues
        self._dispatcher = opened.dispatcher
        self._reads = reads
        self._source = reads.source

    @property
    def has_index(self) -> bool:
        """True if there is an index to search."""
        return self._index is not None

    def by_key(self, query: KeyQuery) -> KeySearch:
        """Return the search for readable messages. Without an index it finds none."""
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
        """Return the search for records of a topic with these unique keys, indexed yet or not.

        Args:
            topic: Topic in the records.
            keys: Unique keys, at most `UNIQUE_KEYS_MAX`.
            start: Log offset of the first record that counts.
            end: End of the readable log, with unconfirmed records.
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
        """Return tag codes, or delivery times, of messages of a queue.

        Args:
            topic: Topic of the queue.
            queue_id: Id of the queue.
            offset: Offset of the first message, readable or the end.
            count: Most messages. A file of the queue may end earlier.

        Returns:
            Codes; `UNKNOWN_CODE`, which is later than any time, for an unreadable unit.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None or not queue.min_offset <= offset < queue.end:
            return np.zeros(0, dtype=np.int64)
        codes, is_known = queue.tag_codes(queue.units(offset, count))
        return codes if is_known is None else np.where(is_known, codes, UNKNOWN_CODE)

    def places_at(self, topic: str, queue_id: int, offset: QueueOffset, count: int) -> Ints:
        """Return the log offsets of messages of a queue. Arguments are those of `codes_at`."""
        return self.units_at(topic, queue_id, offset, count)["offset"].astype(np.int64)

    def units_at(self, topic: str, queue_id: int, offset: QueueOffset, count: int) -> Units:
        """Return a copy of units of a queue. Arguments are those of `codes_at`."""
        queue = self._queues.find(topic, queue_id)
        if queue is None or not queue.min_offset <= offset < queue.end:
            return np.zeros(0, dtype=UNIT)
        return queue.units(offset, count).copy()

    def place_of(self, topic: str, queue_id: int, offset: QueueOffset) -> PhysicalOffset | None:
        """Return the log offset of a queue's message by its unit; None = the message is gone."""
        queue = self._queues.find(topic, queue_id)
        if queue is None or not queue.min_offset <= offset < queue.end:
            return None
        place, source = queue.unit(offset).offset, self._source()
        return place if source.start <= place < source.end else None

    def prepared(
        self, start: PhysicalOffset, transactions: Iterable[PhysicalOffset], *, skipped_topic: str
    ) -> PreparedSearch:
        """Return the search of the log, from `start` on, for records of transactions."""
        return PreparedSearch(self._source(), start, transactions, skipped_topic=skipped_topic)

    def records_at(
        self, topic: str, queue_id: int, offsets: Sequence[int], *, bytes_max: int
    ) -> MultiGet:
        """Return the read of single messages of a queue.

        Args:
            topic: Topic of the queue.
            queue_id: Id of the queue.
            offsets: Offsets of the messages, in any order.
            bytes_max: Bytes after which the read ends, with at least one message.

        Returns:
            Read to run in any thread. Pass it to `records_done` afterwards.
        """
        queue, reads = self._queues.find(topic, queue_id), self._reads
        units = None if queue is None else reads.source_of(queue)
        return MultiGet(reads.source(), units, offsets, bytes_max=bytes_max)

    def records_done(self, read: MultiGet) -> None:
        """Repair the units that a read found damaged."""
        queue = read.queue and self._queues.find(read.queue.topic, read.queue.queue_id)
        if queue is not None:
            self._reads.repair.repair(queue, read.repairs)
            self._reads.repair.note_searched(queue, read.searched)

    def first_from(self, topic: str, queue_id: int, place: PhysicalOffset) -> QueueOffset:
        """Return the offset of a queue's first message at log offset `place` or behind it.

        Returns:
            Offset; the queue's end without such a message, and 0 without such a queue.
        """
        queue = self._queues.find(topic, queue_id)
        return QueueOffset(0) if queue is None else first_from(queue, place)

    def by_time(
        self, topic: str, queue_id: int, at_ms: int, boundary: BoundaryType
    ) -> TimeSearch | None:
        """Return the search for a queue's offset at a time; None = no such queue."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return None
        units = queue.units_between(queue.min_offset, queue.end)
        return TimeSearch(units, self._source(), at_ms, boundary)

    def size_of(
        self, topic: str, queue_id: int, begin: QueueOffset, end: QueueOffset, *, bytes_max: int
    ) -> QueueRangeSize:
        """Return the measurement of a range of a queue. See `QueueRangeSize`."""
        queue = self._queues.find(topic, queue_id)
        return QueueRangeSize(queue, begin, end, bytes_max=bytes_max)

    def time_in_memory(self, topic: str, queue_id: int, offset: QueueOffset) -> int:
        """Return the store time of a readable message; 0 = only the disk may have it."""
        queue, at = self._queues.find(topic, queue_id), logic_offset(offset)
        if queue is None or not queue.files.has(at):
            return 0
        if self._reads.units_in_memory_to(queue, offset) <= offset:
            return 0
        # By plain reads: the first touch of a page of a map takes a hundred times as long.
        units, log = queue.files.at(at), self._log
        with suppress(OSError):
            place = read_unit(memoryview(units.file.read(at - units.base, UNIT_BYTES)), 0).offset
            if log.start <= place < min(self._reads.in_memory_to(place), self._dispatcher.offset):
                file = log.files.at(place)
                head = file.file.read(place - file.base, HEADER_BYTES_MAX)
                return stored_at_ms(head, queue_id=queue_id, offset=offset, place=place) or 0
        return 0

    def times_at(self, wanted: Sequence[tuple[str, int, Sequence[QueueOffset]]]) -> StoreTimeLookup:
        """Return the look-up of the store times of single messages.

        Args:
            wanted: Topics, queue ids and offsets of readable messages.
        """
        queries: list[StoreTimeQuery | None] = []
        for topic, queue_id, offsets in wanted:
            queue = self._queues.find(topic, queue_id)
            units = None if queue is None else queue.units_between(queue.min_offset, queue.end)
            queries.append(None if units is None else (units, tuple(offsets)))
        return StoreTimeLookup(self._source(), queries)
