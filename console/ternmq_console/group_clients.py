"""`ternmq group consumers|producers`: who is there, and how consuming goes."""

import click

from ternmq_client.admin import AdminClient
from ternmq_console.admin import ask, time_text
from ternmq_console.options import nameserver_option, output_option
from ternmq_console.output import print_line, print_record, print_rows
from ternmq_model.errors import RefusedError
from ternmq_protos.v1 import groups_pb2 as groups

_MEMBER_COLUMNS = ("client_id", "address", "subscriptions", "connected")
_PRODUCER_COLUMNS = ("group", "client_id", "address", "connected")
_QUEUE_COLUMNS = (
    *("topic", "broker", "queue", "commit_offset", "read_offset", "messages", "bytes"),
    *("locked", "pulled", "consumed"),
)


@click.command()
@click.argument("group")
@click.argument("client_id", required=False)
@click.option("--state", is_flag=True, help="Ask each member how consuming goes.")
@nameserver_option
@output_option
def consumers(group: str, client_id: str | None, state: bool, nameserver: str, output: str) -> None:
    """Show the live members of GROUP; with --state, or for CLIENT_ID, how consuming goes there."""
    if client_id is not None:
        told = ask(nameserver, lambda admin: admin.consumer_state(group, client_id))
        _print_state(client_id, told, output)
        return
    print_rows(
        ask(nameserver, lambda admin: _members(admin, group, state)), _columns(state), output
    )


@click.command()
@click.argument("group", required=False)
@nameserver_option
@output_option
def producers(group: str | None, nameserver: str, output: str) -> None:
    """Show the live producers of GROUP, or of every group."""
    found = ask(nameserver, lambda admin: admin.producers(group or ""))
    rows = [
        {
            "group": one.group,
            "client_id": one.client_id,
            "address": one.address,
            "connected": time_text(one.connected_at_ms),
        }
        for one in found
    ]
    print_rows(rows, _PRODUCER_COLUMNS, output)


def _columns(state: bool) -> tuple[str, ...]:
    return (*_MEMBER_COLUMNS, "queues", "in_hand", "facts") if state else _MEMBER_COLUMNS


async def _members(admin: AdminClient, group: str, state: bool) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for one in (await admin.describe_group(group)).members:
        row: dict[str, object] = {
            "client_id": one.client_id,
            "address": one.address,
            "subscriptions": dict(one.subscriptions),
            "connected": time_text(one.connected_at_ms),
        }
        if state:
            try:
                told = await admin.consumer_state(group, one.client_id)
            except RefusedError as error:
                row |= {"queues": None, "in_hand": None, "facts": {"error": error.remark}}
            else:
                row |= {
                    "queues": len(told.queues),
                    "in_hand": sum(queue.messages for queue in told.queues),
                    "facts": dict(sorted(told.facts.items())),
                }
        rows.append(row)
    return rows


def _print_state(client_id: str, state: groups.RunningState, output: str) -> None:
    queues = [
        {
            "topic": one.topic,
            "broker": one.broker_name,
            "queue": one.queue_id,
            "commit_offset": one.commit_offset,
            "read_offset": one.read_offset,
            "messages": one.messages,
            "bytes": one.bytes,
            "locked": one.locked,
            "pulled": time_text(one.pulled_at_ms),
            "consumed": time_text(one.consumed_at_ms),
        }
        for one in state.queues
    ]
    facts: dict[str, object] = dict(sorted(state.facts.items()))
    if output == "json":
        print_record({"client_id": client_id, "facts": facts, "queues": queues}, output)
        return
    print_record({"client_id": client_id, **facts}, output)
    print_line()
    print_rows(queues, _QUEUE_COLUMNS, output)
