"""Orders, stock and mails in sqlite: the truth of the shop. Messages only tell of it."""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

_SCHEMA = """
CREATE TABLE IF NOT EXISTS stock (
    item TEXT PRIMARY KEY, pieces INTEGER NOT NULL CHECK (pieces >= 0));
CREATE TABLE IF NOT EXISTS orders (
    id TEXT PRIMARY KEY, item TEXT NOT NULL, cents INTEGER NOT NULL, state TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS mails (
    number INTEGER PRIMARY KEY, order_id TEXT NOT NULL, subject TEXT NOT NULL,
    UNIQUE (order_id, subject));
"""


class State(StrEnum):
    """State of an order. Each one but the last is announced in the topic of orders."""

    PLACED = "placed"
    PAID = "paid"
    CANCELLED = "cancelled"
    VOID = "void"
    """Never placed: its message was checked first, and the order may not come any more."""


@dataclass(frozen=True, slots=True)
class Order:
    """One piece of an item, ordered by a customer."""

    id: str
    item: str
    cents: int
    state: State = State.PLACED

    @classmethod
    def of(cls, order_id: str, wish: Mapping[str, object]) -> "Order":
        """Return a new order of what a customer has sent.

        Raises:
            ValueError: The wish is no order.
        """
        item, cents = wish.get("item"), wish.get("cents")
        if not isinstance(item, str) or type(cents) is not int or cents <= 0:
            raise ValueError("an order has an item, and cents above 0")
        return cls(order_id, item, cents)


class OutOfStock(Exception):
    """No piece of the item is left."""


class Database:
    """One connection to the shop's database. Each method is one transaction.

    Args:
        path: File of the database, or `:memory:`.
        lock_wait_s: Longest wait for another process, s.
    """

    def __init__(self, path: Path | str, *, lock_wait_s: float = 1.0) -> None:
        self._base = sqlite3.connect(path, timeout=lock_wait_s)
        self._base.executescript(_SCHEMA)

    def close(self) -> None:
        """Close the connection."""
        self._base.close()

    def put_stock(self, item: str, pieces: int) -> None:
        """Set the number of pieces of an item."""
        with self._base as base:
            base.execute("INSERT OR REPLACE INTO stock VALUES (?, ?)", (item, pieces))

    def pieces(self, item: str) -> int:
        """Return how many pieces of an item nobody has ordered."""
        found = self._base.execute("SELECT pieces FROM stock WHERE item = ?", (item,)).fetchone()
        return found[0] if found else 0

    def place(self, order: Order) -> bool:
        """Reserve a piece and store the order; return whether that is still allowed.

        Raises:
            OutOfStock: Nothing was stored.
        """
        with self._base as base:
            row = (order.id, order.item, order.cents, order.state)
            if not base.execute("INSERT OR IGNORE INTO orders VALUES (?, ?, ?, ?)", row).rowcount:
                return False
            take = "UPDATE stock SET pieces = pieces - 1 WHERE item = ? AND pieces > 0"
            if not base.execute(take, (order.item,)).rowcount:
                raise OutOfStock(order.item)
            return True

    def was_placed(self, order_id: str) -> bool:
        """Return whether the order was placed. One that was not never will be, from now on."""
        with self._base as base:
            void = (order_id, "", 0, State.VOID)
            base.execute("INSERT OR IGNORE INTO orders VALUES (?, ?, ?, ?)", void)
        return self.order(order_id).state is not State.VOID

    def order(self, order_id: str) -> Order:
        """Return an order.

        Raises:
            KeyError: There is no such order.
        """
        select = "SELECT item, cents, state FROM orders WHERE id = ?"
        found = self._base.execute(select, (order_id,)).fetchone()
        if found is None:
            raise KeyError(order_id)
        item, cents, state = found
        return Order(order_id, item, cents, State(state))

    def settle(self, order_id: str, state: State) -> State:
        """Let a placed order be paid or cancelled, and return the state that it has now."""
        with self._base as base:
            update = "UPDATE orders SET state = ? WHERE id = ? AND state = ? RETURNING item"
            item = base.execute(update, (state, order_id, State.PLACED)).fetchone()
            if item and state is State.CANCELLED:
                base.execute("UPDATE stock SET pieces = pieces + 1 WHERE item = ?", item)
        return self.order(order_id).state

    def put_mail(self, order_id: str, subject: str) -> None:
        """Store a mail to the customer, once."""
        with self._base as base:
            insert = "INSERT OR IGNORE INTO mails (order_id, subject) VALUES (?, ?)"
            base.execute(insert, (order_id, subject))

    def mails(self, order_id: str) -> list[str]:
        """Return the subjects of an order's mails, oldest first."""
        select = "SELECT subject FROM mails WHERE order_id = ? ORDER BY number"
        return [subject for (subject,) in self._base.execute(select, (order_id,))]
