"""`ternmq group create|alter|delete|reset|clone` and `ternmq offset skip`."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import click

from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.admin.descriptions import OffsetChange, require_all
from ternmq_console.cli.admin_query import ask, queue_fields
from ternmq_console.cli.options import INT32, INT64, cluster_options, placement_options, time_option
from ternmq_console.cli.output import fields, print_record, print_rows
from ternmq_model.group_settings import GroupSettings
from ternmq_model.queue import MessageQueue

F = TypeVar("F", bound=Callable[..., Any])

_SETTINGS: tuple[tuple[str, Any, str], ...] = (
    ("--consume/--no-consume", bool, "Whether the group may consume."),
    ("--broadcast/--no-broadcast", bool, "Whether members of the group may broadcast."),
    (
        "--from-min/--no-from-min",
        bool,
        "Whether the group begins a new queue with its first stored message.",
    ),
    ("--retry-queues", INT32, "Queues of the retry topic; 0 = failed messages are dropped."),
    ("--retries", INT32, "Retries before a message becomes a dead letter."),
    ("--broker-id", INT32, "Id of the member that serves the group: 0 = the master."),
    (
        "--broker-id-when-slow",
        INT32,
        "Id of the member that serves the group when it is far behind.",
    ),
    ("--notify/--no-notify", bool, "Whether members are notified when others join or leave."),
)
_FIELDS = {
    "consume": "consume_enabled",
    "broadcast": "broadcast_enabled",
    "from_min": "consume_from_min_enabled",
    "retry_queues": "retry_queues",
    "retries": "retries_max",
    "broker_id": "broker_id",
    "broker_id_when_slow": "broker_id_when_slow",
    "notify": "notify_members_changed",
}


def settings_options(function: F) -> F:
    """Add an option for each setting of a group; None = not given."""
    for flag, kind, text in reversed(_SETTINGS):
        kinds: dict[str, Any] = {} if kind is bool else {"type": kind}
        function = click.option(flag, default=None, help=text, **kinds)(function)
    return function


@click.command()
@click.argument("group")
@settings_options
@placement_options
@cluster_options
def create(
    group: str,
    cluster: str,
    brokers: tuple[str, ...],
    nameserver: str,
    output: str,
    **options: object,
) -> None:
    """Create GROUP, or replace its settings, on every broker. Other settings get their defaults."""
    settings = replace(GroupSettings(group), **_given(options))
    names = ask(
        nameserver, lambda admin: admin.put_group(settings, cluster=cluster, brokers=brokers)
    )
    print_record({"group": group, "brokers": names}, output)


@click.command()
@click.argument("group")
@settings_options
@cluster_options
def alter(group: str, nameserver: str, output: str, **options: object) -> None:
    """Change some settings of GROUP on every broker that knows it."""
    changes = _given(options)
    if not changes:
        raise click.UsageError("nothing to change: give a setting, such as --retries 3")

    async def change(admin: AdminClient) -> list[str]:
        known = await admin.describe_group(group)
        require_all(known.unreachable)
        wanted: dict[GroupSettings, list[str]] = {}
        for name, settings in known.settings:
            wanted.setdefault(replace(settings, **changes), []).append(name)
        return [
            name
            for settings, names in wanted.items()
            for name in await admin.put_group(settings, brokers=names)
        ]

    print_record({"group": group, "brokers": ask(nameserver, change)}, output)


@click.command()
@click.argument("group")
@click.option("--with-dead-letters", is_flag=True, help="Delete the dead letters of GROUP too.")
@placement_options
@cluster_options
def delete(
    group: str,
    with_dead_letters: bool,
    cluster: str,
    brokers: tuple[str, ...],
    nameserver: str,
    output: str,
) -> None:
    """Delete GROUP from every broker: settings, offsets, and messages that wait for a retry.

    The command refuses a group with live members.
    """
    names = ask(
        nameserver,
        lambda admin: admin.delete_group(
            group, with_dead_letters=with_dead_letters, cluster=cluster, brokers=brokers
        ),
    )
    print_record({"group": group, "deleted_from": names}, output)


@click.command()
@click.argument("group")
@click.option("--topic", required=True, help="Topic whose offsets are reset.")
@time_option("--to-time", help="Reset to the first message stored at or after this time.")
@click.option(
    "--to-offset", type=INT64, help="Reset to this offset, or to the nearest end of the queue."
)
@click.option("--to-first", is_flag=True, help="Reset to the first stored message.")
@click.option(
    "--to-last", is_flag=True, help="Reset behind the last message, and skip waiting messages."
)
@click.option(
    "--queue",
    "queues",
    multiple=True,
    metavar="BROKER/ID",
    help="Reset only this queue, such as broker-a/3; may be repeated.",
)
@click.option("--backwards-only", is_flag=True, help="Change no offset that is below the new one.")
@click.option("--dry-run", is_flag=True, help="Show the new offsets, and change none.")
@cluster_options
def reset(
    group: str,
    topic: str,
    to_time: int | None,
    to_offset: int | None,
    to_first: bool,
    to_last: bool,
    queues: tuple[str, ...],
    backwards_only: bool,
    dry_run: bool,
    nameserver: str,
    output: str,
) -> None:
    """Reset the offsets of GROUP in a topic, also while it consumes, and notify its members."""
    wanted = [_queue(topic, text) for text in queues]
    found = ask(
        nameserver,
        lambda admin: admin.reset_offsets(
            group,
            topic,
            at_ms=to_time,
            offset=to_offset,
            first=to_first,
            last=to_last,
            queues=wanted,
            backwards_only=backwards_only,
            dry_run=dry_run,
        ),
    )
    _print_changes(found.changes, output)


@click.command()
@click.argument("from_group", metavar="FROM")
@click.argument("to_group", metavar="TO")
@click.option("--topic", default="", help="Restrict the command to this topic.")
@cluster_options
def clone(from_group: str, to_group: str, topic: str, nameserver: str, output: str) -> None:
    """Copy the offsets of the group FROM to the group TO, which has no live members."""
    changes = ask(nameserver, lambda admin: admin.clone_offsets(from_group, to_group, topic))
    _print_changes(changes, output)


@click.command()
@click.argument("group")
@click.argument("topic")
@cluster_options
def skip(group: str, topic: str, nameserver: str, output: str) -> None:
    """Move the offsets of GROUP behind the last message of TOPIC."""
    found = ask(nameserver, lambda admin: admin.reset_offsets(group, topic, last=True))
    _print_changes(found.changes, output)


def _given(options: dict[str, object]) -> dict[str, Any]:
    """Return the given settings by the names of the fields."""
    return {_FIELDS[name]: value for name, value in options.items() if value is not None}


def _queue(topic: str, text: str) -> MessageQueue:
    broker_name, separator, number = text.rpartition("/")
    if not (separator and broker_name and number.isascii() and number.isdigit()):
        raise click.BadParameter(f"{text!r} is no queue such as broker-a/3", param_hint="--queue")
    return MessageQueue(topic, broker_name, int(number))


def _print_changes(changes: Sequence[OffsetChange], output: str) -> None:
    rows = [{**queue_fields(one.queue), **fields(one, "before", "after")} for one in changes]
    print_rows(rows, ("topic", "broker", "queue", "before", "after"), output)
