"""`ternmq topic …`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TextIO

import click

from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.admin.broker_names import no_such_broker
from ternmq_client.admin.descriptions import QueueStatus, require_all
from ternmq_console.cli.admin_query import ask, print_found, reserved_hours, time_text
from ternmq_console.cli.exit_codes import errors_as_exits, exit_code, leave_if_partial
from ternmq_console.cli.options import (
    INT32,
    cluster_options,
    duration_ms,
    duration_text,
    placement_options,
    time_option,
    yes_option,
)
from ternmq_console.cli.output import (
    confirm_losses,
    fields,
    print_line,
    print_names,
    print_record,
    print_rows,
)
from ternmq_console.retention_losses import retention_losses
from ternmq_model.names import is_system_topic
from ternmq_model.route import Permission, TopicConfig, order_sections

_PERMISSIONS = {
    "rw": Permission.READ | Permission.WRITE,
    "r": Permission.READ,
    "w": Permission.WRITE,
}


_BROKER_COLUMNS = ("broker", "read_queues", "write_queues", "permissions", "retention", "created")
_ROUTE_COLUMNS = ("broker", "read_queues", "write_queues", "permissions", "addresses")


@click.command()
@click.argument("topics", metavar="TOPIC...", nargs=-1)
@click.option(
    "--file",
    "names",
    type=click.File(encoding="utf-8-sig"),
    help="File with further topics, one on each line, in UTF-8. - = standard input.",
)
@click.option("--queues", type=INT32, default=8, show_default=True, help="Queues on each broker.")
@click.option("--read-queues", type=INT32, help="Queues for reads, if not --queues.")
@click.option("--write-queues", type=INT32, help="Queues for writes, if not --queues.")
@click.option(
    "--permissions",
    type=click.Choice(list(_PERMISSIONS)),
    default="rw",
    show_default=True,
    help="Permission of clients: read, write or both.",
)
@click.option(
    "--retention",
    type=duration_ms,
    metavar="DURATION",
    default="0",
    show_default=True,
    help="Time for which messages can be read, such as 24h or 7d. 0 = each broker's own time.",
)
@placement_options
@yes_option
@cluster_options
def create(
    topics: tuple[str, ...],
    names: TextIO | None,
    queues: int,
    read_queues: int | None,
    write_queues: int | None,
    permissions: str,
    retention: int,
    cluster: str,
    brokers: tuple[str, ...],
    *,
    yes: bool,
    nameserver: str,
    output: str,
) -> None:
    """Create TOPIC, or replace its settings, on every broker. A refusal stops no other topic."""
    wanted = list(dict.fromkeys([*topics, *_lines(names)]))
    if not wanted:
        raise click.UsageError("name a topic, or a --file of topics")
    if not yes:
        confirm_losses(ask(nameserver, lambda it: _losses(it, wanted, retention, cluster, brokers)))
    config = TopicConfig(
        wanted[0],
        queues if read_queues is None else read_queues,
        queues if write_queues is None else write_queues,
        _PERMISSIONS[permissions],
        retention_ms=retention,
    )
    configs = [replace(config, topic=topic) for topic in wanted]
    found = ask(
        nameserver, lambda admin: admin.create_topics(configs, cluster=cluster, brokers=brokers)
    )
    failed = [error for one in found for error in one.errors.values()]
    rows = [
        {
            "topic": one.topic,
            "queues": config.write_queues,
            "brokers": one.brokers,
            "errors": {broker: str(error) for broker, error in one.errors.items()},
        }
        for one in found
    ]
    if len(rows) > 1:
        print_rows(rows, ("topic", "brokers", "errors"), output)
    elif found[0].brokers:
        print_record(rows[0], output)
    else:
        with errors_as_exits():
            raise failed[0]
    if failed:
        raise SystemExit(exit_code(failed[0]))


def _lines(names: TextIO | None) -> list[str]:
    """Return the lines of a file without blank ones."""
    try:
        return list(filter(None, map(str.strip, names or ())))
    except UnicodeDecodeError as error:
        raise click.UsageError(f"--file: {error}") from None


@click.command()
@click.argument("topic")
@click.option("--queues", type=INT32, help="Queues on each broker.")
@click.option(
    "--permissions",
    type=click.Choice(list(_PERMISSIONS)),
    help="Permission of clients: read, write or both.",
)
@click.option(
    "--retention",
    type=duration_ms,
    metavar="DURATION",
    help="Time for which messages can be read, such as 24h or 7d. 0 = each broker's own time.",
)
@yes_option
@cluster_options
def alter(
    topic: str,
    queues: int | None,
    permissions: str | None,
    retention: int | None,
    *,
    yes: bool,
    nameserver: str,
    output: str,
) -> None:
    """Change the given settings of TOPIC on every broker that has it."""
    changes: dict[str, Any] = {}
    if queues is not None:
        changes |= {"read_queues": queues, "write_queues": queues}
    if permissions is not None:
        changes["permissions"] = _PERMISSIONS[permissions]
    if retention is not None:
        changes["retention_ms"] = retention
    if not changes:
        raise click.UsageError("name a setting to change: --queues, --permissions or --retention")
    if retention is not None and not yes:
        confirm_losses(ask(nameserver, lambda admin: _losses(admin, [topic], retention)))
    names = ask(nameserver, lambda admin: _alter(admin, topic, changes))
    print_record({"topic": topic, "brokers": names}, output)


async def _losses(
    admin: AdminClient,
    topics: Sequence[str],
    retention_ms: int,
    cluster: str = "",
    brokers: Sequence[str] = (),
) -> list[str]:
    """Return lines about the losses of existing topics by a new retention."""
    lines: list[str] = []
    reserved_ms: dict[str, int] = {}
    known = set(await admin.topics(cluster))
    names = [(await admin.master_of(each)).broker_name for each in brokers]
    names = names or [data.broker_name for data in await admin.brokers(cluster)]
    for topic in filter(known.__contains__, topics):
        changes_ms: dict[str, tuple[int, int]] = {}
        for broker, config in (await admin.describe_topic(topic)).configs:
            before_ms = config.retention_ms
            if broker not in names or before_ms == retention_ms:
                continue
            if not (before_ms and retention_ms) and broker not in reserved_ms:
                reserved_ms[broker] = duration_ms(await reserved_hours(admin, broker) + "h")
            kept_ms = reserved_ms.get(broker, 0)
            changes_ms[broker] = before_ms or kept_ms, retention_ms or kept_ms
        lines += retention_losses(topic, changes_ms)
    return lines


async def _alter(admin: AdminClient, topic: str, changes: Mapping[str, Any]) -> list[str]:
    found = await admin.describe_topic(topic)
    require_all(found.unreachable)
    wanted: dict[TopicConfig, list[str]] = {}
    for broker, config in found.configs:
        wanted.setdefault(replace(config, **changes), []).append(broker)
    for config, brokers in wanted.items():
        await admin.create_topic(config, brokers=brokers)
    return [broker for broker, _ in found.configs]


@click.command(name="list")
@click.option("--cluster", default="", help="Restrict the list to topics of this cluster.")
@click.option("--all", "with_system", is_flag=True, help="Include system topics.")
@cluster_options
def list_(cluster: str, with_system: bool, nameserver: str, output: str) -> None:
    """List topics, with --all including system topics."""

    async def question(admin: AdminClient) -> None:
        pages = (
            [topic for topic in page if with_system or not is_system_topic(topic)]
            async for page in admin.topic_pages(cluster)
        )
        await print_names(pages, "topic", output)

    ask(nameserver, question)


@click.command()
@click.argument("topic")
@cluster_options
def describe(topic: str, nameserver: str, output: str) -> None:
    """Show the settings and queues of TOPIC."""
    found = ask(nameserver, lambda admin: admin.describe_topic(topic))
    queues = [_queue_row(one) for one in found.queues]
    brokers = [
        {
            "broker": name,
            "read_queues": config.read_queues,
            "write_queues": config.write_queues,
            "permissions": config.permissions.text,
            "retention": duration_text(config.retention_ms) if config.retention_ms else None,
            "created": time_text(created.at_ms),
            "created_log_offset": created.log_offset,
        }
        for (name, config), created in zip(found.configs, found.created, strict=True)
    ]
    if output == "json":
        print_record({"topic": topic, "brokers": brokers, "queues": queues}, output)
    else:
        print_rows(brokers, _BROKER_COLUMNS, output)
        print_line()
        print_rows(queues, ("broker", "queue", "min_offset", "max_offset", "last_stored"), output)
    leave_if_partial(found.unreachable)


@click.command()
@click.argument("topic")
@cluster_options
def status(topic: str, nameserver: str, output: str) -> None:
    """Show the messages of each queue of TOPIC, and the time of the newest one."""
    found = ask(nameserver, lambda admin: admin.describe_topic(topic))
    rows = [_queue_row(one, messages=one.max_offset - one.min_offset) for one in found.queues]
    columns = ("broker", "queue", "min_offset", "max_offset", "messages", "last_stored")
    print_rows(rows, columns, output)
    leave_if_partial(found.unreachable)


def _queue_row(one: QueueStatus, **counts: object) -> dict[str, object]:
    return {
        "broker": one.queue.broker_name,
        "queue": one.queue.queue_id,
        **fields(one, "min_offset", "max_offset"),
        **counts,
        "last_stored": time_text(one.last_stored_at_ms),
    }


@click.command()
@click.argument("topic")
@cluster_options
def routes(topic: str, nameserver: str, output: str) -> None:
    """Show the route of TOPIC for clients: its brokers and queues."""
    route = ask(nameserver, lambda admin: admin.route(topic))
    addresses = {
        data.broker_name: {
            str(member.broker_id): [str(address) for address in member.endpoints]
            for member in data.members
        }
        for data in route.brokers
    }
    rows: list[dict[str, object]] = [
        {
            "broker": one.broker_name,
            "read_queues": one.read_queues,
            "write_queues": one.write_queues,
            "permissions": one.permissions.text,
            "addresses": addresses.get(one.broker_name, {}),
        }
        for one in route.queues
    ]
    if output == "json":
        record = {"topic": topic, "order": route.order_topic_conf or None, "brokers": rows}
        print_record(record, output)
        return
    print_rows(rows, _ROUTE_COLUMNS, output)
    if route.order_topic_conf:
        print_line(f"order: {route.order_topic_conf}")


@click.command()
@click.argument("topic")
@click.argument("conf", required=False)
@click.option("--none", "is_none", is_flag=True, help="Remove the order.")
@cluster_options
def order(topic: str, conf: str | None, is_none: bool, nameserver: str, output: str) -> None:
    """Show the fixed order of queues of TOPIC, or set it to CONF.

    CONF is such as broker-a:8;broker-b:8: producers choose among exactly these queues, for any set
    of running brokers. Name every NameServer: each stores its own copy. TOPIC and the brokers must
    exist; a broker of the previous order may be away.
    """
    if conf is not None and is_none:
        raise click.UsageError("give either an order or --none")

    async def question(admin: AdminClient) -> str:
        before = await admin.topic_order(topic)
        if conf or not before:
            await admin.route(topic)  # which refuses a topic that is not there
        if conf is None and not is_none:
            return before
        wanted = {broker for broker, _ in order_sections(conf or "")}
        views = await admin.nameserver_views() if wanted else []
        there = {data.broker_name for view in views for data in view.brokers}
        there.update(broker for broker, _ in order_sections(before))
        if missing := sorted(wanted - there):
            raise no_such_broker(missing, ())
        await admin.set_topic_order(topic, conf or "")
        return conf or ""

    print_record({"topic": topic, "order": ask(nameserver, question) or None}, output)


@click.command()
@click.argument("topic")
@click.option("--cluster", default="", help="Delete only from brokers of this cluster.")
@cluster_options
def delete(topic: str, cluster: str, nameserver: str, output: str) -> None:
    """Delete TOPIC from every broker, with the offsets of its groups.

    Its messages become unreadable. The command lists brokers that left recently and may bring the
    topic back.
    """
    names = ask(nameserver, lambda admin: admin.delete_topic(topic, cluster=cluster))
    print_record({"topic": topic, "deleted_from": names}, output)
    leave_if_partial(names.unreachable)


@click.command()
@click.argument("topic")
@time_option("--at", required=True, help="Time of the offsets.")
@click.option(
    "--boundary",
    type=click.Choice(["lower", "upper"]),
    default="lower",
    show_default=True,
    help="lower: the first message since that time; upper: the last up to it.",
)
@cluster_options
def offsets(topic: str, at: int, boundary: str, nameserver: str, output: str) -> None:
    """Show the offset of each queue of TOPIC at a time."""
    found = ask(nameserver, lambda admin: admin.offsets_at(topic, at, upper=boundary == "upper"))
    print_found(
        found,
        lambda each: {
            "broker": each[0].broker_name,
            "queue": each[0].queue_id,
            "offset": each[1],
        },
        ("broker", "queue", "offset"),
        output,
    )
