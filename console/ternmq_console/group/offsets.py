"""`ternmq offset …`: how far groups are."""

from dataclasses import replace

import click

from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.admin.descriptions import BrokerList, GroupDescription, QueueProgress
from ternmq_console.cli.admin_query import ask, time_text
from ternmq_console.cli.exit_codes import leave_if_partial
from ternmq_console.cli.options import cluster_options
from ternmq_console.cli.output import print_rows
from ternmq_model.names import is_system_group

_COLUMNS = ("topic", "broker", "queue", "committed", "max_offset", "lag", "lag_s", "consumed")
_GROUP_COLUMNS = ("group", "members", "lag", "lag_s")
_CHANGE_COLUMNS = ("topic", "broker", "queue", "before", "after")


@click.command()
@click.argument("group", required=False)
@click.option("--topic", default="", help="Of this topic alone.")
@cluster_options
def show(group: str | None, topic: str, nameserver: str, output: str) -> None:
    """Show how far GROUP is in each queue, or how far behind every group (of --topic) is.

    The lag in seconds is how long the next message to consume has lain there.
    """
    if group is None:
        groups = ask(nameserver, lambda admin: _groups(admin, topic))
        print_rows(groups, _GROUP_COLUMNS, output)
        leave_if_partial(groups.unreachable)
        return

    async def question(admin: AdminClient) -> GroupDescription:
        found = await admin.describe_group(group)
        if topic:
            found = _of_topic(found, topic)
            if not (found.progress or found.unreachable):
                await admin.route(topic)  # which refuses a topic that is not there
        return found

    found = ask(nameserver, question)
    rows = [progress_row(one) for one in found.progress]
    print_rows(rows, _COLUMNS, output)
    leave_if_partial(found.unreachable)


@click.command()
@click.argument("group")
@click.argument("topic")
@cluster_options
def skip(group: str, topic: str, nameserver: str, output: str) -> None:
    """Let GROUP skip everything that waits in TOPIC: it goes on behind the last message."""
    found = ask(nameserver, lambda admin: admin.reset_offsets(group, topic, last=True))
    rows = [
        {
            "topic": one.queue.topic,
            "broker": one.queue.broker_name,
            "queue": one.queue.queue_id,
            "before": one.before,
            "after": one.after,
        }
        for one in found.changes
    ]
    print_rows(rows, _CHANGE_COLUMNS, output)


def progress_row(one: QueueProgress) -> dict[str, object]:
    """Return everything there is to say of a group in one queue."""
    return {
        "topic": one.queue.topic,
        "broker": one.queue.broker_name,
        "queue": one.queue.queue_id,
        "committed": one.committed_offset,
        "version": one.version,
        "min_offset": one.min_offset,
        "max_offset": one.max_offset,
        "lag": one.lag,
        "lag_s": one.lag_ms / 1000,
        "consumed": time_text(one.consumed_stored_at_ms),
    }


def _of_topic(found: GroupDescription, topic: str) -> GroupDescription:
    return replace(found, progress=tuple(o for o in found.progress if o.queue.topic == topic))


async def _groups(admin: AdminClient, topic: str) -> BrokerList[dict[str, object]]:
    """Return how far behind groups are: all, or those with progress in a topic, in that alone."""
    names = await admin.groups()
    found = await admin.describe_groups([name for name in names if not is_system_group(name)])
    groups: list[GroupDescription] = list(found)
    if topic:
        groups = [each for each in (_of_topic(one, topic) for one in groups) if each.progress]
        if not (groups or found.unreachable):
            await admin.route(topic)  # which refuses a topic that is not there
    rows: list[dict[str, object]] = [
        {
            "group": each.group,
            "members": len(each.members),
            "lag": sum(one.lag for one in each.progress),
            "lag_s": max((one.lag_ms for one in each.progress), default=0) / 1000,
        }
        for each in groups
    ]
    return BrokerList(rows, found.unreachable)
