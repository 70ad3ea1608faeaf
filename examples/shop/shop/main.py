"""The programs: `uvicorn --factory shop.main:web`, and the worker, `python -m shop.main`.

`SHOP_DATABASE` is the file of the database, `TERNMQ_NAMESERVER` the address of the NameServer.
"""

import asyncio
import os

from starlette.applications import Starlette

from shop.database import Database, Order
from shop.web import make_app
from shop.worker import working
from ternmq import run

FIRST_STOCK = {"book": 100, "lamp": 3}


class PrintedPayments:
    """A processor of payments that prints what it would do."""

    async def charge(self, key: str, order: Order) -> None:
        """Charge nobody."""
        print(f"charge {order.cents / 100:.2f} for {order.item!a} {key!a}")

    async def refund(self, key: str) -> None:
        """Give nothing back."""
        print(f"refund {key!a}")


def open_database() -> Database:
    """Open the database, with something to sell when it is new."""
    database = Database(os.environ.get("SHOP_DATABASE", "shop.db"))
    if not any(map(database.pieces, FIRST_STOCK)):
        for item, pieces in FIRST_STOCK.items():
            database.put_stock(item, pieces)
    return database


def web() -> Starlette:
    """Return the web application, for a server."""
    return make_app(open_database())


async def work() -> None:
    """Work until SIGTERM or Ctrl-C; what is in hand is finished first."""
    async with working(open_database(), PrintedPayments()):
        await asyncio.Event().wait()


if __name__ == "__main__":
    run(work())
