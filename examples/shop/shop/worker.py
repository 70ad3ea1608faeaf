"""The worker: bills orders, cancels those that nobody pays, and writes mails."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Protocol

from shop.database import Database, Order, State
from shop.web import ORDERS, event
from ternmq import ConsumeFrom, Message, Producer, PushConsumer, PushConsumerConfig, StoredMessage

DUE = "orders-due"
"""Topic of deadlines."""

BILLING_RETRIES = 5
"""Retries of a payment; the last one comes seven minutes after the first attempt."""

PAID_WITHIN_MS = 30 * 60_000
"""Time after which an order that is not paid is cancelled, ms."""


class Payments(Protocol):
    """A processor of payments, somewhere else."""

    async def charge(self, key: str, order: Order) -> None:
        """Charge the customer once for each key. Safe to repeat, as after a lost answer.

        Raises:
            OSError: The processor, or its answer, was not reached.
        """
        ...

    async def refund(self, key: str) -> None:
        """Give back what was charged with the key, if anything was. Safe to repeat."""
        ...


def order_id_of(message: StoredMessage) -> str:
    """Return the key of a charge: the same for every attempt at an order."""
    return message.body.decode()


class Worker:
    """Listeners of the worker. Each message may come more than once.

    Args:
        database: Database of the orders.
        payments: Processor of payments.
        producer: Sender of deadlines and of changes.
        charge_key: Function that returns the key of the charge for a message.
    """

    def __init__(
        self,
        database: Database,
        payments: Payments,
        producer: Producer,
        charge_key: Callable[[StoredMessage], str],
    ) -> None:
        self._database, self._payments, self._producer = database, payments, producer
        self._charge_key = charge_key

    async def bill(self, message: StoredMessage) -> None:
        """Charge for a placed order. Raises, and so comes again, when the payment fails."""
        order, key = self._database.order(message.body.decode()), self._charge_key(message)
        state = order.state
        if state is State.PLACED:
            await self._payments.charge(key, order)
            state = self._database.settle(order.id, State.PAID)
        if state is State.CANCELLED:  # meanwhile
            await self._payments.refund(key)
        else:
            await self._producer.send(event(order, state))

    async def watch(self, message: StoredMessage) -> None:
        """Set the deadline of a placed order."""
        await self._producer.send(Message(DUE, message.body, deliver_after_ms=PAID_WITHIN_MS))

    async def expire(self, message: StoredMessage) -> None:
        """Cancel an order whose deadline has come, unless it is paid."""
        order = self._database.order(message.body.decode())
        if self._database.settle(order.id, State.CANCELLED) is State.CANCELLED:
            await self._payments.refund(order.id)  # an attempt whose answer was lost
            await self._producer.send(event(order, State.CANCELLED))

    async def mail(self, message: StoredMessage) -> None:
        """Tell the customer what has happened, in its order."""
        self._database.put_mail(message.body.decode(), f"your order is {message.tags}")


@asynccontextmanager
async def working(
    database: Database,
    payments: Payments,
    *,
    charge_key: Callable[[StoredMessage], str] = order_id_of,
) -> AsyncGenerator[None]:
    """Work while the block runs. See `Worker`."""
    # Orders may have come before the first worker.
    config = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)
    retries, in_order = (
        replace(config, retries_max=BILLING_RETRIES),
        replace(config, order_per_queue=True),
    )
    placed = {ORDERS: str(State.PLACED)}
    async with Producer("worker") as producer:
        worker = Worker(database, payments, producer, charge_key)
        async with (
            PushConsumer("billing", placed, listener=worker.bill, config=retries),
            PushConsumer("deadlines", placed, listener=worker.watch, config=config),
            PushConsumer("expiry", DUE, listener=worker.expire, config=config),
            PushConsumer("mail", ORDERS, listener=worker.mail, config=in_order),
        ):
            yield
