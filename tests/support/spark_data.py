"""Topics and messages for the tests with real Spark, made and read without Spark."""

from collections.abc import Sequence

from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.blocking_client import shared_loop_thread
from ternmq_model.message import Message
from ternmq_model.route import TopicConfig
from ternmq_producer.blocking_producer import BlockingProducer


def make_topic(nameserver: str, topic: str, queues: int = 2) -> None:
    """Create `topic` on every broker, or give it another number of queues."""

    async def create() -> None:
        async with AdminClient(nameserver=nameserver) as admin:
            await admin.create_topic(
                TopicConfig(topic, read_queues=queues, write_queues=queues), brokers=()
            )

    shared_loop_thread().run(create())


def delete_topic(nameserver: str, topic: str) -> None:
    """Delete `topic` from every broker."""

    async def delete() -> None:
        async with AdminClient(nameserver=nameserver) as admin:
            await admin.delete_topic(topic)

    shared_loop_thread().run(delete())


def send(nameserver: str, messages: Sequence[Message]) -> None:
    """Send `messages`; every one is stored when this returns."""
    with BlockingProducer("loaders", nameserver=nameserver) as producer:
        producer.send_many(messages)


def fill(
    nameserver: str, topic: str, count: int, *, queues: int = 2, begin: int = 0
) -> list[bytes]:
    """Make `topic` and send `count` messages to it; return their bodies.

    Body `n` is `message-000…n`; it has tag `even` or `odd`, key `k<n>` and property `n`; the queues
    get them in turn.
    """
    make_topic(nameserver, topic, queues)
    numbers = range(begin, begin + count)
    messages = [
        Message(
            topic,
            b"message-%06d" % number,
            tags=("even", "odd")[number % 2],
            keys=(f"k{number}",),
            properties={"n": str(number)},
        )
        for number in numbers
    ]
    send(nameserver, messages)
    return [message.body for message in messages]
