"""What a batch reads, over a cluster that is a table."""

from collections.abc import Mapping
from typing import Self

import pytest

pytest.importorskip("pyspark")

from ternmq_model.errors import UsageError
from ternmq_model.queue import MessageQueue
from ternmq_pipeline.options.source_options import ReadOptions, read_options
from ternmq_pipeline.planning.data_loss import DataLost
from ternmq_pipeline.planning.partition_numbers import partition_number
from ternmq_pipeline.source import batch_plan
from ternmq_pipeline.source.batch_plan import plan_batch
from ternmq_pipeline.source.pushdown import PushedFilters
from tests.support.stream_table import Table

A0 = MessageQueue("TopicA", "broker-a", 0)
A1 = MessageQueue("TopicA", "broker-a", 1)


class View(Table):
    """The table as a block is left by which it was opened."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read(
    monkeypatch: pytest.MonkeyPatch,
    ranges: Mapping[MessageQueue, tuple[int, int]],
    pushed: PushedFilters | None = None,
    /,
    **options: str,
) -> list[tuple[MessageQueue, int, int]]:
    """Return what each task of a batch reads, of topics that were created at 700."""
    view = View(ranges)
    view.created = {(queue.topic, queue.broker_name): 700 for queue in ranges}

    def opened(_: ReadOptions) -> View:
        return view

    monkeypatch.setattr(batch_plan, "open_cluster_reader", opened)
    asked = read_options({"subscribe": "TopicA"} | options, streaming=False)
    try:
        found = plan_batch(asked, pushed or PushedFilters())
        assert {offset_range.created_log_offset for offset_range in found} <= {700}
        return [
            (offset_range.queue, offset_range.begin, offset_range.end) for offset_range in found
        ]
    finally:
        assert view.is_closed


def test_batch_reads_everything_between_its_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    ranges = {A0: (2, 8), A1: (0, 4)}
    assert read(monkeypatch, ranges) == [(A0, 2, 8), (A1, 0, 4)]
    times = {"startingTimestamp": "3", "endingTimestamp": "7"}
    assert read(monkeypatch, ranges, **times) == [(A0, 3, 7), (A1, 3, 4)]
    offsets = '{"TopicA":{"broker-a:0":5,"broker-a:1":-1}}'
    assert read(monkeypatch, ranges, endingOffsets=offsets) == [(A0, 2, 5), (A1, 0, 4)]
    pushed = PushedFilters(first=3, end=5)
    assert read(monkeypatch, ranges, pushed) == [(A0, 3, 5), (A1, 3, 4)]
    cut = [(A0, 2, 4), (A0, 4, 6), (A0, 6, 8), (A1, 0, 2), (A1, 2, 4)]
    assert read(monkeypatch, ranges, maxRecordsPerPartition="2") == cut


def test_batch_that_ends_before_it_begins_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    edges = {"startingTimestamp": "3", "endingOffsets": '{"TopicA":{"broker-a:0":2}}'}
    with pytest.raises(UsageError, match="begins with offset 3 and ends before 2"):
        read(monkeypatch, {A0: (0, 8)}, **edges)


def test_expired_offsets_are_an_error_or_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ranges, options = {A0: (2, 8)}, {"startingOffsets": '{"TopicA":{"broker-a:0":0}}'}
    with pytest.raises(DataLost, match="offsets 0 to 1 are no longer kept"):
        read(monkeypatch, ranges, **options)
    assert read(monkeypatch, ranges, failOnDataLoss="false", **options) == [(A0, 2, 8)]
    assert (
        "messages are gone reason='topic TopicA, broker broker-a, queue 0: offsets 0 to 1"
        in caplog.text
    )


def test_brokers_kafkas_columns_cannot_tell_apart_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted = partition_number("broker-a", 0)
    names = (f"broker-{number}" for number in range(1 << 20))
    twin = next(name for name in names if partition_number(name, 0) == wanted)
    ranges = {A0: (0, 1), MessageQueue("TopicA", twin, 0): (0, 1)}
    assert len(read(monkeypatch, ranges)) == 2
    with pytest.raises(UsageError, match="would have the same partition numbers"):
        read(monkeypatch, ranges, view="kafka")
