"""Search for stored records of retried batches, so that none is stored twice.

A record is known by its unique key. It may lie under its own topic, or in a topic of the broker's:
delayed, timed and half messages wait there, and come to their own topics later.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ternmq_broker.send.message_writer import PutResult
from ternmq_broker.storage.confirmations import Confirmations
from ternmq_broker.storage.reader import StoreReader
from ternmq_model.arrays import Ints
from ternmq_model.errors import CorruptRecord, refusal
from ternmq_model.names import HALF_TOPIC, SCHEDULE_TOPIC, WHEEL_TOPIC
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.permission import to_publish
from ternmq_model.properties import (
    DELAY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TRANSACTION_PREPARED,
    UNIQUE_KEY,
    decode_properties,
)
from ternmq_model.record.batch import RefusedRecord
from ternmq_model.record.format import RecordHeader, decode_record, read_queue_id
from ternmq_model.response_code import ResponseCode
from ternmq_remoting.rpc import EVERYTHING, Permits

_COMMIT_TIMEOUT_S: Final = 5.0
_TIMER_NAMES: Final = frozenset({TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS})


class RetriedRow(NamedTuple):
    """Record of a retried batch that can be looked up."""

    row: int
    key: str
    topics: tuple[str, ...]
    """Topics in which the record may lie, its own first."""

    is_half: bool


class DuplicateRecord(NamedTuple):
    """Stored record that a retried record duplicates."""

    queue_id: int
    """Queue of the record; -1 while the record waits in a topic of the broker's."""

    queue_offset: int
    physical_offset: int
    stored_at_ms: int
    end: int


@dataclass(frozen=True, slots=True)
class DuplicateSearch:
    """Search for records of retried batches in the store. Owns nothing.

    No other request may store the same records meanwhile: a producer's old stream is over before
    its next one opens, and a stream's batches are stored one after the other.
    """

    reader: StoreReader
    confirmations: Confirmations

    async def find(
        self, records: bytes, sizes: NDArray[np.int32], permits: Permits = EVERYTHING
    ) -> dict[int, DuplicateRecord]:
        """Return the stored records of a retried batch, by row.

        All appended records count, also those not indexed or confirmed; a record of a topic to
        which the sender may not publish is not looked for. Cancelling is safe.

        Raises:
            TernError: The search failed. Nothing was stored.
        """
        # Up to 0.1 s for 4 MiB.
        retried = await self.reader.blocking.run(retried_rows, records, sizes)
        if permits is not EVERYTHING:
            retried = [row for row in retried if permits.allows(to_publish(row.topics[0]))]
        end = await self._readable_end()
        found: dict[int, DuplicateRecord] = {}
        for topic in dict.fromkeys(topic for row in retried for topic in row.topics):
            rows = [row for row in retried if topic in row.topics and row.row not in found]
            headers = await self.reader.find_unique(topic, (row.key for row in rows), end=end)
            for row in rows:
                if (header := headers.get(row.key)) is not None:
                    found[row.row] = duplicate_of(row, topic, header)
        return found

    async def _readable_end(self) -> PhysicalOffset:
        """Return the end of the log, once the log can be read from its files up to there."""
        end = self.reader.store.max_physical
        if self.reader.store.commits.offset < end:
            try:
                async with asyncio.timeout(_COMMIT_TIMEOUT_S):
                    await self.confirmations.wait(end)
            except TimeoutError:
                remark = "earlier messages are not written yet, and cannot be looked up"
                raise refusal(ResponseCode.SYSTEM_BUSY, remark) from None
        return end


def retried_rows(records: bytes, sizes: NDArray[np.int32]) -> list[RetriedRow]:
    """Return the rows that have a unique key; bytes that are no record are skipped."""
    lengths = sizes.astype(np.int64)
    if not len(lengths) or int(lengths.min()) <= 0 or int(lengths.sum()) != len(records):
        return []
    rows: list[RetriedRow] = []
    for row, begin in enumerate((np.cumsum(lengths) - lengths).tolist()):
        try:
            record = decode_record(records, begin, check_crc=False)
        except CorruptRecord:
            continue
        if record is None:
            continue
        properties = decode_properties(record.properties)
        key = properties.get(UNIQUE_KEY, "")
        if key:
            topics = (record.topic.decode("utf-8", "replace"), *_waiting_topics(properties))
            rows.append(RetriedRow(row, key, topics, HALF_TOPIC in topics))
    return rows


def _waiting_topics(properties: Mapping[str, str]) -> list[str]:
    topics: list[str] = []
    if properties.get(TRANSACTION_PREPARED, "").lower() == "true":
        topics.append(HALF_TOPIC)
    if DELAY in properties:
        topics.append(SCHEDULE_TOPIC)
    if _TIMER_NAMES & properties.keys():
        topics.append(WHEEL_TOPIC)
    return topics


def duplicate_of(row: RetriedRow, topic: str, header: RecordHeader) -> DuplicateRecord:
    """Return the stored record that answers `row`: the one with `header`, found under `topic`.

    The physical offset of a half message is that of its first copy, which later copies contain.
    """
    is_own = topic == row.topics[0]
    first = header.prepared_offset if row.is_half else 0
    return DuplicateRecord(
        header.queue_id if is_own else -1,
        header.queue_offset,
        first or header.physical_offset,
        header.stored_at_ms,
        header.physical_offset + header.total_bytes,
    )


def rest_of(
    records: bytes, sizes: NDArray[np.int32], found: Mapping[int, DuplicateRecord]
) -> tuple[bytes, NDArray[np.int32], Ints]:
    """Return the records that were not found, with their sizes and rows."""
    ends = np.cumsum(sizes.astype(np.int64))
    rows = np.array([row for row in range(len(sizes)) if row not in found], dtype=np.int64)
    parts = [records[ends[row] - sizes[row] : ends[row]] for row in rows.tolist()]
    return b"".join(parts), sizes[rows], rows


def join_results(
    count: int,
    sent_queue_ids: Sequence[int],
    found: Mapping[int, DuplicateRecord],
    rows: Ints,
    stored: PutResult | None,
) -> PutResult:
    """Return the result of a request with records that were stored already.

    Args:
        count: Number of records of the request.
        sent_queue_ids: Queue to which each record was sent.
        found: Records that were stored already, by row.
        rows: All other rows.
        stored: Result of the other rows; None without any.
    """
    queue_offsets = np.full(count, -1, dtype=np.int64)
    physical_offsets = np.full(count, -1, dtype=np.int64)
    queue_ids = np.array(sent_queue_ids, dtype=np.int64)
    end, stored_at_ms = 0, 0
    refused: Iterable[RefusedRecord] = ()
    if stored is not None:
        queue_offsets[rows] = stored.queue_offsets
        physical_offsets[rows] = stored.physical_offsets
        end, stored_at_ms = stored.end, stored.stored_at_ms
        refused = (each._replace(row=int(rows[each.row])) for each in stored.refused)
    for row, known in found.items():
        queue_offsets[row] = known.queue_offset
        physical_offsets[row] = known.physical_offset
        if known.queue_id >= 0:
            queue_ids[row] = known.queue_id
        end = max(end, known.end)
        stored_at_ms = max(stored_at_ms, known.stored_at_ms)
    moved = queue_ids.tolist() != list(sent_queue_ids)
    return PutResult(
        queue_offsets,
        physical_offsets,
        stored_at_ms,
        PhysicalOffset(end),
        list(refused),
        queue_ids if moved else None,
    )


def refused_all(count: int, code: int, remark: str) -> PutResult:
    """Return the result of `count` records that are all refused."""
    nowhere = np.full(count, -1, dtype=np.int64)
    rows = [RefusedRecord(row, code, remark) for row in range(count)]
    return PutResult(nowhere, nowhere, 0, PhysicalOffset(0), rows)


def queue_ids_of(records: bytes, sizes: NDArray[np.int32]) -> list[int]:
    """Return the queue to which each record was sent."""
    ends = np.cumsum(sizes.astype(np.int64))
    return [
        read_queue_id(records, end - size)
        for end, size in zip(ends.tolist(), sizes.tolist(), strict=True)
    ]
