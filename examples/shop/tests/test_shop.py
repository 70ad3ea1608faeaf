"""The shop, whole: web application, worker, sqlite, and brokers that fail on request."""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing, suppress
from itertools import count
from pathlib import Path
from sqlite3 import connect
from typing import Any, Final
from uuid import uuid4

import pytest
from httpx import ASGITransport, AsyncClient

from shop import main
from shop.database import Database, Order, State
from shop.web import ORDERS, event, make_app
from shop.worker import DUE, order_id_of, working
from ternmq import Resolution, StoredMessage
from ternmq.testing import BlockingCluster, Cluster, ExploredCluster, explore

TOPICS: Final = (ORDERS, DUE)
STOCK: Final = 10
BOOK: Final = {"item": "book", "cents": 900}
DISTURBED: Final[dict[str, Any]] = {
    "seeds": 2,
    "brokers": 1,
    "topics": TOPICS,
    "faults": ["lost answers"],
    "transaction_timeout_ms": 2_000,
    "transaction_check_interval_ms": 1_000,
}
"""Options of `explore`: little enough for every commit. More seeds suit the night."""

pytestmark = pytest.mark.ternmq(topics=TOPICS)


class FakePayments:
    """A processor that charges once for each key, and fails on request."""

    def __init__(self) -> None:
        self.charges: dict[str, str] = {}
        self.attempts = self.answers_lost = 0
        self.is_down = False

    async def charge(self, key: str, order: Order) -> None:
        self.attempts += 1
        if self.is_down:
            raise OSError("the processor is down")
        self.charges[key] = order.id
        if self.answers_lost:
            self.answers_lost -= 1
            raise TimeoutError("the answer was lost")

    async def refund(self, key: str) -> None:
        self.charges.pop(key, None)

    def of(self, order_id: str) -> int:
        """Return how often an order is charged."""
        return [*self.charges.values()].count(order_id)


class Shop:
    """The running application, and a customer of it."""

    def __init__(self, database: Database, payments: FakePayments, customer: AsyncClient) -> None:
        self.database, self.payments, self.customer = database, payments, customer

    async def order(self, wish: dict[str, Any] = BOOK, *, status: int = 201) -> str:
        """Order something, and return the id of the order."""
        answer = await self.customer.post("/orders", json=wish)
        assert answer.status_code == status, answer.text
        return str(answer.json().get("id"))

    async def state(self, order_id: str) -> str:
        answer = await self.customer.get(f"/orders/{order_id}")
        return str(answer.json().get("state"))


@asynccontextmanager
async def opened(
    cluster: Cluster,
    path: Path | str,
    *,
    charge_key: Callable[[StoredMessage], str] = order_id_of,
    **planted: Any,
) -> AsyncGenerator[Shop]:
    """Run the whole application, which does not know of the cluster."""
    payments = FakePayments()
    with closing(Database(path, lock_wait_s=0)) as database, cluster.installed():
        database.put_stock("book", STOCK)
        app = make_app(database, new_id=map("order-{}".format, count(1)).__next__, **planted)
        async with (
            app.router.lifespan_context(app),
            working(database, payments, charge_key=charge_key),
            AsyncClient(transport=ASGITransport(app), base_url="http://shop") as customer,
        ):
            yield Shop(database, payments, customer)


@pytest.fixture
async def shop(ternmq: Cluster) -> AsyncGenerator[Shop]:
    async with opened(ternmq, ":memory:") as shop:
        yield shop


async def test_order_is_paid_and_its_mails_keep_their_order(ternmq: Cluster, shop: Shop) -> None:
    order = await shop.order()
    await ternmq.settled()
    assert await shop.state(order) == "paid"
    assert shop.database.mails(order) == ["your order is placed", "your order is paid"]
    ternmq.expect(ORDERS, count=2, where="cents > 500")
    await ternmq.advance("31m")  # its deadline comes
    ternmq.expect(DUE, count=1)
    assert (ternmq.lag("expiry"), await shop.state(order)) == (0, "paid")


async def test_payment_is_retried(ternmq: Cluster, shop: Shop) -> None:
    shop.payments.is_down = True
    order = await shop.order()
    await ternmq.advance("1m")
    assert (shop.payments.attempts, await shop.state(order)) == (3, "placed")
    shop.payments.is_down = False
    await ternmq.advance("1m")
    assert (shop.payments.attempts, await shop.state(order)) == (4, "paid")


async def test_unpaid_order_is_a_dead_letter_and_then_cancelled(
    ternmq: Cluster, shop: Shop
) -> None:
    shop.payments.is_down = True
    order = await shop.order()
    await ternmq.advance("10m")
    [letter] = ternmq.dead_letters("billing")
    assert ([*letter.keys], shop.payments.attempts) == ([order], 6)
    assert shop.database.pieces("book") == STOCK - 1
    await ternmq.advance("21m")
    assert await shop.state(order) == "cancelled"
    assert shop.database.pieces("book") == STOCK
    assert shop.database.mails(order)[-1] == "your order is cancelled"


def new_key(_: StoredMessage) -> str:
    """Return a key that no other attempt has: a bug."""
    return uuid4().hex


@pytest.mark.parametrize(("charge_key", "charges"), [(order_id_of, 1), (new_key, 3)])
async def test_lost_answers_of_the_processor_charge_once(
    ternmq: Cluster, charge_key: Callable[[StoredMessage], str], charges: int
) -> None:
    async with opened(ternmq, ":memory:", charge_key=charge_key) as shop:
        shop.payments.answers_lost = 2
        order = await shop.order()
        await ternmq.advance("1m")
        assert (await shop.state(order), shop.payments.of(order)) == ("paid", charges)


async def test_refused_order_announces_nothing(ternmq: Cluster, shop: Shop) -> None:
    await shop.order({"item": "lamp", "cents": 5_000}, status=409)
    await shop.order({"item": "book"}, status=422)
    await ternmq.advance("5m")
    ternmq.expect(ORDERS, count=0)


async def test_lost_answer_of_the_broker_orders_once(ternmq: Cluster, shop: Shop) -> None:
    ternmq.drop_answers("SendStream")
    await shop.order()
    await ternmq.settled()
    ternmq.expect(ORDERS, count=1, where="TAGS = 'placed'")
    assert shop.database.pieces("book") == STOCK - 1


async def test_busy_broker_orders_nothing(ternmq: Cluster, shop: Shop) -> None:
    ternmq.broker().refuse(next=3)
    await shop.order(status=503)
    assert shop.database.pieces("book") == STOCK
    await shop.order()


@pytest.mark.ternmq(flush="sync")
async def test_crash_of_the_broker_loses_no_order(ternmq: Cluster, shop: Shop) -> None:
    order = await shop.order()
    await ternmq.settled()
    await ternmq.broker().crash()
    await ternmq.broker().restart()
    placed, paid = ternmq.expect(ORDERS, count=2)
    assert (placed.tags, paid.tags) == ("placed", "paid")
    assert await shop.state(order) == "paid"


async def test_locked_database_orders_nothing(ternmq: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    async with opened(ternmq, path) as shop:
        with closing(connect(path)) as other:
            other.execute("BEGIN EXCLUSIVE")
            order = await shop.order(status=503)
        await ternmq.advance("1m")  # the broker asks what has become of it
        assert await shop.state(order) == "void"
        ternmq.expect(ORDERS, count=0)


async def test_order_of_a_process_that_dies_is_paid(
    ternmq: Cluster, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = shop.database.place

    def place_and_die(order: Order) -> bool:
        place(order)
        raise RuntimeError("the process ends, and nobody learns of the order")

    monkeypatch.setattr(shop.database, "place", place_and_die)
    order = await shop.order(status=503)
    ternmq.expect(ORDERS, count=0)
    await ternmq.advance("1m")
    assert await shop.state(order) == "paid"


async def buy(
    cluster: ExploredCluster, check: Callable[[StoredMessage], Any] | None = None
) -> None:
    """Order twice as many books as there are, whatever fails meanwhile."""
    async with opened(cluster, ":memory:", check=check) as shop:
        shop.database.put_stock("book", 3)
        placed: set[str] = set()
        for _ in range(6):
            await asyncio.sleep(cluster.random.random() / 2)
            with suppress(AssertionError):  # refused: out of stock, or the broker is away
                placed.add(await shop.order())
        await cluster.settled()
        await cluster.advance("8s")
        await cluster.settled()
        announced = {each.body.decode() for each in cluster.messages(ORDERS)}
        assert announced <= placed, "an order was announced and never placed"
        assert placed <= announced, "an order was placed and never announced"
        assert all(shop.payments.of(order) == 1 for order in placed), "not charged once"


def test_shop_keeps_its_promises_whatever_fails() -> None:
    explore(buy, **DISTURBED)


def test_check_that_does_not_look_is_found() -> None:
    async def say_yes(_: StoredMessage) -> Resolution:
        return Resolution.COMMIT

    async def buy_unchecked(cluster: ExploredCluster) -> None:
        await buy(cluster, check=say_yes)

    with pytest.raises(AssertionError, match="announced and never placed") as failure:
        explore(buy_unchecked, **DISTURBED)
    [story] = failure.value.__notes__
    assert re.search(r"Repeat it: explore\(buy_unchecked, seeds=\[\d\]\)", story)


def test_event_is_found_by_its_amount(ternmq_session: BlockingCluster, ternmq_topic: str) -> None:
    with ternmq_session.producer("shop") as producer:
        for cents in (100, 900):
            order = Order.of(f"order-{cents}", {"item": "book", "cents": cents})
            producer.send(event(order, State.PAID, topic=ternmq_topic))
    [found] = ternmq_session.expect(ternmq_topic, count=1, where="cents > 500 AND TAGS = 'paid'")
    assert found.body.decode() == order.id


async def test_programs_share_a_database(
    ternmq: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_DATABASE", str(tmp_path / "shop.db"))
    with ternmq.installed():
        app, worker = main.web(), asyncio.create_task(main.work())
        async with (
            app.router.lifespan_context(app),
            AsyncClient(transport=ASGITransport(app), base_url="http://shop") as customer,
        ):
            order = (await customer.post("/orders", json=BOOK)).json()["id"]
            await ternmq.advance("5s")  # the worker looks each second
            assert (await customer.get(f"/orders/{order}")).json()["state"] == "paid"
            assert (await customer.get("/orders/none")).status_code == 404
        worker.cancel()
        await asyncio.wait([worker])
