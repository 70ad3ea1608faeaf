"""`ternmq group list|describe|consumers|producers` and `ternmq offset show`."""

from dataclasses import asdict, replace

import click

from ternmq_client.admin.admin_calls import gather
from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.admin.descriptions import (
    BrokerList,
    GroupDescription,
    GroupMember,
    ProducerMember,
    QueueProgress,
)
from ternmq_console.cli.admin_query import ask, print_found, queue_fields, time_text
from ternmq_console.cli.exit_codes import leave_if_partial
from ternmq_console.cli.options import cluster_options
from ternmq_console.cli.output import Row, fields, print_line, print_record, print_rows
from ternmq_model.errors import (
    ClientNotOnline,
    RefusedError,
    RequestTimedOut,
    TransportError,
    refusal,
)
from ternmq_model.names import is_system_group
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import groups_pb2 as groups

_MEMBER_COLUMNS = ("client_id", "address", "subscriptions", "connected")
_STATE_COLUMNS = (*_MEMBER_COLUMNS, "queues", "in_hand", "facts")
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
_PROGRESS_COLUMNS = ("topic", "broker", "queue", "committed", "max_offset", "lag", "lag_s")
_LAG_COLUMNS = ("group", "members", "lag", "lag_s")
_SETTINGS_COLUMNS = (
    "broker",
    "consume_enabled",
    "broadcast_enabled",
    "consume_from_min_enabled",
    "retry_queues",
    "retries_max",
    "notify_members_changed",
)


@click.command(name="list")
@click.option("--with-system", is_flag=True, help="Include system groups.")
@cluster_options
def list_(with_system: bool, nameserver: str, output: str) -> None:
    """List groups that have members, offsets or settings."""
    found = ask(nameserver, lambda admin: admin.groups())
    names = BrokerList(
        (group for group in found if with_system or not is_system_group(group)), found.unreachable
    )
    print_found(names, lambda group: {"group": group}, ("group",), output)


@click.command()
@click.argument("group")
@cluster_options
def describe(group: str, nameserver: str, output: str) -> None:
    """Show the members of GROUP, and its offset in each queue."""
    found = ask(nameserver, lambda admin: admin.describe_group(group))
    members = [_member_row(one) for one in found.members]
    progress = [progress_row(one) for one in found.progress]
    settings = [{"broker": name, **asdict(kept)} for name, kept in found.settings]
    if output == "json":
        record = {"group": group, "settings": settings, "members": members, "progress": progress}
        print_record(record | {"differences": found.differences}, output)
    else:
        print_rows(settings, _SETTINGS_COLUMNS, output)
        print_line()
        print_rows(members, _MEMBER_COLUMNS, output)
        print_line()
        if found.differences:
            differences = [{"members_differ": line} for line in found.differences]
            print_rows(differences, ("members_differ",), output)
            print_line()
        print_rows(progress, _PROGRESS_COLUMNS, output)
    leave_if_partial(found.unreachable)


@click.command()
@click.argument("group")
@click.argument("client_id", required=False)
@click.option("--state", is_flag=True, help="Query each member for its state of consumption.")
@cluster_options
def consumers(group: str, client_id: str | None, state: bool, nameserver: str, output: str) -> None:
    """Show the live members of GROUP; with --state or CLIENT_ID, their state of consumption."""
    if client_id is not None:
        found = ask(nameserver, lambda admin: _state_of(admin, group, client_id))
        _print_state(client_id, found, output)
        return

    async def members(admin: AdminClient) -> BrokerList[Row]:
        described = await admin.describe_group(group)

        async def row(one: GroupMember) -> Row:
            return _member_row(one) | (
                await _state_fields(admin, group, one.client_id) if state else {}
            )

        return BrokerList(await gather(described.members, row), described.unreachable)

    columns = _STATE_COLUMNS if state else _MEMBER_COLUMNS
    print_found(ask(nameserver, members), lambda row: row, columns, output)


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

    def row(one: ProducerMember) -> Row:
        return {
            **fields(one, "group", "client_id", "address"),
            "connected": time_text(one.connected_at_ms),
        }

    print_found(ask(nameserver, question), row, _PRODUCER_COLUMNS, output)


@click.command()
@click.argument("group", required=False)
@click.option("--topic", default="", help="Restrict the command to this topic.")
@cluster_options
def show(group: str | None, topic: str, nameserver: str, output: str) -> None:
    """Show the offset of GROUP in each queue, or the lag of every group (of --topic).

    The lag in seconds is the age of the next message to consume.
    """

    async def progress(admin: AdminClient, group: str) -> BrokerList[QueueProgress]:
        found = await admin.describe_group(group)
        if topic:
            found = _of_topic(found, topic)
            if not (found.progress or found.unreachable):
                await admin.route(topic)  # which refuses a topic that is not there
        return BrokerList(found.progress, found.unreachable)

    if group is None:
        groups = ask(nameserver, lambda admin: _groups(admin, topic))
        print_found(groups, _lag_row, _LAG_COLUMNS, output)
    else:
        queues = ask(nameserver, lambda admin: progress(admin, group))
        print_found(queues, progress_row, (*_PROGRESS_COLUMNS, "consumed"), output)


def _member_row(one: GroupMember) -> dict[str, object]:
    return {
        "client_id": one.client_id,
        "address": one.address,
        "subscriptions": dict(one.subscriptions),
        "connected": time_text(one.connected_at_ms),
    }


def progress_row(one: QueueProgress) -> dict[str, object]:
    """Return every column of a group's progress in one queue."""
    return {
        **queue_fields(one.queue),
        "committed": one.committed_offset,
        **fields(one, "version", "min_offset", "max_offset", "lag"),
        "lag_s": one.lag_ms / 1000,
        "consumed": time_text(one.consumed_stored_at_ms),
    }


def _lag_row(group: GroupDescription) -> Row:
    return {
        "group": group.group,
        "members": len(group.members),
        "lag": sum(one.lag for one in group.progress),
        "lag_s": max((one.lag_ms for one in group.progress), default=0) / 1000,
    }


def _of_topic(found: GroupDescription, topic: str) -> GroupDescription:
    return replace(found, progress=tuple(o for o in found.progress if o.queue.topic == topic))


async def _groups(admin: AdminClient, topic: str) -> BrokerList[GroupDescription]:
    """Return all groups, or those with progress in a topic, with that progress alone."""
    names = await admin.groups()
    found = await admin.describe_groups([name for name in names if not is_system_group(name)])
    if not topic:
        return BrokerList(found, found.unreachable)
    groups = [each for each in (_of_topic(one, topic) for one in found) if each.progress]
    if not (groups or found.unreachable):
        await admin.route(topic)  # which refuses a topic that is not there
    return BrokerList(groups, found.unreachable)


async def _state_of(admin: AdminClient, group: str, client_id: str) -> groups.RunningState:
    try:
        return await admin.consumer_state(group, client_id)
    except ClientNotOnline as error:
        members = (await admin.describe_group(group)).members
        if any(one.client_id == client_id for one in members):
            raise RequestTimedOut(error.remark) from error
        raise


async def _state_fields(admin: AdminClient, group: str, client_id: str) -> dict[str, object]:
    try:
        state = await admin.consumer_state(group, client_id)
    except (RefusedError, TransportError) as error:
        remark = error.remark if isinstance(error, RefusedError) else str(error)
        return {"queues": None, "in_hand": None, "facts": {"error": remark}}
    return {
        "queues": len(state.queues),
        "in_hand": sum(queue.messages for queue in state.queues),
        "facts": dict(sorted(state.facts.items())),
    }


def _print_state(client_id: str, state: groups.RunningState, output: str) -> None:
    queues = [
        {
            "topic": one.topic,
            "broker": one.broker_name,
            "queue": one.queue_id,
            **fields(one, "commit_offset", "read_offset", "messages", "bytes", "locked"),
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
