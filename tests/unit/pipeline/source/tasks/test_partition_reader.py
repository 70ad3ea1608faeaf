import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import BinaryType, StringType, StructType

from ternmq_model.errors import (
    RangeLost,
    RefusedError,
    TopicNotFound,
    Unreachable,
    UsageError,
    created_again,
)
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_pipeline.offsets import OffsetRange
from ternmq_pipeline.options.source_options import ReadOptions, read_options
from ternmq_pipeline.options.topics import Subscribe
from ternmq_pipeline.planning.data_loss import DataLost
from ternmq_pipeline.planning.snapshot import ClusterSnapshot
from ternmq_pipeline.source.pushdown import ALL_ROWS, RowFilter
from ternmq_pipeline.source.tasks import fetcher
from ternmq_pipeline.source.tasks.fetcher import (
    FetchedRows,
    FetchRequest,
    fetch_range,
    fetch_request,
)
from ternmq_pipeline.source.tasks.partition_reader import (
    ROWS_SETTING,
    PartitionReader,
    rows_of_a_batch,
)
from tests.support.planning import snapshot

QUEUE = MessageQueue("T", "broker-a", 3)
RANGE = OffsetRange(QUEUE, QueueOffset(10), QueueOffset(20))


def batch(*offsets: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"queueOffset": pa.array(offsets, pa.int64())})


def request(**options: str) -> FetchRequest:
    chosen = read_options({"subscribe": "T"} | options)
    return fetch_request(chosen, ALL_ROWS, "T", ("queueOffset",), 100)


def lost(*, wanted_offset: int, first: int, end: int | None = None, remark: str = "") -> RangeLost:
    return RangeLost(
        topic="T", broker_name="broker-a", queue_id=3,
        wanted_offset=wanted_offset, first_offset=first, end_offset=end, topic_remark=remark,
    )  # fmt: skip


class Brokers:
    """Answers questions for ranges as it was told to, and remembers them."""

    def __init__(self, *answers: Sequence[FetchedRows | Exception]) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[int, int]] = []

    def __call__(self, offset_range: OffsetRange, _: FetchRequest) -> Iterator[FetchedRows]:
        self.asked.append((offset_range.begin, offset_range.end))
        for answer in self._answers.pop(0):
            if isinstance(answer, Exception):
                raise answer
            yield answer


def offsets(batches: Iterator[Any]) -> list[int]:
    return [offset for one in batches for offset in one.column(0).to_pylist()]


def test_range_without_its_beginning_is_an_error_naming_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetcher, "_scanned", Brokers([lost(wanted_offset=10, first=14)]))
    with pytest.raises(DataLost, match="queue 3: offsets 10 to 13 are no longer kept"):
        offsets(fetch_range(RANGE, request()))


def test_range_without_its_beginning_is_read_on_when_tolerated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers = Brokers(
        [FetchedRows(batch(10, 11), 12), lost(wanted_offset=12, first=14)],
        [FetchedRows(batch(14, 15), 20)],
    )
    monkeypatch.setattr(fetcher, "_scanned", brokers)
    assert offsets(fetch_range(RANGE, request(failOnDataLoss="false"))) == [10, 11, 14, 15]
    assert brokers.asked == [(10, 20), (14, 20)]


def test_error_names_the_first_unread_offset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer: Sequence[FetchedRows | Exception] = [
        FetchedRows(batch(10, 11), 12),
        lost(wanted_offset=12, first=14),
    ]
    monkeypatch.setattr(fetcher, "_scanned", Brokers(answer))
    with pytest.raises(DataLost, match="queue 3: offsets 12 to 13 are no longer kept"):
        offsets(fetch_range(RANGE, request()))


def test_shortened_queue_is_read_to_its_end_when_tolerated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer: Sequence[FetchedRows | Exception] = [
        FetchedRows(batch(10), 11),
        lost(wanted_offset=11, first=0, end=11),
    ]
    monkeypatch.setattr(fetcher, "_scanned", Brokers(answer))
    assert offsets(fetch_range(RANGE, request(failOnDataLoss="false"))) == [10]
    monkeypatch.setattr(fetcher, "_scanned", Brokers(answer))
    with pytest.raises(DataLost, match="offset 11 is beyond its end, which is 11"):
        offsets(fetch_range(RANGE, request()))


def test_topic_created_again_is_the_reason_of_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    remark = created_again("T").remark
    answer = [lost(wanted_offset=10, first=0, end=0, remark=remark)]
    monkeypatch.setattr(fetcher, "_scanned", Brokers(answer))
    told = "queue 3: topic 'T' was deleted and created again; offset 10 was to come next"
    with pytest.raises(DataLost, match=told):
        offsets(fetch_range(RANGE, request()))


@pytest.mark.parametrize(
    ("told", "error"),
    [
        (snapshot({}, brokers=["broker-a"]), DataLost),
        (snapshot({}, brokers=["broker-b"]), Unreachable),
        (snapshot({QUEUE: (0, 20)}), None),
    ],
)
def test_unknown_topic_is_lost_when_its_broker_is_present_without_it(
    monkeypatch: pytest.MonkeyPatch, told: ClusterSnapshot, error: type[Exception] | None
) -> None:
    class View:
        def snapshot(
            self, choice: object, *, expected: Sequence[MessageQueue], brokers: Sequence[str]
        ) -> ClusterSnapshot:
            assert (choice, expected, brokers) == (Subscribe(("T",)), [QUEUE], ["broker-a"])
            return told

    def opened(options: ReadOptions) -> contextlib.AbstractContextManager[View]:
        assert options.nameservers == ("ns:1", "ns:2")
        return contextlib.nullcontext(View())

    monkeypatch.setattr("ternmq_pipeline.cluster.blocking_reader.open_cluster_reader", opened)
    unknown = TopicNotFound(ResponseCode.TOPIC_NOT_EXIST, "no broker has it")
    for lenient in (False, True):
        asked = request(nameserver="ns:1;ns:2", failOnDataLoss=str(not lenient))
        monkeypatch.setattr(
            fetcher, "_scanned", Brokers([unknown], [FetchedRows(batch(10, 11), 20)])
        )
        if error is None or (error is DataLost and lenient):
            found = [10, 11] if error is None else []
            assert offsets(fetch_range(RANGE, asked)) == found
            continue
        with pytest.raises(error):
            offsets(fetch_range(RANGE, asked))
    monkeypatch.setattr(fetcher, "_scanned", Brokers([unknown], [unknown]))
    asked = request(nameserver="ns:1;ns:2")
    with pytest.raises(error or TopicNotFound):
        offsets(fetch_range(RANGE, asked))
    if told.ranges:
        outages = Brokers(
            [FetchedRows(batch(10), 11), unknown],
            [FetchedRows(batch(11), 12), unknown],
            [FetchedRows(batch(12), 20)],
        )
        monkeypatch.setattr(fetcher, "_scanned", outages)
        assert offsets(fetch_range(RANGE, asked)) == [10, 11, 12], "each outage by itself"


def test_broker_without_scan_is_pulled_from(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = RefusedError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "no pyarrow here")
    monkeypatch.setattr(fetcher, "_scanned", Brokers([refused]))
    monkeypatch.setattr(fetcher, "_pulled", Brokers([FetchedRows(batch(10, 11), 20)]))
    assert offsets(fetch_range(RANGE, request())) == [10, 11]


def test_other_refusals_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = RefusedError(ResponseCode.SYSTEM_ERROR, "damaged")
    monkeypatch.setattr(fetcher, "_scanned", Brokers([refused]))
    with pytest.raises(RefusedError, match="damaged"):
        offsets(fetch_range(RANGE, request()))


def test_filter_option_precedes_tags_of_the_query() -> None:
    options = read_options({"subscribe": "T", "filter": "a"})
    found = fetch_request(options, RowFilter(tags=("b",)), "T", (), 1).options.subscription
    assert found is not None
    assert found.tags == {"a"}


class Task:
    def __init__(self, rows: str | None) -> None:
        self._rows = rows

    def getLocalProperty(self, name: str) -> str | None:
        assert name == ROWS_SETTING
        return self._rows


@pytest.mark.parametrize(
    ("setting", "asked", "rows"),
    [
        (None, 10_000, 10_000),
        ("7", 10_000, 7),
        ("50000", 10_000, 10_000),
        ("7", 5, 5),
        ("-1", 9, 9),
    ],
)
def test_batch_rows_stay_within_the_limits_of_spark_and_option(
    monkeypatch: pytest.MonkeyPatch, setting: str | None, asked: int, rows: int
) -> None:
    monkeypatch.setattr(TaskContext, "get", lambda: Task(setting))
    assert rows_of_a_batch(asked) == rows


def test_empty_partition_made_by_spark_has_no_rows() -> None:
    schema = StructType().add("body", BinaryType())
    reader = PartitionReader(read_options({"subscribe": "T"}), schema)
    assert list(reader.read(InputPartition(None))) == []


def test_nullable_column_cannot_be_requested_without_nulls() -> None:
    schema = StructType().add("tags", StringType(), nullable=False)
    with pytest.raises(UsageError, match="'tags' may be null"):
        PartitionReader(read_options({"subscribe": "T"}), schema)
