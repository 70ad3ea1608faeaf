"""The shop by HTTP: `POST /orders` stores an order and its message, or neither."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from uuid import uuid4

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from shop.database import Database, Order, OutOfStock, State
from ternmq import Message, Resolution, StoredMessage, TernError, TransactionProducer

ORDERS = "orders"
"""Topic of what happens to orders: the tag is the new state, the sharding key the order's id."""


def event(order: Order, state: State, *, topic: str = ORDERS) -> Message:
    """Return the message that an order has a new state."""
    return Message(
        topic,
        order.id.encode(),
        tags=state,
        keys=[order.id],
        properties={"cents": str(order.cents)},
        sharding_key=order.id,
    )


def make_app(
    database: Database,
    *,
    new_id: Callable[[], str] = lambda: uuid4().hex,
    check: Callable[[StoredMessage], Awaitable[Resolution]] | None = None,
) -> Starlette:
    """Return the web application.

    Args:
        database: Database of the orders.
        new_id: Function that returns the id of a new order.
        check: Function that tells the broker whether an order was placed; None = by the database.
    """

    async def place(message: Message, order: Order) -> Resolution:
        try:
            return Resolution.COMMIT if database.place(order) else Resolution.ROLLBACK
        except OutOfStock:
            return Resolution.ROLLBACK

    async def was_placed(message: StoredMessage) -> Resolution:
        is_placed = database.was_placed(message.body.decode())
        return Resolution.COMMIT if is_placed else Resolution.ROLLBACK

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        async with TransactionProducer(
            "shop", execute=place, check=check or was_placed, topics=[ORDERS]
        ) as producer:
            app.state.producer = producer
            yield

    async def post_order(request: Request) -> JSONResponse:
        try:
            order = Order.of(new_id(), await request.json())
        except (ValueError, AttributeError) as error:
            return JSONResponse({"error": str(error)}, 422)
        producer: TransactionProducer = request.app.state.producer
        try:
            result = await producer.send(event(order, State.PLACED), order)
        except TernError as error:  # nothing was ordered: the customer may try again
            return JSONResponse({"error": str(error)}, 503, {"Retry-After": "1"})
        status = {Resolution.COMMIT: 201, Resolution.ROLLBACK: 409, Resolution.UNKNOWN: 503}
        return JSONResponse({"id": order.id}, status[result.resolution])

    async def get_order(request: Request) -> JSONResponse:
        try:
            order = database.order(request.path_params["id"])
        except KeyError:
            return JSONResponse({"error": "no such order"}, 404)
        return JSONResponse({"id": order.id, "item": order.item, "state": order.state})

    routes = [
        Route("/orders", post_order, methods=["POST"]),
        Route("/orders/{id}", get_order),
    ]
    return Starlette(routes=routes, lifespan=lifespan)
