from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ternmq_client.admin.descriptions import QueueStatus, TopicDescription
from ternmq_consumer.offsets.offset_lookup import QueueRange
from ternmq_model.errors import (
    IllegalName,
    TernError,
    TopicNotFound,
    TransportError,
    UsageError,
    refusal,
)
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_pipeline.jobs import cluster_queries
from ternmq_pipeline.jobs.cluster_queries import (
    JobCluster,
    mean_record_bytes,
)
from ternmq_pipeline.offsets import EARLIEST, OffsetRange, offsets_text
from ternmq_pipeline.planning.admission import RangeSize
from ternmq_pipeline.planning.snapshot import ClusterSnapshot


class Admin:
    """A cluster with topics A and B, the former with three queues."""

    async def brokers(self) -> list[str]:
        return ["a"]

    async def topics(self) -> list[str]:
        return ["A", "B"]

    async def describe_topic(self, topic: str) -> TopicDescription:
        queues = [QueueStatus(MessageQueue(topic, "a", queue), 0, 9, 0) for queue in range(3)]
        return TopicDescription(topic, (), tuple(queues))


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the NameServers that were asked; `Admin` answers for them."""
    found: list[str] = []

    def ask(
        nameserver: str,
        question: Callable[[Any], Awaitable[object]],
        *,
        retry_timeout_s: float,
    ) -> object:
        assert retry_timeout_s == 9
        found.append(nameserver)
        asking: Any = question(Admin())
        with pytest.raises(StopIteration) as answer:
            asking.send(None)
        return answer.value.value

    monkeypatch.setattr(cluster_queries, "ask", ask)
    return found


def test_topics_are_checked_before_a_job_starts(asked: list[str]) -> None:
    JobCluster("ns:1", 9).check_topics(["B", "A"])
    with pytest.raises(TopicNotFound, match="'C' is on no broker"):
        JobCluster("ns:2", 9).check_topics(["A", "C"])
    assert asked == ["ns:1", "ns:2"]


def test_illegal_topic_is_refused_without_asking(asked: list[str]) -> None:
    with pytest.raises(IllegalName):
        JobCluster("ns:1", 9).check_topics(["A", "no topic"])
    assert asked == []


def test_stream_goes_on_where_it_was_and_begins_with_the_first_message_of_new_queues() -> None:
    first, second, new = (MessageQueue("A", "a", queue_id) for queue_id in range(3))
    committed = {first: QueueOffset(5), second: QueueOffset(0)}
    expected = offsets_text(committed | {new: EARLIEST})
    assert JobCluster("ns:1", 9).resume_offsets("A", offsets_text(committed)) == expected


@pytest.mark.parametrize("seconds", [0.5, 86_401, float("nan")])
def test_waiting_time_out_of_bounds_is_refused(seconds: float) -> None:
    with pytest.raises(UsageError, match="retry_timeout_s="):
        JobCluster("ns:1", seconds)
    options = JobCluster("ns:1", 90).options
    assert options == {"nameserver": "ns:1", "retryTimeout": "90.000s"}


class View:
    """A queue of 3 messages, one that is empty, and one of 5,000 whose newest are larger."""

    queues = tuple(MessageQueue("A", "a", queue_id) for queue_id in range(3))
    failure: TernError | None = None

    def __enter__(self) -> "View":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def snapshot(self, _: object) -> ClusterSnapshot:
        if self.failure is not None:
            raise self.failure
        ends = (3, 0, 5_000)
        ranges = {
            queue: QueueRange(QueueOffset(0), QueueOffset(end))
            for queue, end in zip(self.queues, ends, strict=True)
        }
        return ClusterSnapshot(ranges)

    def measure(self, asked: list[tuple[OffsetRange, int]]) -> list[RangeSize]:
        (few, _), (many, _) = asked
        assert (few.messages, many.begin, many.end) == (3, 4_000, 5_000)
        return [RangeSize(few.end, 30), RangeSize(QueueOffset(4_097), 9_970)]


def test_mean_size_is_that_of_the_newest_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    view = View()

    def opened(_: object) -> View:
        return view

    monkeypatch.setattr(cluster_queries, "open_cluster_reader", opened)
    source = {"nameserver": "127.0.0.1:1", "subscribe": "A"}
    assert mean_record_bytes(source) == 10_000 // 100
    view.failure = refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "older")
    assert mean_record_bytes(source) == 0
    view.failure = TransportError("away")
    with pytest.raises(TransportError):
        mean_record_bytes(source)
    with pytest.raises(UsageError, match="no regular expression"):
        mean_record_bytes({"nameserver": "127.0.0.1:1", "subscribePattern": "("})
