"""What jobs ask of a cluster before they start Spark, so that a mistake is told at once."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from ternmq_client.admin import AdminClient
from ternmq_client.blocking import shared_loop_thread
from ternmq_client.config import ClientConfig, nameserver_texts
from ternmq_model.errors import refusal
from ternmq_model.names import check_topic
from ternmq_model.response_code import ResponseCode

T = TypeVar("T")


def ask(nameserver: str, question: Callable[[AdminClient], Awaitable[T]]) -> T:
    """Return what `question` finds out.

    Raises:
        TernError: As it does.
    """

    async def main() -> T:
        async with AdminClient(ClientConfig(nameservers=nameserver_texts(nameserver))) as admin:
            return await question(admin)

    # The loop of all blocking clients: a notebook has one of its own in the present thread.
    return shared_loop_thread().run(main())


def check_topics(nameserver: str, topics: Sequence[str]) -> None:
    """Make sure that a NameServer answers and that topics exist.

    Raises:
        IllegalName: A name cannot be a topic's.
        TopicNotFound: One is on no broker.
        TransportError: No NameServer answers.
    """
    for topic in topics:
        check_topic(topic)
    there = set(ask(nameserver, lambda admin: admin.topics()))
    for topic in topics:
        if topic not in there:
            raise refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic {topic!r} is on no broker")
