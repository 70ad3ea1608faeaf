"""Open transactions over a whole cluster: what is staged and undecided, and its roll-back."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from ternmq_client.administration.calls import AdminCalls
from ternmq_client.descriptions import BrokerList, require_all
from ternmq_model.errors import TernError, UsageError, refusal
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import BrokerData
from ternmq_model.transaction import STAGED_QUIET_MS, is_in_use
from ternmq_protos.v1 import transactions_pb2 as transactions
from ternmq_remoting.contracts import LIST_TRANSACTIONS, ROLL_BACK_TRANSACTIONS
from ternmq_remoting.rpc import Connection

_PAGE_TIMEOUT_S: Final = 30.0
"""A page may be read from a slow disk."""


@dataclass(frozen=True, slots=True)
class OpenTransactions:
    """Transactions of one producer group that are open on one broker.

    Those that are staged are one batch; all others of the group are one such, too.
    """

    broker_name: str
    """Where they are."""

    staged_for: str
    """Batch that they are staged for, such as `QUERY/BATCH`; empty = they are not staged, and the
    broker asks their producers."""

    group: str
    """Producer group."""

    topic: str
    """Topic of the oldest."""

    count: int
    """Number of them."""

    oldest_ms: int
    """Age of the oldest, ms."""

    newest_ms: int
    """Age of the newest, ms."""

    quiet_ms: int
    """Time since one was staged or committed, or a producer asked for the state of one, ms. What
    was asked before the broker's start does not count."""

    left_ms: int | None
    """Time until the broker rolls the first back by itself, ms. None = they are not staged."""

    @property
    def is_in_use(self) -> bool:
        """Whether a driver may still work on them: less than a minute has passed."""
        return is_in_use(self.quiet_ms)


@dataclass(frozen=True, slots=True)
class StagedRollback:
    """What a roll-back of staged messages came to on one broker."""

    broker_name: str
    """Where."""

    rolled_back: int
    """Number of messages that are rolled back."""

    decided: int
    """Number of messages that were committed, or gone, before it came to them."""


class TransactionAdmin(AdminCalls):
    """Transactions that nobody has decided yet. Masters alone know them."""

    async def open_transactions(
        self, *, staged_for: str = "", brokers: Collection[str] = ()
    ) -> BrokerList[OpenTransactions]:
        """Return the transactions that are open, by broker, batch and producer group.

        Each broker reads its half messages, 20,000 to 70,000 a second, in pages beside its other
        work: what begins or ends meanwhile may be counted or not.

        Args:
            staged_for: Only what is staged for this, or for something that begins with it and a
                slash: `QUERY` or `QUERY/BATCH`. Empty = everything, also what is not staged.
            brokers: Only these: names, or addresses that their masters are registered with.

        Returns:
            Sorted by broker, the oldest first. A broker whose master is away is among
            `unreachable`: its slave refuses.

        Raises:
            RefusedError: BROKER_NOT_EXIST: there is no such broker; or what the first refuses with,
                when none answers.
            Unreachable: No broker answers; names each.
        """

        async def listed(data: BrokerData, connection: Connection) -> list[OpenTransactions]:
            pages: list[OpenTransactions] = []
            request = transactions.ListTransactionsRequest(staged_for=staged_for)
            while True:
                reply = await connection.call(LIST_TRANSACTIONS, request, timeout_s=_PAGE_TIMEOUT_S)
                pages += [_open(data.broker_name, one) for one in reply.batches]
                if reply.next <= request.begin:
                    return merged(pages)
                pages = merged(pages)
                request.begin = reply.next

        asked = await self._ask_each(listed, brokers=brokers)
        found = (one for _, told in asked.told for one in told)
        return BrokerList(found, asked.unreachable)

    async def roll_back_staged(
        self, staged_for: str, *, brokers: Collection[str] = (), force: bool = False
    ) -> list[StagedRollback]:
        """Roll back staged messages whose driver is gone, and return what that came to.

        First every broker tells what it has. A batch on which somebody worked less than a minute
        ago is refused, and nothing is rolled back anywhere: beside a driver that is inside its
        commit, a part of the batch would be visible and the rest rolled back. Before its commit a
        driver that lives finds that messages are gone and commits none.

        To repeat it does no harm. Cancelling leaves some rolled back and others not.

        Args:
            staged_for: `QUERY/BATCH`, or `QUERY` for all batches of it.
            brokers: Only these: names, or addresses that their masters are registered with.
            force: Roll back also what somebody may work on.

        Returns:
            For each broker that has something of it, sorted by cluster and name; empty = nothing
            is staged for that.

        Raises:
            UsageError: `staged_for` is empty.
            RefusedError: ILLEGAL_OPERATION: a batch is in use; names it. Else a broker refuses; the
                text names those that are done.
            Unreachable: A master does not answer, or there is none: nothing is rolled back.
            TransportError: A broker gave no answer; some may be rolled back. Repeat it.
        """
        if not staged_for:
            raise UsageError("staged_for: what is to be rolled back must be named")
        found = await self.open_transactions(staged_for=staged_for, brokers=brokers)
        require_all(found.unreachable)
        if not force:
            check_left_behind(found)
        if not found:
            return []

        async def rolled_back(data: BrokerData, connection: Connection) -> StagedRollback:
            request = transactions.RollBackTransactionsRequest(staged_for=staged_for, force=force)
            count = decided = 0
            while True:
                try:
                    reply = await connection.call(
                        ROLL_BACK_TRANSACTIONS, request, timeout_s=_PAGE_TIMEOUT_S
                    )
                except TernError as error:
                    if count:
                        error.args = (f"{error}; {count} were rolled back there before",)
                    raise
                count, decided = count + reply.rolled_back, decided + reply.decided
                if reply.next <= request.begin:
                    return StagedRollback(data.broker_name, count, decided)
                request.begin = reply.next

        names = {one.broker_name for one in found}
        done, _ = await self._change_each(
            rolled_back, brokers=names, told=lambda one: f" ({one.rolled_back})"
        )
        return [one for _, one in done]


def check_left_behind(found: Iterable[OpenTransactions]) -> None:
    """Refuse to roll back what somebody may work on. Pure.

    Raises:
        RefusedError: ILLEGAL_OPERATION: names the batch on which somebody worked last.
    """
    last = min(found, key=lambda one: one.quiet_ms, default=None)
    if last is not None and last.is_in_use:
        remark = (
            f"{last.staged_for} is in use: a row of it was stored, asked about or committed "
            f"{last.quiet_ms / 1000:.0f} s ago; nothing is rolled back before "
            f"{STAGED_QUIET_MS // 1000} s without that, unless it is forced"
        )
        raise refusal(ResponseCode.ILLEGAL_OPERATION, remark, last.broker_name)


def merged(pages: Iterable[OpenTransactions]) -> list[OpenTransactions]:
    """Return what pages of one broker tell, each batch once, in the order of the first page. Pure.

    Args:
        pages: In their order.
    """
    found: dict[tuple[str, str], OpenTransactions] = {}
    for one in pages:
        known = found.get((one.staged_for, one.group))
        if known is not None:
            lefts = [each.left_ms for each in (known, one) if each.left_ms is not None]
            one = OpenTransactions(
                *(known.broker_name, known.staged_for, known.group, known.topic),
                known.count + one.count,
                max(known.oldest_ms, one.oldest_ms),
                min(known.newest_ms, one.newest_ms),
                min(known.quiet_ms, one.quiet_ms),
                min(lefts, default=None),
            )
        found[one.staged_for, one.group] = one
    return list(found.values())


def _open(broker_name: str, told: transactions.OpenBatch) -> OpenTransactions:
    return OpenTransactions(
        *(broker_name, told.staged_for, told.producer_group, told.topic),
        *(told.count, told.oldest_ms, told.newest_ms, told.quiet_ms),
        None if told.left_ms < 0 else told.left_ms,
    )
