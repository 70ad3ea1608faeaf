"""Look-up, in the log, of the ends of transactions that memory has forgotten."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Final

from ternmq_broker.storage.yielding import RECORDS_AT_ONCE, yield_to_requests
from ternmq_broker.transactions.half_codec import HalfRecord, TransactionIdentity
from ternmq_broker.transactions.half_reader import HalfReader
from ternmq_broker.transactions.table import EndedTransaction, TransactionTable
from ternmq_model.errors import RefusedError, TernError, invalid, refusal
from ternmq_model.names import SCHEDULE_TOPIC, WHEEL_TOPIC
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.format import FLAG_COMMIT, FLAG_TRANSACTION_MASK, RecordHeader
from ternmq_model.response_code import ResponseCode
from ternmq_model.transaction import Resolution
from ternmq_remoting.status import refusal_from

_WAITING: Final = (SCHEDULE_TOPIC, WHEEL_TOPIC)
"""Topics in which a committed message may wait for its delivery time."""


@dataclass(frozen=True, slots=True)
class EndLookup:
    """Search for ends of transactions. Owns nothing."""

    table: TransactionTable
    halves: HalfReader

    async def find(
        self, identities: Sequence[TransactionIdentity]
    ) -> list[EndedTransaction | RefusedError]:
        """Return the end of each transaction, or a refusal; none is open.

        A refusal has the code QUERY_NOT_FOUND: no such transaction, or its half message is gone;
        INVALID_PARAMETER: the names are those of another one; ILLEGAL_OPERATION: there is no index
        to search; or that of a failed disk.
        """
        # Before the first wait: of what is committed but not confirmed, only memory knows.
        known = [self.table.ended(one.transaction) for one in identities]
        forgotten = [one for one, end in zip(identities, known, strict=True) if end is None]
        try:
            found: Iterator[EndedTransaction | RefusedError] = iter(await self._search(forgotten))
        except TernError as error:
            found = repeat(refusal_from(error))
        return [
            next(found) if end is None else wrong_ids(one, end) or end
            for one, end in zip(identities, known, strict=True)
        ]

    async def _search(
        self, identities: Sequence[TransactionIdentity]
    ) -> list[EndedTransaction | RefusedError]:
        """Return the ends of transactions from the log.

        Raises:
            TernError: The disk failed.
        """
        answers: dict[int, EndedTransaction | RefusedError] = {}
        halves: dict[int, HalfRecord] = {}
        for index, one in enumerate(identities):
            if index % RECORDS_AT_ONCE == RECORDS_AT_ONCE - 1:
                await yield_to_requests()
            found = await self.halves.read(one.transaction)
            if found is None or found[0].transaction != one.transaction:
                remark = f"no transaction begins at offset {one.transaction} of the log"
                answers[index] = refusal(ResponseCode.QUERY_NOT_FOUND, remark)
            elif (wrong := wrong_ids(one, found[0])) is not None:
                answers[index] = wrong
            elif not self.halves.reader.store.searches.has_index:
                remark = (
                    f"transaction {one.transaction} ended earlier; without an index its end cannot "
                    "be looked up"
                )
                answers[index] = refusal(ResponseCode.ILLEGAL_OPERATION, remark)
            else:
                halves[index] = found[0]
        messages = await self._messages(list(halves.values()))
        for index, half in halves.items():
            answers[index] = end = _end_of(half, messages.get(half.transaction))
            self.table.remember(end)
        return [answers[index] for index in range(len(identities))]

    async def _messages(
        self, halves: Sequence[HalfRecord]
    ) -> Mapping[PhysicalOffset, RecordHeader]:
        """Return the headers of the messages of committed transactions."""
        found: dict[PhysicalOffset, RecordHeader] = {}
        by_topic: dict[str, list[HalfRecord]] = defaultdict(list)
        for half in halves:
            by_topic[half.topic].append(half)
        for topic, some in by_topic.items():
            await self._search_topic(topic, some, found)
        for topic in _WAITING:
            delayed = [half for half in halves if half.is_delayed]
            missing = [half for half in delayed if half.transaction not in found]
            await self._search_topic(topic, missing, found)
        return found

    async def _search_topic(
        self, topic: str, halves: Sequence[HalfRecord], found: dict[PhysicalOffset, RecordHeader]
    ) -> None:
        reader = self.halves.reader
        keys = (half.message_id for half in halves)
        headers = await reader.find_unique(topic, keys, end=reader.store.confirm_offset)
        for half in halves:
            header = headers.get(half.message_id)
            if (
                header is not None
                and header.prepared_offset == half.transaction
                and header.sys_flag & FLAG_TRANSACTION_MASK == FLAG_COMMIT
            ):
                found[half.transaction] = header


def _end_of(half: HalfRecord, header: RecordHeader | None) -> EndedTransaction:
    ended = EndedTransaction(
        half.transaction, Resolution.ROLLBACK, half.group, half.message_id, PhysicalOffset(0)
    )
    if header is None:
        return ended
    queue_id, queue_offset = header.queue_id, int(header.queue_offset)
    if half.is_delayed:
        queue_id, queue_offset = half.queue_id, -1
    return ended._replace(
        resolution=Resolution.COMMIT, queue_id=queue_id, queue_offset=queue_offset
    )


def wrong_ids(
    identity: TransactionIdentity, found: HalfRecord | EndedTransaction
) -> RefusedError | None:
    """Return the refusal of a request that names another transaction than the one found.

    Returns:
        INVALID_PARAMETER with the wrong name; None when all names are right.
    """
    if isinstance(found, EndedTransaction) and not found.message_id:
        return None  # the half message could not be read: only the end is known
    wrong: str | None = None
    if identity.group != found.group:
        wrong = f"belongs to another producer group than {identity.group!r}"
    elif identity.message_id != found.message_id:
        wrong = f"has another message than {identity.message_id!r}"
    elif isinstance(found, HalfRecord) and identity.topic not in ("", found.topic):
        wrong = f"is meant for another topic than {identity.topic!r}"
    if wrong is None:
        return None
    return invalid(f"transaction {identity.transaction} {wrong}")
