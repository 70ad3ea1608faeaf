import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import cast

import pytest

from ternmq_client.admin.descriptions import QueueStatus
from ternmq_consumer.scan import MeasuredRange
from ternmq_model.errors import RefusedError, refusal
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_pipeline.cluster.reader import ClusterReader
from ternmq_pipeline.jobs.cluster_report.queue_sizes import first_offsets, kept_bytes
from ternmq_pipeline.offsets import OffsetRange

FIRST, SECOND = MessageQueue("A", "a", 0), MessageQueue("B", "a", 1)


class Reader:
    """Brokers whose messages have ten bytes each, and which measure four of a queue at once."""

    def __init__(self, *, refuses: ResponseCode | None = None, stands_still: bool = False) -> None:
        self.refuses = refuses
        self.measured_max = 0 if stands_still else 4
        self.topics: set[str] = set()
        self.asked: list[list[tuple[int, int]]] = []

    async def find_brokers(self, topics: Collection[str]) -> None:
        self.topics |= set(topics)

    async def measure(self, wanted: Sequence[tuple[OffsetRange, int]]) -> list[MeasuredRange]:
        if self.refuses is not None:
            raise refusal(self.refuses, "no")
        self.asked.append([(offset_range.begin, offset_range.end) for offset_range, _ in wanted])
        ends = [min(one.end, one.begin + self.measured_max) for one, _ in wanted]
        return [
            MeasuredRange(end, 10 * (end - offset_range.begin))
            for end, (offset_range, _) in zip(ends, wanted, strict=True)
        ]

    async def offsets_at(self, times_ms: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        return {queue: at_ms // 100 for queue, at_ms in times_ms.items()}


def kept(reader: Reader, *queues: QueueStatus) -> int | None:
    return asyncio.run(kept_bytes(cast("ClusterReader", reader), queues))


def test_kept_bytes_are_summed_until_every_queue_is_measured() -> None:
    reader = Reader()
    empty = QueueStatus(MessageQueue("C", "a", 0), 7, 7, 0)
    assert kept(reader, QueueStatus(FIRST, 2, 11, 0), QueueStatus(SECOND, 0, 3, 0), empty) == 120
    assert reader.asked == [[(2, 11), (0, 3)], [(6, 11)], [(10, 11)]]
    assert reader.topics == {"A", "B"}


def test_measuring_ends_with_a_broker_that_gets_nowhere() -> None:
    assert kept(Reader(stands_still=True), QueueStatus(FIRST, 2, 11, 0)) == 0


def test_kept_bytes_are_unknown_where_a_broker_cannot_measure() -> None:
    queue = QueueStatus(FIRST, 0, 1, 0)
    assert kept(Reader(refuses=ResponseCode.REQUEST_CODE_NOT_SUPPORTED), queue) is None
    with pytest.raises(RefusedError):
        kept(Reader(refuses=ResponseCode.TOPIC_NOT_EXIST), queue)


def test_first_offsets_are_asked_of_the_brokers_of_all_topics() -> None:
    reader = Reader()
    times = {FIRST: 500, SECOND: 700}
    found = asyncio.run(first_offsets(cast("ClusterReader", reader), times))
    assert found == {FIRST: 5, SECOND: 7}
    assert reader.topics == {"A", "B"}
