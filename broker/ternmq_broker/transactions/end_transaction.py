"""EndTransaction: a producer's commit or roll-back, checked, stored and answered when it is safe.

Staged transactions are committed by the thousand. Commits of plain ones, which come first in a
request, are copied from the bytes of their half messages, without making objects of them.

Source: RocketMQ `EndTransactionProcessor`.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from typing import Final, NamedTuple

from ternmq_broker.storage.ack_policy import append_with_space
from ternmq_broker.storage.admission import Admission
from ternmq_broker.storage.real_topics import RealTopics
from ternmq_broker.storage.system_topic_routing import RoutingRules, waiting
from ternmq_broker.storage.yielding import RECORDS_AT_ONCE, yield_to_requests
from ternmq_broker.transactions.end_lookup import EndLookup, wrong_ids
from ternmq_broker.transactions.half_codec import HalfRecord, TransactionIdentity, message_of
from ternmq_broker.transactions.half_reader import HalfReader
from ternmq_broker.transactions.staged_codec import PlainCommit, plain_commit
from ternmq_broker.transactions.table import EndedTransaction, OpenTransaction
from ternmq_broker.transactions.transitions import TransitionRecord, Transitions
from ternmq_model.errors import MessageRefused, RefusedError, TernError, UsageError, refusal
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.permission import to_publish
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import TopicConfig
from ternmq_model.transaction import Resolution
from ternmq_remoting.rpc import EVERYTHING, Permits
from ternmq_remoting.status import refusal_from

_TRANSIENT: Final = frozenset(
    {ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.FLOW_CONTROL}
)
_CHUNK_BYTES: Final = 1 << 20
_READY_TIMEOUT_S: Final = 3.0


class EndRequest(NamedTuple):
    """A producer's resolution of one transaction."""

    identity: TransactionIdentity
    resolution: Resolution
    permits: Permits = EVERYTHING


class EndResult(NamedTuple):
    """The answer to an `EndRequest`."""

    error: RefusedError | None = None
    queue_id: int = 0
    queue_offset: int = -1


@dataclass(slots=True, eq=False)
class _PendingEnd:
    """One end of a request, from its claim to its result."""

    request: EndRequest
    entry: OpenTransaction = field(init=False)
    """The open transaction, once it is claimed."""

    result: EndResult | None = None

    @property
    def is_staged_commit(self) -> bool:
        return self.entry.is_staged and self.request.resolution is Resolution.COMMIT


@dataclass(kw_only=True, slots=True, eq=False)
class EndTransactionProcessor:
    """Processor of ends. One request at a time works on one transaction; others wait for it."""

    transitions: Transitions
    halves: HalfReader
    topics: RealTopics
    end_lookup: EndLookup
    ready: asyncio.Event
    """Set once the table is filled after a start."""

    admission: Admission
    rules: Callable[[], RoutingRules]
    """Returns the present rules for delays."""

    _released: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    async def check_ready(self) -> None:
        """Wait a few seconds for the table of transactions to be filled.

        Raises:
            RefusedError: SERVICE_NOT_AVAILABLE: the start takes longer, or the broker is closing.
        """
        self.admission.check()
        if not self.ready.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_READY_TIMEOUT_S):
                    await self.ready.wait()
        if not self.ready.is_set():
            remark = "the broker still reads the ends of transactions from its log"
            raise refusal(ResponseCode.SERVICE_NOT_AVAILABLE, remark)

    async def end(self, requests: Sequence[EndRequest]) -> list[EndResult]:
        """End transactions and return the answer to each, when it is safe.

        Cancelling is safe: records that are stored by then count, other transactions are unchanged.
        """
        with self.admission.storing():
            try:
                await self.check_ready()
            except RefusedError as unable:
                return [EndResult(unable) for _ in requests]
            return await self._end(requests)

    async def released(self) -> None:
        """Wait until a request has finished its work on some transactions."""
        await self._released.wait()

    async def _end(self, requests: Sequence[EndRequest]) -> list[EndResult]:
        pending = [_PendingEnd(request) for request in requests]
        remaining = pending
        while remaining:
            claimed: list[_PendingEnd] = []
            others: list[_PendingEnd] = []
            for end in remaining:
                entry = self.transitions.table.get(end.request.identity.transaction)
                if end.request.resolution is Resolution.UNKNOWN:
                    end.result = EndResult()
                elif entry is not None and entry.is_ending:
                    others.append(end)
                elif entry is not None:
                    entry.is_ending, end.entry = True, entry
                    claimed.append(end)
            try:
                await self._work(claimed)
            finally:
                for end in claimed:
                    end.entry.is_ending = False
                if claimed:
                    self._released.set()
                    self._released = asyncio.Event()
            if others and not claimed:
                await self.released()
            remaining = others
        await self._settle([end for end in pending if end.result is None])
        return [end.result for end in pending if end.result is not None]

    async def _work(self, claimed: Sequence[_PendingEnd]) -> None:
        """End the claimed transactions, some at a time; a refused one has its result afterwards.

        A staged transaction that cannot be committed now, but may be later, holds back those
        behind it: they keep their order.
        """
        claimed = claimed[await self._commit_plain(claimed) :]
        rollbacks: list[tuple[_PendingEnd, HalfRecord]] = []  # without bodies: there may be many
        commits: list[tuple[_PendingEnd, TransitionRecord]] = []
        commit_bytes = 0
        held: RefusedError | None = None
        for number, end in enumerate(claimed, 1):
            if number % RECORDS_AT_ONCE == 0:
                await yield_to_requests()
            try:
                if held is not None and end.is_staged_commit:
                    raise held
                change = await self._change(end)
            except TernError as error:
                end.result = EndResult(refused := _refusal(error))
                held = held or _transient(refused)
                continue
            if end.request.resolution is Resolution.ROLLBACK:
                rollbacks.append((end, change.half))
                continue
            commits.append((end, change))
            commit_bytes += len(change.record.body)
            if commit_bytes >= _CHUNK_BYTES or len(commits) >= RECORDS_AT_ONCE:
                held = await self._commit(commits) or held
                commits, commit_bytes = [], 0
        await self._commit(commits)
        halves = [(end.entry, half) for end, half in rollbacks]
        try:
            await append_with_space(
                partial(self.transitions.roll_back, halves), self.transitions.writer.space_made
            )
        except TernError as error:
            refused = _refusal(error)
            for end, _ in rollbacks:
                end.result = EndResult(refused)

    async def _commit_plain(self, claimed: Sequence[_PendingEnd]) -> int:
        """Commit the first ones while they are plain staged commits; return their number.

        `_change` reads the others, and those with errors, and can name a reason.
        """
        staged = list(takewhile(lambda end: end.is_staged_commit, claimed))
        done = 0
        known: dict[tuple[str, int], TopicConfig] = {}
        while done < len(staged):
            plain = await self._plain(staged[done : done + RECORDS_AT_ONCE], known)
            if not plain:
                break
            entries = [end.entry for end in staged[done : done + len(plain)]]
            try:
                await self.transitions.commit_plain(entries, plain)
            except TernError:
                break
            done += len(plain)
            await yield_to_requests()
        return done

    async def _plain(
        self, staged: Sequence[_PendingEnd], known: dict[tuple[str, int], TopicConfig]
    ) -> list[PlainCommit]:
        found: list[PlainCommit] = []
        size = 0
        for end in staged:
            offset = end.entry.physical_offset
            if not self.halves.is_confirmed(offset):
                break
            try:
                data = await self.halves.reader.record(offset, is_checked=False)
                one = None if data is None else plain_commit(data, end.request.identity)
                if one is None:
                    break
                config = known.get((one.topic, one.queue_id))
                if config is None:
                    end.request.permits.check(to_publish(one.topic))
                    config = self.topics.find(one.topic, one.queue_id, offset)
                if config is None:
                    break
            except TernError:
                break
            known[one.topic, one.queue_id] = config
            queues = max(config.read_queues, config.write_queues, 1)
            if one.queue_id >= queues:
                one = one._replace(queue_id=one.queue_id % queues)
            found.append(one)
            size += len(one.front)
            if size >= _CHUNK_BYTES:
                break
        return found

    async def _commit(
        self, commits: Sequence[tuple[_PendingEnd, TransitionRecord]]
    ) -> RefusedError | None:
        """Commit; return the refusal of a commit that may succeed later."""
        try:
            await self.transitions.commit([change for _, change in commits])
        except (UsageError, MessageRefused) as error:
            # One record can never be stored: the others can.
            if len(commits) == 1:
                commits[0][0].result = EndResult(_refusal(error))
                return None
            for end, change in commits:
                if self.transitions.table.is_open(end.entry):
                    await self._commit([(end, change)])
        except TernError as error:
            refused = _refusal(error)
            for end, _ in commits:
                if self.transitions.table.is_open(end.entry):
                    end.result = EndResult(refused)
            return _transient(refused)
        return None

    async def _change(self, end: _PendingEnd) -> TransitionRecord:
        """Return the record that ends an open transaction as its producer asked.

        Raises:
            TernError: The transaction may not be ended so, or cannot be read now.
        """
        identity, entry = end.request.identity, end.entry
        offset = entry.physical_offset
        await self.halves.confirmed(PhysicalOffset(offset + 1))
        found = await self.halves.read(offset)
        if found is None:
            remark = f"the half message of transaction {identity.transaction} cannot be read"
            raise refusal(ResponseCode.SYSTEM_ERROR, remark)
        half, record = found
        if (wrong := wrong_ids(identity, half)) is not None:
            raise wrong
        end.request.permits.check(to_publish(half.topic))
        if end.request.resolution is Resolution.ROLLBACK:
            return TransitionRecord(entry, half, record)
        config = self.topics.find(half.topic, half.queue_id, offset)
        if config is None:
            remark = f"topic {half.topic!r} of transaction {identity.transaction} was deleted"
            raise refusal(ResponseCode.TOPIC_NOT_EXIST, remark)
        queue_id = half.queue_id % max(config.read_queues, config.write_queues, 1)
        message = message_of(record, half, queue_id=queue_id)
        if half.is_delayed:
            return TransitionRecord(entry, half, waiting(message, self.rules()))
        if queue_id != half.queue_id:
            half = half._replace(queue_id=queue_id)
        return TransitionRecord(entry, half, message)

    async def _settle(self, ends: Sequence[_PendingEnd]) -> None:
        """Set the results of those whose transactions have ended, now or long ago."""
        found = await self.end_lookup.find([end.request.identity for end in ends])
        ended: list[tuple[_PendingEnd, EndedTransaction]] = []
        for end, outcome in zip(ends, found, strict=True):
            if isinstance(outcome, EndedTransaction):
                outcome = _end_mismatch(end.request, outcome) or outcome
            if isinstance(outcome, EndedTransaction):
                ended.append((end, outcome))
            else:
                end.result = EndResult(outcome)
        ack_policy, unsafe = self.halves.ack_policy, None
        last = max((outcome.end for _, outcome in ended), default=PhysicalOffset(0))
        if not ack_policy.confirmations.reached(last) or ack_policy.topics_saved() is not None:
            try:
                await ack_policy.wait(last)
            except TernError as error:
                unsafe = _refusal(error)
        for end, outcome in ended:
            if unsafe is not None and not ack_policy.confirmations.reached(outcome.end):
                end.result = EndResult(unsafe)
            else:
                end.result = EndResult(None, outcome.queue_id, outcome.queue_offset)


def _end_mismatch(request: EndRequest, ended: EndedTransaction) -> RefusedError | None:
    """Return the refusal of a request when its transaction ended otherwise; None when it did not.

    A request that names another transaction is refused, too.
    """
    wrong = wrong_ids(request.identity, ended)
    if wrong is not None or request.resolution is ended.resolution:
        return wrong
    done = "committed" if ended.resolution is Resolution.COMMIT else "rolled back"
    why = f": {ended.why}" if ended.why else ""
    remark = f"transaction {request.identity.transaction} was {done} already{why}"
    return refusal(ResponseCode.ILLEGAL_OPERATION, remark)


def _transient(refused: RefusedError) -> RefusedError | None:
    """Return the refusal when its request may succeed soon; None otherwise."""
    return refused if refused.code in _TRANSIENT or refused.may_have_happened else None


def _refusal(error: TernError) -> RefusedError:
    """Return the refusal that a client gets for an error.

    Raises:
        TernError: A client could make nothing of it.
    """
    refused = refusal_from(error)
    refused.may_have_happened |= error.may_have_happened
    return refused
