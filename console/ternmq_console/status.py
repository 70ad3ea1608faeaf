"""`ternmq broker status`."""

from typing import Final

import click

from ternmq_client.admin import AdminClient
from ternmq_console.admin import ask, time_text
from ternmq_console.options import nameserver_option, output_option
from ternmq_console.output import print_record, print_rows
from ternmq_model.errors import refusal
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import BrokerData, check_broker_name
from ternmq_protos.v1 import admin_pb2 as admin_messages

_COLUMNS = (
    *("broker", "put_messages", "put_per_s", "put_longest_ms", "got_messages", "got_per_s"),
    *("gets_from_disk", "dispatch_behind_bytes", "damaged_records"),
)
RATE_SPAN_S: Final = 60
"""Rates that are shown are of so long."""


@click.command()
@click.argument("broker", required=False)
@nameserver_option
@output_option
def status(broker: str | None, nameserver: str, output: str) -> None:
    """Show what the stores of all brokers have counted since they were opened, or all of BROKER's.

    Rates are those of the last minute.
    """
    if broker is None:
        print_rows(ask(nameserver, _all), _COLUMNS, output)
        return
    print_record(ask(nameserver, lambda admin: _one(admin, broker)), output)


async def _all(admin: AdminClient) -> list[dict[str, object]]:
    return [await _status(admin, data) for data in await admin.brokers() if data.master]


async def _one(admin: AdminClient, broker: str) -> dict[str, object]:
    for data in await admin.brokers():
        master = data.master
        if master and broker in (data.broker_name, *map(str, master.endpoints)):
            return await _status(admin, data)
    check_broker_name(broker)
    raise refusal(ResponseCode.BROKER_NOT_EXIST, f"no broker is called {broker!r}")


async def _status(admin: AdminClient, data: BrokerData) -> dict[str, object]:
    reply = await admin.describe_store(data)
    minute = next(rate for rate in reply.rates if rate.span_s == RATE_SPAN_S)
    row: dict[str, object] = {
        "broker": data.broker_name,
        "opened": time_text(reply.opened_at_ms),
        "put_messages": reply.put_messages,
        "put_bytes": reply.put_bytes,
        "put_average_bytes": round(reply.put_average_bytes),
        "put_per_s": round(minute.put_messages),
        "puts": reply.puts,
        "puts_failed": reply.puts_failed,
        "put_longest_ms": reply.put_longest_ms,
        "put_times": {_bucket(each): each.puts for each in reply.put_times if each.puts},
        "gets_found": reply.gets_found,
        "gets_missed": reply.gets_missed,
        "got_messages": reply.got_messages,
        "got_per_s": round(minute.got_messages),
        "gets_from_disk": reply.gets_from_disk,
        "get_longest_ms": reply.get_longest_ms,
        "dispatch_behind_bytes": reply.dispatch_behind_bytes,
        "dispatch_behind_ms": reply.dispatch_behind_ms,
        "log_files": reply.log_files,
        "queues": reply.queues,
        "damaged_records": reply.bad_records,
        "wrong_units": reply.wrong_units,
        "damaged": [f"{each.start}-{each.end}: {each.reason}" for each in reply.damaged],
        "failure": reply.failure or None,
        "topics": {
            each.topic: {"messages": each.messages, "bytes": each.bytes} for each in reply.topics
        },
        "groups": [_behind(each) for each in reply.groups],
    }
    return row


def _bucket(times: admin_messages.PutTimes) -> str:
    return f"<{times.below_ms}ms" if times.below_ms else "more"


def _behind(group: admin_messages.GroupBehind) -> dict[str, object]:
    return {
        "group": group.group,
        "topic": group.topic,
        "queue_id": group.queue_id,
        "behind_messages": group.messages,
        "behind_bytes": group.bytes,
        "read": time_text(group.read_at_ms),
    }
