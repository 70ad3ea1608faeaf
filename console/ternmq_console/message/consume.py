"""`ternmq consume`: print messages as they come."""

import asyncio
from contextlib import suppress

import click

from ternmq_client.config import resolve_client
from ternmq_client.instance import ClientInstance
from ternmq_console.cli.exit_codes import errors_as_exits
from ternmq_console.cli.options import cluster_options
from ternmq_console.cli.output import print_json, print_line, print_raw
from ternmq_console.message.lookup import message_row
from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_model.errors import RefusedError
from ternmq_model.stored_message import StoredMessage
from ternmq_model.subscription import ALL_TAGS, sql
from ternmq_runtime.service import OwnedTasks
from ternmq_runtime.signals import run

_STARTS = {"first": ConsumeFrom.FIRST_OFFSET, "last": ConsumeFrom.LAST_OFFSET}


@click.command()
@click.argument("topic")
@click.option(
    "--group", required=True, help="Consumer group, whose finished messages are not printed."
)
@click.option(
    "--from",
    "start",
    type=click.Choice(list(_STARTS)),
    default="first",
    show_default=True,
    help="Start of a group that never consumed the topic.",
)
@click.option(
    "--tag",
    "expression",
    default=ALL_TAGS,
    metavar="EXPRESSION",
    help="Tags of the messages: 'a || b'.",
)
@click.option(
    "--sql",
    "condition",
    metavar="CONDITION",
    help='Condition on properties of the messages: "a > 5".',
)
@click.option(
    "--max", "count_max", type=click.IntRange(min=1), help="End after this number of messages."
)
@click.option(
    "--raw", "is_raw", is_flag=True, help="Print the raw bytes of bodies; not on a terminal."
)
@click.option("--wait", is_flag=True, help="Wait for a missing topic, and for permissions.")
@cluster_options
def consume(
    topic: str,
    group: str,
    start: str,
    expression: str,
    condition: str | None,
    count_max: int | None,
    wait: bool,
    is_raw: bool,
    nameserver: str,
    output: str,
) -> None:
    """Print the messages of TOPIC as they arrive, as a member of GROUP, until Ctrl-C or --max.

    Without --wait, a missing topic (exit code 3) is an error, and so is a refusal (1), also during
    the run: a topic without read permission, a group that may not consume.

    A line is the body of a message, with escapes for unprintable characters; with --json, an object
    with all fields. Printed messages are finished: the group does not receive them again.
    """
    if is_raw and output == "json":
        raise click.UsageError("--raw and JSON exclude each other")
    if is_raw:
        print_raw(b"")
    if condition is not None and expression != ALL_TAGS:
        raise click.UsageError("--tag and --sql exclude each other")

    async def main() -> None:
        refused: asyncio.Future[RefusedError] = asyncio.get_running_loop().create_future()

        def refuse(error: RefusedError) -> None:
            if not (wait or refused.done()):
                refused.set_result(error)

        consumer = PushConsumer(
            group,
            {topic: expression if condition is None else sql(condition)},
            on_refused=refuse,
            config=PushConsumerConfig(consume_from=_STARTS[start]),
            nameserver=nameserver,
        )
        if not wait:
            async with ClientInstance(resolve_client(nameserver, None)) as client:
                await client.routes.route(topic)
        async with consumer, OwnedTasks() as tasks:
            tasks.spawn(_raise(refused), "refusal")
            printed = 0
            async for message in consumer:
                _print(message, output=output, is_raw=is_raw)
                printed += 1
                if printed == count_max:
                    await consumer.commit()
                    return

    with errors_as_exits(), suppress(SystemExit):  # a signal is how it is meant to end
        run(main())


async def _raise(refused: asyncio.Future[RefusedError]) -> None:
    """Wait for a refusal and raise it."""
    raise await refused


def _print(message: StoredMessage, *, output: str, is_raw: bool) -> None:
    if is_raw:
        print_raw(message.readable_body + b"\n")
    elif output == "json":
        print_json(message_row(message))
    else:
        print_line(message.readable_body.decode(errors="backslashreplace"), keep="\t")
