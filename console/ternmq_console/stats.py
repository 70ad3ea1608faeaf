"""`ternmq stats …`: counters of brokers, by RocketMQ's names."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

import click

from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.admin.descriptions import BrokerList
from ternmq_console.cli.admin_query import ask, print_found
from ternmq_console.cli.exit_codes import name_unreachable
from ternmq_console.cli.options import cluster_options, seconds
from ternmq_console.cli.output import print_line, print_rows
from ternmq_model.names import is_system_topic
from ternmq_protos.v1 import admin_pb2 as admin_messages

F = TypeVar("F", bound=Callable[..., Any])
Rows = BrokerList[dict[str, object]]

_SPANS: Final = ("minute", "hour", "day")
_COLUMNS: Final = (
    "broker",
    "name",
    "key",
    "total",
    "per_s",
    "last_minute",
    "last_hour",
    "last_day",
)
_TOPIC_COLUMNS: Final = ("topic", "group", "lag", "in_per_s", "out_per_s", "in_24h", "out_24h")
_TOP: Final = {"put": "TOPIC_PUT_NUMS", "get": "GROUP_GET_NUMS"}


def watch_option(function: F) -> F:
    """Add `--watch`, which becomes the argument `watch`."""
    return click.option(
        "--watch",
        type=seconds(0.1, 86_400.0),
        metavar="SECONDS",
        help="Repeat the output with this pause, until Ctrl-C.",
    )(function)


@click.command()
@click.option("--name", default="", help="Show only this counter, such as TOPIC_PUT_NUMS.")
@click.option(
    "--key", default="", help="Show only this key: topic, topic@queue, topic@group, cluster."
)
@click.option("--broker", default="", help="Show only counters of this broker.")
@watch_option
@cluster_options
def show(
    name: str, key: str, broker: str, watch: float | None, nameserver: str, output: str
) -> None:
    """Show every counter: its total, its rate over a minute, and its increase in the last spans."""

    async def rows(admin: AdminClient) -> Rows:
        found = await admin.statistics(name=name, key=key, broker_name=broker)
        return BrokerList((counter_row(name, item) for name, item in found), found.unreachable)

    _show(nameserver, rows, _COLUMNS, output, watch)


@click.command()
@click.option(
    "--by",
    type=click.Choice(list(_TOP)),
    default="put",
    help="Order by messages in (put) or out (get).",
)
@click.option("--max", "maximum", type=click.IntRange(min=1), default=10, show_default=True)
@watch_option
@cluster_options
def top(by: str, maximum: int, watch: float | None, nameserver: str, output: str) -> None:
    """Show the busiest topics, or groups with --by get, over the last minute."""

    async def rows(admin: AdminClient) -> Rows:
        found = await admin.statistics(name=_TOP[by])
        busiest = sorted(found, key=lambda each: each[1].spans[0].rate, reverse=True)
        rows = (counter_row(name, item) for name, item in busiest[:maximum])
        return BrokerList(rows, found.unreachable)

    _show(nameserver, rows, _COLUMNS, output, watch)


@click.command(name="all")
@click.argument("topic", required=False)
@click.option("--active", is_flag=True, help="Show only topics with messages in the last day.")
@watch_option
@cluster_options
def all_(
    topic: str | None, active: bool, watch: float | None, nameserver: str, output: str
) -> None:
    """Show every topic, or TOPIC, with its groups: rates in and out, and the lag in messages."""

    async def rows(admin: AdminClient) -> Rows:
        found = await topic_rows(admin, topic)
        busy = (row for row in found if not active or row["in_24h"] or row["out_24h"])
        return BrokerList(busy, found.unreachable)

    _show(nameserver, rows, _TOPIC_COLUMNS, output, watch)


async def topic_rows(admin: AdminClient, topic: str | None) -> Rows:
    """Return a row for each group of each topic, or one row for a topic without groups."""
    names = await admin.topics()
    wanted = [name for name in names if name == topic or (not topic and not is_system_topic(name))]
    if topic and not wanted:
        await admin.describe_topic(topic)  # says that there is none
    puts = _by_key(await admin.statistics(name="TOPIC_PUT_NUMS"))
    gets = _by_key(await admin.statistics(name="GROUP_GET_NUMS"))
    lags: dict[tuple[str, str], int] = {}
    described = await admin.describe_groups(await admin.groups())
    for group, one in ((each.group, one) for each in described for one in each.progress):
        key = (one.queue.topic, group)
        lags[key] = lags.get(key, 0) + one.lag
    rows: list[dict[str, object]] = []
    for name in wanted:
        groups = sorted(group for key, group in lags if key == name) or [""]
        put = puts.get(name, (0.0, 0))
        for group in groups:
            got = gets.get(f"{name}@{group}", (0.0, 0))
            rows.append(
                {
                    "topic": name,
                    "group": group or None,
                    "lag": lags.get((name, group)),
                    "in_per_s": round(put[0], 2),
                    "out_per_s": round(got[0], 2),
                    "in_24h": put[1],
                    "out_24h": got[1],
                }
            )
    return BrokerList(rows, described.unreachable)


def counter_row(broker: str, item: admin_messages.StatisticsItem) -> dict[str, object]:
    """Return every column of a counter."""
    spans = dict(zip(_SPANS, item.spans, strict=False))
    row: dict[str, object] = {
        "broker": broker,
        "name": item.name,
        "key": item.key,
        "total": item.total,
        "per_s": round(spans["minute"].rate, 2) if spans else None,
    }
    for name in _SPANS:
        row[f"last_{name}"] = spans[name].sum if spans else None
    row["spans"] = {
        name: {
            "seconds": round(span.seconds, 3),
            "sum": span.sum,
            "rate": round(span.rate, 3),
            "average": round(span.average, 3),
        }
        for name, span in spans.items()
    }
    return row


def _by_key(
    found: Sequence[tuple[str, admin_messages.StatisticsItem]],
) -> dict[str, tuple[float, int]]:
    """Return the rate of the last minute and the sum of the last day over all brokers, by key."""
    sums: dict[str, tuple[float, int]] = {}
    for _, item in found:
        rate, total = sums.get(item.key, (0.0, 0))
        sums[item.key] = (rate + item.spans[0].rate, total + item.spans[2].sum)
    return sums


def _show(
    nameserver: str,
    rows: Callable[[AdminClient], Awaitable[Rows]],
    columns: Sequence[str],
    output: str,
    watch: float | None,
) -> None:
    if watch is None:
        print_found(ask(nameserver, rows), dict, columns, output)
        return

    async def again(admin: AdminClient) -> None:
        while True:
            found = await rows(admin)
            print_rows(found, columns, output)
            name_unreachable(found.unreachable)
            print_line()
            await asyncio.sleep(watch)

    ask(nameserver, again)
