"""Checks of transactions: answers to brokers that ask what became of one."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any, Final

from ternmq_client.instance import ClientInstance
from ternmq_model.arguments import is_async
from ternmq_model.errors import CorruptRecord
from ternmq_model.stored_message import StoredMessage, decode_single
from ternmq_model.transaction import Resolution
from ternmq_producer.transactions.transaction_ends import TransactionEnds
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_protos.v1 import transactions_pb2 as transactions
from ternmq_remoting.environment import Blocking

logger = logging.getLogger(__name__)

QUESTIONS_MAX: Final = 2000
"""Questions that may wait for the checker; a broker asks again what is beyond."""

Check = Callable[[StoredMessage], Resolution | Awaitable[Resolution]]


async def decide(blocking: Blocking, function: Callable[..., Any], *args: object) -> Resolution:
    """Return what an application's function says; UNKNOWN when it raises.

    A plain function runs in a thread. Cancelling stops the waiting, not such a function.
    """
    try:
        if is_async(function):
            value = await function(*args)
        else:
            value = await blocking.run(function, *args)
            if isawaitable(value):
                value = await value
    except Exception:
        logger.exception("transaction unknown: the application's function raised")
        return Resolution.UNKNOWN
    if isinstance(value, Resolution):
        return value
    logger.error("transaction unknown: the application's function returned %r", value)
    return Resolution.UNKNOWN


class TransactionChecks:
    """Checks that brokers ask for. Owned by its producer.

    Args:
        group: The producer group.
        check: Says what became of a message's transaction.
        client: Open.
        ends: Carries the answers.
        is_running: Whether the local transaction of a message with this id still runs here.
        workers: Checks at a time.
        timeout_s: For an answer to reach its broker.
    """

    def __init__(
        self,
        group: str,
        check: Check,
        client: ClientInstance,
        ends: TransactionEnds,
        *,
        is_running: Callable[[str], bool],
        workers: int,
        timeout_s: float,
    ) -> None:
        self._group = group
        self._check = check
        self._client = client
        self._ends = ends
        self._is_running = is_running
        self._room = asyncio.Semaphore(workers)
        self._timeout_s = timeout_s
        self._active: set[tuple[str, int]] = set()

    def asked(self, reply: groups.SessionReply, broker_name: str) -> None:
        """Answer a broker's question; one that is being answered, and one too many, is dropped."""
        told = reply.check_transaction
        key = (broker_name, told.transaction_offset)
        if told.producer_group != self._group or key in self._active:
            return
        if len(self._active) >= QUESTIONS_MAX:
            logger.warning("question dropped broker=%s waiting=%d", broker_name, len(self._active))
            return
        self._active.add(key)
        name = f"check {told.message_id}"
        self._client.tasks.spawn(self._answer(told, broker_name), name).add_done_callback(
            lambda _task: self._active.discard(key)
        )

    async def _answer(self, told: groups.CheckTransaction, broker_name: str) -> None:
        try:
            message = decode_single(told.record, broker_name, check_crc=False)
        except CorruptRecord as error:
            logger.error(
                "question not understood broker=%s transaction=%d error=%s",
                broker_name,
                told.transaction_offset,
                error,
            )
            return
        resolution = Resolution.UNKNOWN
        async with self._room:
            if not self._is_running(told.message_id):
                resolution = await decide(self._client.env.blocking, self._check, message)
        self._ends.tell(
            broker_name,
            end_request(
                group=self._group,
                topic=message.topic,
                message_id=told.message_id,
                transaction=told.transaction_offset,
                resolution=resolution,
                from_check=True,
            ),
            timeout_s=self._timeout_s,
        )


def end_request(
    *,
    group: str,
    topic: str,
    message_id: str,
    transaction: int,
    resolution: Resolution,
    from_check: bool = False,
) -> transactions.EndTransactionRequest:
    """Return what tells a broker how a transaction ended."""
    return transactions.EndTransactionRequest(
        producer_group=group,
        topic=topic,
        message_id=message_id,
        transaction_offset=transaction,
        resolution=transactions.Resolution.Name(resolution.value),
        from_check=from_check,
    )
