"""`ternmq topic …`."""

import click

from ternmq_console.admin import ask, time_text
from ternmq_console.options import nameserver_option, output_option
from ternmq_console.output import print_record, print_rows
from ternmq_model.names import is_system_topic
from ternmq_model.route import Permission, TopicConfig

_PERMISSIONS = {
    "rw": Permission.READ | Permission.WRITE,
    "r": Permission.READ,
    "w": Permission.WRITE,
}


@click.command()
@click.argument("topic")
@click.option("--queues", type=int, default=8, show_default=True, help="Queues on each broker.")
@click.option(
    "--permissions",
    type=click.Choice(list(_PERMISSIONS)),
    default="rw",
    show_default=True,
    help="Read, write or both.",
)
@click.option("--cluster", default="", help="Only on brokers of this cluster.")
@click.option("--broker", "brokers", multiple=True, help="Only on this broker; may be repeated.")
@nameserver_option
@output_option
def create(
    topic: str,
    queues: int,
    permissions: str,
    cluster: str,
    brokers: tuple[str, ...],
    nameserver: str,
    output: str,
) -> None:
    """Create TOPIC, or change its queues and permissions, on every broker."""
    config = TopicConfig(topic, queues, queues, _PERMISSIONS[permissions])
    names = ask(
        nameserver, lambda admin: admin.create_topic(config, cluster=cluster, brokers=brokers)
    )
    print_record({"topic": topic, "queues": queues, "brokers": names}, output)


@click.command(name="list")
@click.option("--cluster", default="", help="Only topics of this cluster.")
@click.option("--all", "with_system", is_flag=True, help="Those that brokers make, too.")
@nameserver_option
@output_option
def list_(cluster: str, with_system: bool, nameserver: str, output: str) -> None:
    """List topics; those that brokers make for themselves only with --all."""
    topics = ask(nameserver, lambda admin: admin.topics(cluster))
    rows = [{"topic": topic} for topic in topics if with_system or not is_system_topic(topic)]
    print_rows(rows, ("topic",), output)


@click.command()
@click.argument("topic")
@nameserver_option
@output_option
def describe(topic: str, nameserver: str, output: str) -> None:
    """Show the settings and queues of TOPIC."""
    found = ask(nameserver, lambda admin: admin.describe_topic(topic))
    queues = [
        {
            "broker": one.queue.broker_name,
            "queue": one.queue.queue_id,
            "min_offset": one.min_offset,
            "max_offset": one.max_offset,
            "last_stored": time_text(one.last_stored_at_ms),
        }
        for one in found.queues
    ]
    brokers = [
        {
            "broker": name,
            "read_queues": config.read_queues,
            "write_queues": config.write_queues,
            "permissions": config.permissions.text,
        }
        for name, config in found.configs
    ]
    if output == "json":
        print_record({"topic": topic, "brokers": brokers, "queues": queues}, output)
        return
    print_rows(brokers, ("broker", "read_queues", "write_queues", "permissions"), output)
    click.echo()
    print_rows(queues, ("broker", "queue", "min_offset", "max_offset", "last_stored"), output)


@click.command()
@click.argument("topic")
@nameserver_option
@output_option
def delete(topic: str, nameserver: str, output: str) -> None:
    """Delete TOPIC from every broker, with the offsets of its groups.

    Its messages can no longer be read.
    """
    names = ask(nameserver, lambda admin: admin.delete_topic(topic))
    print_record({"topic": topic, "deleted_from": names}, output)
