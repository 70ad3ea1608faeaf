"""How transactions ended that memory does not know any more, looked up in the log."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from ternmq_broker.storage.reader import LOOKS_AT_ONCE, let_in
from ternmq_broker.transactions.half_codec import Half
from ternmq_broker.transactions.half_reader import HalfReader
from ternmq_broker.transactions.table import Ended, TransactionTable
from ternmq_model.errors import RefusedError, refusal
from ternmq_model.names import SCHEDULE_TOPIC, WHEEL_TOPIC
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record import FLAG_COMMIT, FLAG_TRANSACTION_MASK, RecordHeader
from ternmq_model.response_code import ResponseCode
from ternmq_model.transaction import Resolution
from ternmq_store.reading.unique_search import UNIQUE_KEYS_MAX

_WAITING: Final = (SCHEDULE_TOPIC, WHEEL_TOPIC)
"""Where a committed message may wait for its time, and what it then was before."""


class Named(Protocol):
    """Whatever names a transaction as `Meant` does."""

    @property
    def group(self) -> str:
        """Whose it is."""
        ...

    @property
    def message_id(self) -> str:
        """Of its message."""
        ...

    @property
    def transaction(self) -> PhysicalOffset:
        """Where it begins."""
        ...

    @property
    def topic(self) -> str:
        """That its message is meant for; empty = any."""
        ...


class Meant(NamedTuple):
    """A transaction as a producer names it."""

    group: str
    message_id: str
    transaction: PhysicalOffset
    topic: str = ""
    """Empty = any."""


@dataclass(frozen=True, slots=True)
class PastEnds:
    """Looks ends up. Owns nothing."""

    table: TransactionTable
    halves: HalfReader

    async def find(self, meant: Sequence[Named]) -> list[Ended | RefusedError]:
        """Return how each of these transactions ended; none is open.

        Returns:
            For each its end, or why there is none: QUERY_NOT_FOUND, there never was one, or nobody
            can tell any more; INVALID_PARAMETER, it is another's; ILLEGAL_OPERATION, without an
            index nobody can tell.

        Raises:
            RefusedError: The disk failed.
        """
        answers: dict[int, Ended | RefusedError] = {}
        halves: dict[int, Half] = {}
        for index, one in enumerate(meant):
            if index % LOOKS_AT_ONCE == LOOKS_AT_ONCE - 1:
                await let_in()
            ended = self.table.ended(one.transaction)
            if ended is not None:
                answers[index] = wrong_ids(one, ended) or ended
                continue
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
            ended = _ended(half, messages.get(half.transaction))
            self.table.remember(ended)
            answers[index] = ended
        return [answers[index] for index in range(len(meant))]

    async def _messages(self, halves: Sequence[Half]) -> Mapping[PhysicalOffset, RecordHeader]:
        """Return the headers of the messages that transactions became, of those committed."""
        found: dict[PhysicalOffset, RecordHeader] = {}
        by_topic: dict[str, list[Half]] = defaultdict(list)
        for half in halves:
            by_topic[half.topic].append(half)
        for topic, some in by_topic.items():
            await self._search(topic, some, found)
        delayed = [half for half in halves if half.is_delayed]
        for topic in _WAITING:
            left = [half for half in delayed if half.transaction not in found]
            await self._search(topic, left, found)
        return found

    async def _search(
        self, topic: str, halves: Sequence[Half], found: dict[PhysicalOffset, RecordHeader]
    ) -> None:
        reader = self.halves.reader
        for start in range(0, len(halves), UNIQUE_KEYS_MAX):
            some = halves[start : start + UNIQUE_KEYS_MAX]
            keys = list({half.message_id.encode(): None for half in some})
            end = reader.store.confirm_offset
            search = reader.store.searches.unique(topic, keys, end=end)
            try:
                headers = await reader.blocking.run(search.run)
            except OSError as error:
                remark = f"the disk cannot be read: {error}"
                raise refusal(ResponseCode.SYSTEM_ERROR, remark) from error
            for half in some:
                header = headers.get(half.message_id)
                if header is not None and _is_of(header, half):
                    found[half.transaction] = header


def _is_of(header: RecordHeader, half: Half) -> bool:
    return (
        header.prepared_offset == half.transaction
        and header.sys_flag & FLAG_TRANSACTION_MASK == FLAG_COMMIT
    )


def _ended(half: Half, header: RecordHeader | None) -> Ended:
    told = (half.group, half.message_id, PhysicalOffset(0))
    if header is None:
        return Ended(half.transaction, Resolution.ROLLBACK, *told)
    place = (half.queue_id, -1) if half.is_delayed else (header.queue_id, header.queue_offset)
    return Ended(half.transaction, Resolution.COMMIT, *told, *place)


def wrong_ids(meant: Named, told: Half | Ended) -> RefusedError | None:
    """Return why a request does not mean the transaction that is there; None when it does.

    Returns:
        INVALID_PARAMETER; names what is wrong.
    """
    if isinstance(told, Ended) and not told.message_id:
        return None  # its half message could not be read: all that is known is that it is over
    wrong: str | None = None
    if meant.group != told.group:
        wrong = f"belongs to another producer group than {meant.group!r}"
    elif meant.message_id != told.message_id:
        wrong = f"has another message than {meant.message_id!r}"
    elif isinstance(told, Half) and meant.topic not in ("", told.topic):
        wrong = f"is meant for another topic than {meant.topic!r}"
    if wrong is None:
        return None
    return refusal(ResponseCode.INVALID_PARAMETER, f"transaction {meant.transaction} {wrong}")
