"""`ternmq explain`: the life of one message."""

import click

from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.admin.explain.fact_search import find_by_key, find_facts
from ternmq_client.admin.explain.facts import MessageFacts
from ternmq_client.admin.explain.story import MessageStory, story_of
from ternmq_console.cli.admin_query import ask, queue_fields, time_text
from ternmq_console.cli.exit_codes import leave_if_partial
from ternmq_console.cli.options import cluster_options
from ternmq_console.cli.output import Row, print_json, print_line, print_rows
from ternmq_model.names import TRACE_TOPIC
from ternmq_runtime.clock import SystemClock


@click.command()
@click.argument("message_id", required=False, default="")
@click.option("--key", default="", help="Key of the message, in place of its id.")
@click.option("--topic", default="", help="Topic of the key.")
@click.option("--group", "groups", multiple=True, help="Describe only this group; repeatable.")
@click.option(
    "--producer-group",
    "producer_groups",
    multiple=True,
    help="Group that may have sent it in a transaction; repeatable.",
)
@click.option("--trace-topic", default=TRACE_TOPIC, show_default=True, help="Topic of the traces.")
@cluster_options
def explain(
    message_id: str,
    key: str,
    topic: str,
    groups: tuple[str, ...],
    producer_groups: tuple[str, ...],
    trace_topic: str,
    nameserver: str,
    output: str,
) -> None:
    """Show the life of the message with the id MESSAGE_ID, or with a key in a topic.

    The id is an offset message id or a unique key, the message id of producers. The output has
    what the brokers can prove, and what cannot be known any more.
    """
    if bool(message_id) == bool(key):
        raise click.UsageError("name the message by either MESSAGE_ID or --key")
    if bool(key) != bool(topic):
        raise click.UsageError("--key and --topic belong together")

    async def question(admin: AdminClient) -> MessageFacts:
        return await find_facts(
            admin,
            await find_by_key(admin, topic, key) if key else message_id,
            asked_at_ms=SystemClock().wall_ms(),
            groups=groups,
            producer_groups=producer_groups,
            trace_topic=trace_topic,
        )

    facts = ask(nameserver, question)
    print_story(story_of(facts), output)
    leave_if_partial(facts.unreachable)


def print_story(story: MessageStory, output: str) -> None:
    """Print the life of a message: for people, or as one JSON document."""
    events: list[Row] = [{"time": time_text(one.at_ms), "event": one.text} for one in story.events]
    groups: list[Row] = [
        {
            "group": one.group,
            "state": str(one.state),
            **({} if one.queue is None else queue_fields(one.queue)),
            "evidence": list(one.evidence),
        }
        for one in story.groups
    ]
    if output == "json":
        document: Row = {
            "message_id": story.message_id,
            "topics": list(story.topics),
            "events": events,
            "storage": list(story.storage),
            "groups": groups,
            "unknown": list(story.unknown),
        }
        print_json(document, indent=2)
        return
    print_line(f"message {story.message_id} of {', '.join(story.topics) or 'an unknown topic'}")
    _print_lines("now", story.storage)
    if events:
        print_line()
        print_rows(events, ("time", "event"), output)
    for one in story.groups:
        print_line()
        where = f" ({one.queue})" if len({each.queue for each in story.groups}) > 1 else ""
        print_line(f"group {one.group}: {one.state}{where}")
        for line in one.evidence:
            print_line(f"  {line}")
    if not story.groups and story.topics:
        print_line()
        print_line("no consumer group is found that knows its topic")
    _print_lines("not known", story.unknown)


def _print_lines(title: str, lines: tuple[str, ...]) -> None:
    if lines:
        print_line()
        print_line(title)
        for line in lines:
            print_line(f"  {line}")
