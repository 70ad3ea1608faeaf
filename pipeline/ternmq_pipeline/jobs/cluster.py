"""What jobs ask of a cluster before they start Spark, so that a mistake is told at once."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeVar

from ternmq_client.admin import AdminClient
from ternmq_client.blocking import shared_loop_thread
from ternmq_client.descriptions import require_all
from ternmq_model.errors import TernError, refusal
from ternmq_model.names import check_topic
from ternmq_model.offsets import QueueOffset
from ternmq_model.response_code import ResponseCode
from ternmq_pipeline.cluster.view import open_cluster_view
from ternmq_pipeline.offsets import EARLIEST, Stretch, offsets_from_json, offsets_text
from ternmq_pipeline.options import read_options

T = TypeVar("T")

SAMPLE: Final = 1_000


def ask(nameserver: str, question: Callable[[AdminClient], Awaitable[T]]) -> T:
    """Return what `question` finds out.

    Raises:
        TernError: As it does.
    """

    async def main() -> T:
        async with AdminClient(nameserver=nameserver) as admin:
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


def mean_bytes(source: Mapping[str, str]) -> int:
    """Return how long records are in the log on average: the newest ones, up to 1,000 of a queue.

    0 = there is none, or a broker does not tell.

    Args:
        source: The options of a source that would read them.

    Raises:
        UsageError: An option cannot be.
    """
    options = read_options({**source, "fetchOffset.numRetries": "0"})
    assert options.topics is not None
    try:
        with open_cluster_view(options) as view:
            newest = [
                Stretch(queue, QueueOffset(max(begin, end - SAMPLE)), end)
                for queue, (begin, end) in view.snapshot(options.topics).ranges.items()
                if end > begin
            ]
            measured = view.measure([(each, 0) for each in newest])
    except TernError:
        return 0
    counted = sum(one.end - each.begin for each, one in zip(newest, measured, strict=True))
    return sum(one.bytes for one in measured) // max(1, counted)


def going_on(nameserver: str, topic: str, committed: str) -> str:
    """Return where a stream goes on in each queue of its topic, as the source's startingOffsets.

    Args:
        nameserver: Of the cluster that has it.
        topic: The one that it reads.
        committed: Where it has been, from `committed_offsets`; queues may have come since then.

    Raises:
        TopicNotFound: It is on no broker.
        TransportError: No NameServer answers, or a broker does not.
    """
    offsets = offsets_from_json(committed)
    described = ask(nameserver, lambda admin: admin.describe_topic(topic))
    require_all(described.unreachable)
    return offsets_text({one.queue: offsets.get(one.queue, EARLIEST) for one in described.queues})
