"""EndTransaction: a producer's commit or roll-back, checked, stored and answered when it is safe.

Source: RocketMQ `EndTransactionProcessor`.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import takewhile
from typing import Final, NamedTuple

from ternmq_broker.storage.ack_policy import AckPolicy
from ternmq_broker.storage.real_topics import RealTopics
from ternmq_broker.storage.system_topic_routing import RoutingRules, waiting
from ternmq_broker.storage.yielding import RECORDS_AT_ONCE, yield_to_requests
from ternmq_broker.transactions.end_lookup import EndLookup, wrong_ids
from ternmq_broker.transactions.half_codec import HalfRecord, message_of
from ternmq_broker.transactions.half_reader import HalfReader
from ternmq_broker.transactions.readiness import Readiness
from ternmq_broker.transactions.staged_commits import ClaimedCommit, StagedCommits
from ternmq_broker.transactions.table import EndedTransaction, OpenTransaction, TransactionTable
from ternmq_broker.transactions.transitions import TransitionRecord, Transitions
from ternmq_model.errors import MessageRefused, RefusedError, TernError, UsageError, refusal
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.response_code import ResponseCode
from ternmq_model.transaction import Resolution
from ternmq_remoting.status import refusal_of

logger = logging.getLogger(__name__)

_SOON: Final = frozenset(
    {ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.FLOW_CONTROL}
)
_CHUNK_BYTES: Final = 1 << 20


class EndRequest(NamedTuple):
    """A producer's resolution of one transaction."""

    group: str
    topic: str
    message_id: str
    transaction: PhysicalOffset
    resolution: Resolution


class EndResult(NamedTuple):
    """The answer to an `EndRequest`."""

    error: RefusedError | None = None
    queue_id: int = 0
    queue_offset: int = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class EndContext:
    """Parts that the processor uses. All owned by the broker's loop."""

    table: TransactionTable
    transitions: Transitions
    halves: HalfReader
    topics: RealTopics
    ack_policy: AckPolicy
    staged: StagedCommits
    readiness: Readiness
    storing: Callable[[], AbstractContextManager[None]]
    """Counts a call that stores: a stop waits for it."""

    end_lookup: EndLookup
    rules: Callable[[], RoutingRules]
    """Tells by what delays are followed at this moment."""


class EndTransactionProcessor:
    """Ends transactions. One request at a time works on one transaction; others wait for it."""

    def __init__(self, context: EndContext) -> None:
        self._context = context
        self._released = asyncio.Event()

    async def end(self, requests: Sequence[EndRequest]) -> list[EndResult]:
        """End transactions and return what is answered to each, when it is safe.

        Cancelling is safe: what was stored by then counts, the rest is as it was.
        """
        with self._context.storing():
            try:
                await self._context.readiness.check()
            except RefusedError as unable:
                return [EndResult(unable) for _ in requests]
            return await self._end(requests)

    async def released(self) -> None:
        """Wait until somebody works no more on some transactions' ends."""
        await self._released.wait()

    async def _end(self, requests: Sequence[EndRequest]) -> list[EndResult]:
        outcomes: dict[int, EndResult] = {}
        left = list(range(len(requests)))
        while left:
            claimed: list[tuple[int, OpenTransaction]] = []
            others: list[int] = []
            for index in left:
                request = requests[index]
                entry = self._context.table.get(request.transaction)
                if request.resolution is Resolution.UNKNOWN:
                    outcomes[index] = EndResult()
                elif entry is not None and entry.is_ending:
                    others.append(index)
                elif entry is not None:
                    entry.is_ending = True
                    claimed.append((index, entry))
            try:
                await self._work(requests, claimed, outcomes)
            finally:
                self._release(claimed)
            if others and not claimed:
                await self.released()
            left = others
        await self._settle(requests, outcomes)
        return [outcomes[index] for index in range(len(requests))]

    def _release(self, claimed: Sequence[tuple[int, OpenTransaction]]) -> None:
        for _, entry in claimed:
            entry.is_ending = False
        if claimed:
            self._released.set()
            self._released = asyncio.Event()

    async def _work(
        self,
        requests: Sequence[EndRequest],
        claimed: Sequence[tuple[int, OpenTransaction]],
        outcomes: dict[int, EndResult],
    ) -> None:
        """End the claimed ones, some at a time; a refused one has its outcome afterwards.

        When a staged one cannot be committed now but may be later, so are those behind it: they
        keep their order.
        """
        claimed = claimed[await self._commit_staged(requests, claimed) :]
        rollbacks: dict[int, tuple[OpenTransaction, HalfRecord]] = {}
        commits: list[tuple[int, TransitionRecord]] = []
        waiting_bytes = 0
        held: RefusedError | None = None
        for number, (index, entry) in enumerate(claimed, 1):
            request = requests[index]
            if number % RECORDS_AT_ONCE == 0:
                await yield_to_requests()
            try:
                if held is not None and entry.is_staged and request.resolution is Resolution.COMMIT:
                    raise held
                change = await self._change(request, entry)
            except TernError as error:
                outcomes[index] = EndResult(refused := _refusal(error))
                held = held or _holding(refused)
                continue
            if request.resolution is Resolution.ROLLBACK:
                rollbacks[index] = (entry, change.half)  # without its body: there may be many
                continue
            commits.append((index, change))
            waiting_bytes += len(change.record.body)
            if waiting_bytes >= _CHUNK_BYTES or len(commits) >= RECORDS_AT_ONCE:
                held = await self._commit(commits, outcomes) or held
                commits, waiting_bytes = [], 0
        await self._commit(commits, outcomes)
        try:
            await self._context.transitions.roll_back(list(rollbacks.values()))
        except TernError as error:
            outcomes.update(dict.fromkeys(rollbacks, EndResult(_refusal(error))))

    async def _commit_staged(
        self, requests: Sequence[EndRequest], claimed: Sequence[tuple[int, OpenTransaction]]
    ) -> int:
        """Commit what is staged and comes first; return how many those are."""
        commits = takewhile(
            lambda pair: requests[pair[0]].resolution is Resolution.COMMIT and pair[1].is_staged,
            claimed,
        )
        return await self._context.staged.commit_first(
            [ClaimedCommit(requests[index], entry) for index, entry in commits]
        )

    async def _commit(
        self, commits: Sequence[tuple[int, TransitionRecord]], outcomes: dict[int, EndResult]
    ) -> RefusedError | None:
        """Commit; return why that may only be done later, if so."""
        try:
            await self._context.transitions.commit([change for _, change in commits])
        except (UsageError, MessageRefused) as error:
            # One of them can never be stored: the others can.
            for index, change in commits if len(commits) > 1 else ():
                if self._context.table.is_open(change.entry):
                    await self._commit([(index, change)], outcomes)
            if len(commits) == 1:
                outcomes[commits[0][0]] = EndResult(_refusal(error))
        except TernError as error:
            refused = _refusal(error)
            for index, change in commits:
                if self._context.table.is_open(change.entry):
                    outcomes[index] = EndResult(refused)
            return _holding(refused)
        return None

    async def _change(self, request: EndRequest, entry: OpenTransaction) -> TransitionRecord:
        """Return what ends an open transaction as asked.

        Raises:
            TernError: It may not be, or cannot be read now.
        """
        context = self._context
        if not context.ack_policy.confirmations.reached(PhysicalOffset(entry.physical_offset + 1)):
            await context.ack_policy.wait(PhysicalOffset(entry.physical_offset + 1))
        found = await context.halves.read(entry.physical_offset)
        if found is None:
            remark = f"the half message of transaction {request.transaction} cannot be read"
            raise refusal(ResponseCode.SYSTEM_ERROR, remark)
        half, inner = found
        if (wrong := wrong_ids(request, half)) is not None:
            raise wrong
        if request.resolution is Resolution.ROLLBACK:
            return TransitionRecord(entry, half, inner)
        at = PhysicalOffset(entry.physical_offset)
        config = context.topics.find(half.topic, half.queue_id, at)
        if config is None:
            remark = f"topic {half.topic!r} of transaction {request.transaction} was deleted"
            raise refusal(ResponseCode.TOPIC_NOT_EXIST, remark)
        queues = max(config.read_queues, config.write_queues, 1)
        message = message_of(inner, half, queue_id=half.queue_id % queues)
        return TransitionRecord(
            entry, half, waiting(message, context.rules()) if half.is_delayed else message
        )

    async def _settle(self, requests: Sequence[EndRequest], outcomes: dict[int, EndResult]) -> None:
        """Give outcomes to all that have none: their transactions ended, now or long ago."""
        context = self._context
        ends: dict[int, EndedTransaction] = {}
        over: list[int] = []
        for index, request in enumerate(requests):
            if index not in outcomes:
                known = context.table.ended(request.transaction)
                if known is None:
                    over.append(index)
                else:
                    ends[index] = known
        try:
            found = await context.end_lookup.find([requests[index] for index in over])
        except TernError as error:
            found = [_refusal(error)] * len(over)
        for index, ended in zip(over, found, strict=True):
            if isinstance(ended, EndedTransaction):
                ends[index] = ended
            else:
                outcomes[index] = EndResult(ended)
        for index, ended in list(ends.items()):
            wrong = rule_against(requests[index], ended)
            if wrong is not None:
                outcomes[index] = EndResult(wrong)
                del ends[index]
        unsafe: RefusedError | None = None
        last = max((ended.end for ended in ends.values()), default=PhysicalOffset(0))
        if not context.ack_policy.confirmations.reached(last) or (
            context.ack_policy.topics_saved() is not None
        ):
            try:
                await context.ack_policy.wait(last)
            except TernError as error:
                unsafe = _refusal(error)
        for index, ended in ends.items():
            if unsafe is not None and not context.ack_policy.confirmations.reached(ended.end):
                outcomes[index] = EndResult(unsafe)
            else:
                outcomes[index] = EndResult(None, ended.queue_id, ended.queue_offset)


def rule_against(request: EndRequest, ended: EndedTransaction) -> RefusedError | None:
    """Return why a transaction that has ended cannot be ended as asked; None when it did so.

    It ended the other way, or it is not the transaction that is meant.
    """
    wrong = wrong_ids(request, ended)
    if wrong is not None or request.resolution is ended.resolution:
        return wrong
    done = "committed" if ended.resolution is Resolution.COMMIT else "rolled back"
    why = f": {ended.why}" if ended.why else ""
    remark = f"transaction {request.transaction} was {done} already{why}"
    return refusal(ResponseCode.ILLEGAL_OPERATION, remark)


def _holding(refused: RefusedError) -> RefusedError | None:
    """Return the refusal when what it refuses may be done soon."""
    return refused if refused.code in _SOON or refused.may_have_happened else None


def _refusal(error: TernError) -> RefusedError:
    """Return what a client is told of an error.

    Raises:
        TernError: It is none that a client could make anything of.
    """
    if isinstance(error, RefusedError):
        return error
    refused = refusal_of(error)
    if refused is None:
        raise error
    refused.may_have_happened |= error.may_have_happened
    return refused
