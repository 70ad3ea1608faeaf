"""Queries of jobs to a cluster, mostly before Spark starts, so that mistakes are early errors."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.admin.descriptions import require_all
from ternmq_client.blocking_client import shared_loop_thread
from ternmq_client.config import nameserver_texts
from ternmq_client.retry_timeout import RETRY_TIMEOUT, RetryTimeout, nobody_registered
from ternmq_model.errors import TernError, TransportError, UsageError, refusal
from ternmq_model.names import check_topic
from ternmq_model.offsets import QueueOffset
from ternmq_model.response_code import ResponseCode
from ternmq_pipeline.cluster.blocking_reader import open_cluster_reader
from ternmq_pipeline.jobs.driver.interruption import ended_by_signals
from ternmq_pipeline.offsets import EARLIEST, OffsetRange, offsets_from_json, offsets_text
from ternmq_pipeline.options.option_map import (
    RETRY_TIMEOUT_S_MAX,
    RETRY_TIMEOUT_S_MIN,
)
from ternmq_pipeline.options.source_options import read_options
from ternmq_remoting.system_environment import system_environment

T = TypeVar("T")

SAMPLE: Final = 1_000


def ask(
    nameserver: str,
    question: Callable[[AdminClient], Awaitable[T]],
    *,
    retry_timeout_s: float = 0.0,
) -> T:
    """Return the result of `question`. Ctrl-C and SIGTERM raise KeyboardInterrupt.

    Args:
        nameserver: `HOST:PORT`; several separated by commas.
        question: Coroutine function, repeated after failures. See `ternmq_client.retry_timeout`.
        retry_timeout_s: Time of the retries, s; 0 = no retries.

    Raises:
        TernError: The last error of `question`.
    """

    async def main() -> T:
        async with (
            system_environment() as env,
            AdminClient(nameserver=nameserver, env=env) as admin,
        ):
            retry_timeout = RetryTimeout(env, retry_timeout_s)
            while True:
                try:
                    return await question(admin)
                except TernError as error:
                    failure = error
                await retry_timeout.pause(failure)

    # The loop of all blocking clients is used, since a notebook has a loop in this thread.
    with ended_by_signals():
        return shared_loop_thread().run(main())


@dataclass(frozen=True, slots=True)
class JobCluster:
    """Cluster that a job reads or writes, and the time limit of its answers.

    Args:
        nameserver: `HOST:PORT`; several separated by commas.
        retry_timeout_s: Time without an answer after which the job fails, s.

    Raises:
        UsageError: The time limit is out of bounds.
    """

    nameserver: str
    retry_timeout_s: float

    def __post_init__(self) -> None:
        if not RETRY_TIMEOUT_S_MIN <= self.retry_timeout_s <= RETRY_TIMEOUT_S_MAX:
            bounds = f"from {RETRY_TIMEOUT_S_MIN:g} to {RETRY_TIMEOUT_S_MAX:g}"
            raise UsageError(f"retry_timeout_s={self.retry_timeout_s}: {bounds}")

    @property
    def options(self) -> dict[str, str]:
        """Options of source and sink that name the cluster and the time limit."""
        return {"nameserver": self.nameserver, RETRY_TIMEOUT: f"{self.retry_timeout_s:.3f}s"}

    def ask(self, question: Callable[[AdminClient], Awaitable[T]]) -> T:
        """Return the result of `question`, with retries up to the time limit."""
        return ask(self.nameserver, question, retry_timeout_s=self.retry_timeout_s)

    def check_topics(self, topics: Sequence[str]) -> None:
        """Check that a NameServer answers and that topics exist.

        Raises:
            IllegalName: A name is illegal for a topic.
            TopicNotFound: A topic is on no broker.
            TransportError: No NameServer answers, or none knows a broker.
        """
        for topic in topics:
            check_topic(topic)

        async def question(admin: AdminClient) -> None:
            if not await admin.brokers():
                raise nobody_registered(nameserver_texts(self.nameserver))
            there = set(await admin.topics())
            for topic in topics:
                if topic not in there:
                    raise refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic {topic!r} is on no broker")

        self.ask(question)

    def resume_offsets(self, topic: str, committed: str) -> str:
        """Return the next offset of each queue of a topic, as the option startingOffsets.

        Args:
            topic: Topic of the job.
            committed: Offsets from `committed_offsets`; queues that they lack are new.

        Raises:
            TopicNotFound: The topic is on no broker.
            TransportError: No NameServer answers, or a broker does not.
        """
        offsets = offsets_from_json(committed)

        async def question(admin: AdminClient) -> str:
            described = await admin.describe_topic(topic)
            require_all(described.unreachable)
            queues = [one.queue for one in described.queues]
            return offsets_text({queue: offsets.get(queue, EARLIEST) for queue in queues})

        return self.ask(question)


def mean_record_bytes(source: Mapping[str, str]) -> int:
    """Return the mean length of the newest records, up to 1,000 of each queue, bytes.

    0 = there is no record, or a broker does not measure.

    Args:
        source: Options of a source that reads the records.

    Raises:
        UsageError: An option is illegal.
        TransportError: No NameServer answers, or a broker does not, for `retryTimeout`.
    """
    options = read_options(source)
    assert options.topics is not None
    try:
        with ended_by_signals(), open_cluster_reader(options) as reader:
            newest = [
                OffsetRange(queue, QueueOffset(max(begin, end - SAMPLE)), end)
                for queue, (begin, end) in reader.snapshot(options.topics).ranges.items()
                if end > begin
            ]
            measured = reader.measure([(each, 0) for each in newest])
    except TransportError:
        raise
    except TernError:
        return 0
    counted = sum(one.end - each.begin for each, one in zip(newest, measured, strict=True))
    return sum(one.bytes for one in measured) // max(1, counted)
