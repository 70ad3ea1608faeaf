"""Checks of transactions: answers to brokers that ask for the outcome of a transaction."""

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
"""Questions that may wait for the checker; brokers repeat those beyond the limit."""

Check = Callable[[StoredMessage], Resolution | Awaitable[Resolution]]


async def decide(blocking: Blocking, function: Callable[..., Any], *args: object) -> Resolution:
    """Return the result of an application's function; UNKNOWN when the function raises.

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
        logger.exception("transaction unknown, the application's function raised")
        return Resolution.UNKNOWN
    if isinstance(value, Resolution):
        return value
    logger.error(
        "transaction unknown, the application's function returned no resolution value=%r", value
    )
    return Resolution.UNKNOWN


class TransactionChecks:
    """Checks that brokers ask for. Owned by its producer.

    Args:
        group: Name of the producer group.
        check: Function that returns the outcome of a message's transaction.
        client: Open client.
        ends: Sender of the answers.
        is_running: Function that returns whether the local transaction of a message id still runs.
        workers: Limit of concurrent checks.
        timeout_s: Time limit for an answer to reach its broker.
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
        self._workers = asyncio.Semaphore(workers)
        self._timeout_s = timeout_s
        self._active: set[tuple[str, int]] = set()

    def asked(self, reply: groups.SessionReply, broker_name: str) -> None:
        """Answer a broker's question; drop a repeated one, and those beyond the limit."""
        question = reply.check_transaction
        key = (broker_name, question.transaction_offset)
        if question.producer_group != self._group or key in self._active:
            return
        if len(self._active) >= QUESTIONS_MAX:
            logger.warning(
                "check of a transaction dropped broker=%s waiting=%d",
                broker_name,
                len(self._active),
            )
            return
        self._active.add(key)
        name = f"check {question.message_id}"
        self._client.tasks.spawn(self._answer(question, broker_name), name).add_done_callback(
            lambda _task: self._active.discard(key)
        )

    async def _answer(self, question: groups.CheckTransaction, broker_name: str) -> None:
        try:
            message = decode_single(question.record, broker_name, check_crc=False)
        except CorruptRecord as error:
            logger.error(
                "check of a transaction unreadable broker=%s transaction=%d err=%s",
                broker_name,
                question.transaction_offset,
                error,
            )
            return
        resolution = Resolution.UNKNOWN
        async with self._workers:
            if not self._is_running(question.message_id):
                with self._client.env.timers.busy():
                    resolution = await decide(self._client.env.blocking, self._check, message)
        self._ends.send(
            broker_name,
            end_request(
                group=self._group,
                topic=message.topic,
                message_id=question.message_id,
                transaction=question.transaction_offset,
                resolution=resolution,
                from_check=True,
            ),
            timeout_s=self._timeout_s,
            carrier=message.properties if resolution is not Resolution.UNKNOWN else {},
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
    """Return the request that ends a transaction."""
    return transactions.EndTransactionRequest(
        producer_group=group,
        topic=topic,
        message_id=message_id,
        transaction_offset=transaction,
        resolution=transactions.Resolution.Name(resolution.value),
        from_check=from_check,
    )
