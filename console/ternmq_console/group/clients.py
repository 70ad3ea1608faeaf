"""`ternmq group consumers|producers`: who is there, and how consuming goes."""

import click

from ternmq_client.admin.admin_calls import gather
from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.admin.descriptions import BrokerList, GroupMember, ProducerMember
from ternmq_console.cli.admin_query import ask, time_text
from ternmq_console.cli.exit_codes import leave_if_partial
from ternmq_console.cli.options import cluster_options
from ternmq_console.cli.output import print_line, print_record, print_rows
from ternmq_model.errors import (
    ClientNotOnline,
    RefusedError,
    RequestTimedOut,
    TransportError,
    refusal,
)
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import groups_pb2 as groups

_MEMBER_COLUMNS = ("client_id", "address", "subscriptions", "connected")
_PRODUCER_COLUMNS = ("group", "client_id", "address", "connected")
_QUEUE_COLUMNS = (
    "topic",
    "broker",
    "queue",
    "commit_offset",
    "read_offset",
    "messages",
    "bytes",
    "locked",
    "pulled",
    "consumed",
)


@click.command()
@click.argument("group")
@click.argument("client_id", required=False)
@click.option("--state", is_flag=True, help="Ask each member how consuming goes.")
@cluster_options
def consumers(group: str, client_id: str | None, state: bool, nameserver: str, output: str) -> None:
    """Show the live members of GROUP; with --state, or for CLIENT_ID, how consuming goes there."""
    if client_id is not None:
        told = ask(nameserver, lambda admin: _state_of(admin, group, client_id))
        _print_state(client_id, told, output)
        return
    found = ask(nameserver, lambda admin: _members(admin, group, state))
    print_rows(found, _columns(state), output)
    leave_if_partial(found.unreachable)


@click.command()
@click.argument("group", required=False)
@cluster_options
def producers(group: str | None, nameserver: str, output: str) -> None:
    """Show the live producers of GROUP, or of every group."""

    async def question(admin: AdminClient) -> BrokerList[ProducerMember]:
        found = await admin.producers(group or "")
        if group and not found and not found.unreachable:
            remark = f"group {group!r} has no live producer on any broker"
            raise refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        return found

    found = ask(nameserver, question)
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
    leave_if_partial(found.unreachable)


def _columns(state: bool) -> tuple[str, ...]:
    return (*_MEMBER_COLUMNS, "queues", "in_hand", "facts") if state else _MEMBER_COLUMNS


async def _members(admin: AdminClient, group: str, state: bool) -> BrokerList[dict[str, object]]:
    described = await admin.describe_group(group)

    async def row(one: GroupMember) -> dict[str, object]:
        return {
            "client_id": one.client_id,
            "address": one.address,
            "subscriptions": dict(one.subscriptions),
            "connected": time_text(one.connected_at_ms),
            **(await _state(admin, group, one.client_id) if state else {}),
        }

    return BrokerList(await gather(described.members, row), described.unreachable)


async def _state_of(admin: AdminClient, group: str, client_id: str) -> groups.RunningState:
    try:
        return await admin.consumer_state(group, client_id)
    except ClientNotOnline as error:
        members = (await admin.describe_group(group)).members
        if any(one.client_id == client_id for one in members):
            raise RequestTimedOut(error.remark) from error
        raise


async def _state(admin: AdminClient, group: str, client_id: str) -> dict[str, object]:
    try:
        told = await admin.consumer_state(group, client_id)
    except (RefusedError, TransportError) as error:
        remark = error.remark if isinstance(error, RefusedError) else str(error)
        return {"queues": None, "in_hand": None, "facts": {"error": remark}}
    return {
        "queues": len(told.queues),
        "in_hand": sum(queue.messages for queue in told.queues),
        "facts": dict(sorted(told.facts.items())),
    }


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
