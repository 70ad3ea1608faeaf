"""Administrative queries from the shell."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.admin.descriptions import BrokerList
from ternmq_console.cli.exit_codes import errors_as_exits, leave_if_partial
from ternmq_console.cli.output import Row, print_rows
from ternmq_model.clock import utc_text
from ternmq_model.errors import refusal
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode

T = TypeVar("T")


def ask(nameserver: str, question: Callable[[AdminClient], Awaitable[T]]) -> T:
    """Return the result of `question`; an error becomes a line and an exit code."""

    async def main() -> T:
        async with AdminClient(nameserver=nameserver) as admin:
            return await question(admin)

    with errors_as_exits():
        return asyncio.run(main())


def print_found(
    found: BrokerList[T], row: Callable[[T], Row], columns: Sequence[str], output: str
) -> None:
    """Print a row for each item of the brokers that answered.

    Raises:
        SystemExit: A broker gave no answer; it is named on standard error.
    """
    print_rows([row(each) for each in found], columns, output)
    leave_if_partial(found.unreachable)


def queue_fields(queue: MessageQueue) -> dict[str, object]:
    """Return the columns that name a queue."""
    return {"topic": queue.topic, "broker": queue.broker_name, "queue": queue.queue_id}


def time_text(at_ms: int) -> str | None:
    """Return Unix milliseconds as ISO 8601 in UTC; None for 0, which means never."""
    return utc_text(at_ms / 1000) if at_ms else None


async def reserved_hours(admin: AdminClient, broker: str) -> str:
    """Return `store.file_reserved_hours` of a broker.

    Raises:
        RefusedError: The broker does not report the setting.
    """
    name = "store.file_reserved_hours"
    for each in await admin.settings(broker):
        if each.name == name:
            return each.value
    raise refusal(ResponseCode.SYSTEM_ERROR, f"the broker does not report {name}", broker)
