from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import numpy as np
import pyarrow as pa
import pytest

from ternmq_consumer.scan import PulledBatch, ScannedBatch, ScanOptions
from ternmq_model.errors import TernError
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_pipeline.offsets import OffsetRange
from ternmq_pipeline.options.source_options import read_options
from ternmq_pipeline.planning.data_loss import DataLost
from ternmq_pipeline.source.pushdown import RowFilter
from ternmq_pipeline.source.tasks import fetcher
from ternmq_pipeline.source.tasks.fetcher import fetch_range, fetch_request, joined
from tests.support.records import record
from tests.support.scripted_scans import numbered

ItemT = TypeVar("ItemT")
RANGE = OffsetRange(MessageQueue("T", "broker-a", 0), QueueOffset(0), QueueOffset(30), 700)
SCHEMA = pa.schema([pa.field("queueOffset", pa.int64())])


class Opened(Generic[ItemT]):
    """What a scanner gives, and whether it was given up."""

    def __init__(self, items: Sequence[ItemT]) -> None:
        self._items = iter(items)
        self.is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.is_closed = True

    def __iter__(self) -> Iterator[ItemT]:
        return self._items


class Scanner:
    """A blocking scanner with one range of three batches."""

    def __init__(self) -> None:
        schema = SCHEMA.serialize().to_pybytes()
        batches = [
            ScannedBatch(schema, rows(begin), begin + 10, damaged=0) for begin in (0, 10, 20)
        ]
        self.opened = Opened([ScannedBatch(schema, b"", 0, damaged=0), *batches])
        self.options: ScanOptions | None = None

    def scan(
        self, queue: MessageQueue, begin: int, end: int, options: ScanOptions
    ) -> Opened[ScannedBatch]:
        assert OffsetRange(queue, QueueOffset(begin), QueueOffset(end), 700) == RANGE
        self.options = options
        return self.opened


def rows(begin: int) -> bytes:
    columns = {"queueOffset": list(range(begin, begin + 10))}
    return pa.RecordBatch.from_pydict(columns, schema=SCHEMA).serialize().to_pybytes()


def share(monkeypatch: pytest.MonkeyPatch, scanner: object) -> None:
    """Let tasks read by this one."""

    def shared(_: str) -> object:
        return scanner

    monkeypatch.setattr(fetcher, "shared_scanner", shared)


@pytest.fixture
def scanner(monkeypatch: pytest.MonkeyPatch) -> Scanner:
    found = Scanner()
    share(monkeypatch, found)
    return found


def fetched(row_filter: RowFilter, **options: str) -> Iterator[Any]:
    chosen = read_options({"subscribe": "T"} | options)
    return fetch_range(RANGE, fetch_request(chosen, row_filter, "T", ("queueOffset",), 7))


def test_pushed_filters_and_options_reach_the_broker(scanner: Scanner) -> None:
    row_filter = RowFilter(stored_from_ms=1, stored_before_ms=2, tags=("a", "b"), keys=("k",))
    batches = list(fetched(row_filter, failOnDataLoss="false", retryTimeout="5s"))
    assert [offset for one in batches for offset in one.column(0).to_pylist()] == list(range(30))
    asked = scanner.options
    assert asked is not None
    assert asked.subscription is not None
    assert asked.subscription.tags == {"a", "b"}
    assert (asked.stored_from_ms, asked.stored_before_ms, asked.keys) == (1, 2, ("k",))
    assert (asked.columns, asked.batch_rows_max) == (("queueOffset",), 7)
    assert (asked.skips_damaged, asked.retry_timeout_s) == (True, 5.0)
    assert asked.created_log_offset == 700
    assert scanner.opened.is_closed


def test_closed_iterator_closes_the_stream(scanner: Scanner) -> None:
    batches: Any = fetched(RowFilter())
    assert next(batches).num_rows == 10
    assert not scanner.opened.is_closed
    batches.close()
    assert scanner.opened.is_closed


def piece(*sizes: int, next_offset: int, damaged: int = 0) -> PulledBatch:
    return PulledBatch(b"x" * sum(sizes), np.array(sizes, "<i4").tobytes(), next_offset, damaged)


def test_damaged_messages_skipped_by_a_broker_are_still_an_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Puller:
        def pull(self, *_offset_range: object, **_options: object) -> Opened[PulledBatch]:
            return Opened([piece(next_offset=10), piece(next_offset=30, damaged=2)])

    share(monkeypatch, Puller())
    told = "topic T, broker broker-a, queue 0: of offsets 0 to 29, 2 are damaged"
    with pytest.raises(DataLost, match=told):
        list(fetched(RowFilter(), scan="never"))
    assert list(fetched(RowFilter(), scan="never", failOnDataLoss="false")) == []
    assert "before=30 count=2" in caplog.text


def stored(number: int, at_ms: int, tag: str, keys: str) -> bytes:
    """Return a record as it lies on disk."""
    data = numbered(record("T", 0, properties={"TAGS": tag, "KEYS": keys}), number)
    return data[:56] + at_ms.to_bytes(8, "big") + data[64:]


@pytest.mark.parametrize(
    ("row_filter", "left"),
    [
        (RowFilter(), [0, 1, 2, 3, 4]),
        (RowFilter(tags=("Aa",)), [0, 2, 4]),
        (RowFilter(keys=("k", "other")), [0, 3, 4]),
        (RowFilter(stored_from_ms=1002), [2, 3, 4]),
        (RowFilter(stored_before_ms=1002), [0, 1]),
        (RowFilter(stored_from_ms=1001, stored_before_ms=1004, tags=("Aa",), keys=("j",)), [2]),
    ],
)
def test_pulled_records_are_filtered_here_where_the_broker_does_not(
    monkeypatch: pytest.MonkeyPatch, row_filter: RowFilter, left: list[int]
) -> None:
    # The codes of both tags are equal: their broker gives all of these.
    records = [
        stored(number, 1000 + number, "BB" if number % 2 else "Aa", keys)
        for number, keys in enumerate(("j k", "", "j", "k", "k k"))
    ]
    lengths = np.array([len(one) for one in records], "<i4").tobytes()

    class Puller:
        def pull(self, *_offset_range: object, **_options: object) -> Opened[PulledBatch]:
            return Opened([PulledBatch(b"".join(records), lengths, 30, 0)])

    share(monkeypatch, Puller())
    batches = list(fetched(row_filter, scan="never"))
    assert [number for one in batches for number in one["queueOffset"].to_pylist()] == left


def test_small_pieces_are_joined_up_to_a_row_limit() -> None:
    pieces = [piece(5, next_offset=1), piece(6, 7, next_offset=3), piece(8, next_offset=4)]
    assert list(joined(pieces, 3)) == [piece(5, 6, 7, next_offset=3), piece(8, next_offset=4)]
    assert list(joined([], 3)) == []


def test_rows_before_a_failure_are_given_first() -> None:
    def failing() -> Iterator[PulledBatch]:
        yield piece(5, next_offset=1)
        raise TernError("gone")

    found: list[PulledBatch] = []
    with pytest.raises(TernError, match="gone"):
        found.extend(joined(failing(), 3))
    assert found == [piece(5, next_offset=1)]
