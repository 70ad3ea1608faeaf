"""`ternmq message send`: one message, and where it was stored."""

import click

from ternmq_client.config import ClientConfig, nameserver_texts
from ternmq_console.cli.admin_query import ask
from ternmq_console.cli.exit_codes import errors_as_exits
from ternmq_console.cli.options import INT32, cluster_options
from ternmq_console.cli.output import print_record
from ternmq_model.message import Message
from ternmq_model.queue import MessageQueue
from ternmq_producer.blocking_producer import BlockingProducer

_TOOLS = "TOOLS_PRODUCER"


@click.command()
@click.argument("topic")
@click.option("--body", required=True, help="Body of the message, as text.")
@click.option("--key", "keys", multiple=True, help="Key of the message; may be repeated.")
@click.option("--tag", default="", help="Tag of the message.")
@click.option("--broker", default="", help="Send the message to this broker.")
@click.option(
    "--queue", type=INT32, help="Send the message to the queue with this number; needs --broker."
)
@click.option("--trace", is_flag=True, help="Trace the message.")
@cluster_options
def send(
    topic: str,
    body: str,
    keys: tuple[str, ...],
    tag: str,
    broker: str,
    queue: int | None,
    trace: bool,
    nameserver: str,
    output: str,
) -> None:
    """Send one message to TOPIC, and show its queue and offset."""
    if (queue is None) != (not broker):
        raise click.UsageError("--broker and --queue go together")
    wanted = None
    if queue is not None:
        name = ask(nameserver, lambda admin: admin.master_of(broker)).broker_name
        wanted = MessageQueue(topic, name, queue)
    with errors_as_exits():
        config = ClientConfig(nameservers=nameserver_texts(nameserver), trace=trace)
        with BlockingProducer(_TOOLS, client=config) as producer:
            result = producer.send(Message(topic, body.encode(), tags=tag, keys=keys), queue=wanted)
    print_record(
        {
            "status": result.status.name,
            "message_id": result.message_id,
            "broker": result.queue.broker_name,
            "queue": result.queue.queue_id,
            "offset": result.queue_offset,
        },
        output,
    )
