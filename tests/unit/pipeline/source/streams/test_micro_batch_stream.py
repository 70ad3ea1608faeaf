"""What a stream reads next, over a cluster that is a table."""

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from ternmq_model.errors import Unreachable, UsageError
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_pipeline.offsets import OffsetRange, offsets_from_json, offsets_to_json
from ternmq_pipeline.planning.data_loss import DataLost
from ternmq_pipeline.source.streams.checkpoint_offsets import NEW
from ternmq_pipeline.source.streams.micro_batch_stream import BatchLimit
from tests.support.stream_table import RestingClock, Table, asked, opened, read_to_the_end

A0 = MessageQueue("TopicA", "broker-a", 0)
A1 = MessageQueue("TopicA", "broker-a", 1)
B0 = MessageQueue("TopicA", "broker-b", 0)


def end_of(told: Mapping[str, Any]) -> dict[MessageQueue, QueueOffset]:
    return offsets_from_json(json.loads(json.dumps(told)))


ALL = BatchLimit(all_available=True)
OWN = BatchLimit()


def test_first_batch_exists_even_when_empty_and_records_its_start() -> None:
    view = Table({A0: (0, 7), A1: (0, 3)})
    progress = opened(view, startingOffsets="latest")
    end = progress.next_end(NEW, OWN)
    assert end_of(end) == {A0: 7, A1: 3}
    assert progress.offset_ranges(NEW, end) == []
    view.ranges[A0] = (0, 9)
    again = opened(view, startingOffsets="latest")
    assert again.offset_ranges(NEW, end) == []
    assert again.next_end(end, OWN) == offsets_to_json({A0: QueueOffset(9), A1: QueueOffset(3)})


def test_repeated_first_batch_reads_the_same_whatever_has_come_since() -> None:
    view = Table({A0: (0, 7)})
    first = opened(view, startingOffsets='{"TopicA":{"broker-a:0":2}}')
    end = first.next_end(NEW, OWN)
    wanted = [OffsetRange(A0, QueueOffset(2), QueueOffset(7))]
    assert first.offset_ranges(NEW, end) == wanted
    view.ranges |= {A0: (0, 20), A1: (0, 4)}
    repeated = opened(view, startingOffsets='{"TopicA":{"broker-a:0":2}}')
    assert repeated.offset_ranges(NEW, end) == wanted


def test_unchanged_end_equals_its_start_word_for_word() -> None:
    progress = opened(Table({A0: (0, 7)}))
    end = progress.next_end(NEW, ALL)
    assert progress.next_end(end, ALL) == end
    later = offsets_to_json({A0: QueueOffset(7)})
    assert progress.next_end(later, OWN) == later


def test_options_limit_a_batch_unless_spark_demands_everything() -> None:
    view = Table({A0: (0, 100), A1: (0, 50)})
    progress = opened(view, maxOffsetsPerTrigger="30")
    end = progress.next_end(NEW, BatchLimit(offsets_max=30))
    assert sum(end_of(end).values()) == 30
    assert sum(end_of(progress.next_end(end, BatchLimit(offsets_max=6))).values()) == 36
    assert end_of(progress.next_end(end, ALL)) == {A0: 100, A1: 50}


def test_bytes_limit_a_batch() -> None:
    progress = opened(Table({A0: (0, 100)}), maxBytesPerTrigger="1000")
    assert end_of(progress.next_end(NEW, BatchLimit(bytes_max=1000)))[A0] <= 10


def test_batch_waits_for_enough_messages_until_the_longest_delay() -> None:
    clock, view = RestingClock(), Table({A0: (0, 0)})
    options = {"minOffsetsPerTrigger": "10", "maxTriggerDelay": "20s"}
    progress = opened(view, clock, **options)
    start = progress.next_end(NEW, OWN)
    view.ranges[A0] = (0, 9)
    clock.rest(19.9)
    assert progress.next_end(start, OWN) == start
    clock.rest(0.2)
    start = progress.next_end(start, OWN)
    assert end_of(start) == {A0: 9}
    view.ranges[A0] = (0, 18)
    assert progress.next_end(start, OWN) == start
    view.ranges[A0] = (0, 19)
    assert end_of(progress.next_end(start, OWN)) == {A0: 19}


def test_available_now_run_ends_at_its_targets_despite_changes() -> None:
    view = Table({A0: (0, 10), A1: (0, 10)})
    progress = opened(view, maxOffsetsPerTrigger="6", failOnDataLoss="false")
    progress.aim_at_present()
    view.ranges |= {A0: (0, 90), B0: (0, 5)}
    view.brokers.add("broker-b")
    end = progress.next_end(NEW, OWN)
    batches = 1
    while (following := progress.next_end(end, OWN)) != end:
        end = following
        batches += 1
        if batches == 2:
            view.ranges[A0] = (8, 90)
        if batches == 3:
            del view.ranges[A1]
        assert batches < 10
    assert end_of(end)[A0] == 10
    assert A1 not in end_of(end)
    assert end_of(end).get(B0, 0) == 0


def test_new_queue_in_mid_run_is_read_from_its_beginning() -> None:
    view = Table({A0: (0, 10)})
    progress = opened(view, startingOffsets="latest")
    end = progress.next_end(NEW, OWN)
    view.ranges[A1] = (3, 8)
    read: list[OffsetRange] = []
    for _ in range(3):
        following = progress.next_end(end, OWN)
        read += progress.offset_ranges(end, following)
        end = following
    assert read == [OffsetRange(A1, QueueOffset(3), QueueOffset(8))]


@pytest.mark.parametrize(
    ("ranges", "said"),
    [
        ({A0: (5, 9), A1: (0, 9)}, ["TopicA", "broker-a", "queue 0", "offsets 2 to 4"]),
        ({A1: (0, 9)}, ["TopicA", "broker-a", "queue 0", "does not exist", "offset 2"]),
        ({A0: (0, 1), A1: (0, 9)}, ["queue 0", "offset 2 is beyond its end"]),
    ],
)
def test_lost_messages_are_an_error_naming_queue_and_offsets_by_default(
    ranges: dict[MessageQueue, tuple[int, int]],
    said: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    start = offsets_to_json({A0: QueueOffset(2), A1: QueueOffset(0)})
    with pytest.raises(DataLost) as caught:
        opened(Table(ranges)).next_end(start, OWN)
    assert all(text in str(caught.value) for text in [*said, "failOnDataLoss"])
    going_on = opened(Table(ranges), failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        end = going_on.next_end(start, OWN)
        going_on.offset_ranges(start, end)
        assert end_of(end)[A1] == 9
        assert going_on.next_end(end, OWN) == end
    assert all(text in caplog.text for text in said)


def test_lost_beginning_of_a_new_queue_is_an_error_too() -> None:
    view = Table({A0: (0, 9)})
    progress = opened(view)
    start = progress.next_end(NEW, ALL)
    view.ranges[A1] = (3, 8)
    end = progress.next_end(start, ALL)
    wanted = [OffsetRange(A1, QueueOffset(3), QueueOffset(8))]
    assert progress.offset_ranges(start, end) == opened(view).offset_ranges(start, end) == wanted
    view.ranges[A1] = (5, 8)
    with pytest.raises(DataLost, match="queue 1: offsets 3 to 4"):
        opened(view).offset_ranges(start, end)


def test_queue_lost_and_regained_by_its_topic_is_read_on() -> None:
    view = Table({A0: (0, 7), A1: (0, 5)})
    _, end = read_to_the_end(view, NEW)
    view.ranges = {A0: (0, 9)}
    with pytest.raises(DataLost, match="queue 1: it does not exist any more; offset 5"):
        opened(view).next_end(end, OWN)
    read, end = read_to_the_end(view, end, failOnDataLoss="false")
    assert read == [OffsetRange(A0, QueueOffset(7), QueueOffset(9))]
    assert (end_of(end), end["parked"]) == ({A0: 9}, {"TopicA": {"broker-a:1": 5}})
    view.ranges[A0] = (0, 12)
    read, end = read_to_the_end(view, end)
    assert read == [OffsetRange(A0, QueueOffset(9), QueueOffset(12))]
    view.ranges[A1] = (0, 5)
    assert read_to_the_end(view, end) == ([], end)
    view.ranges[A1] = (0, 9)
    read, end = read_to_the_end(view, end, maxOffsetsPerTrigger="3")
    assert [(offset_range.begin, offset_range.end) for offset_range in read] == [(5, 8), (8, 9)]
    assert (end_of(end), "parked" in end) == ({A0: 12, A1: 9}, False)


def test_queue_is_forgotten_with_its_topic_or_its_brokers_store() -> None:
    view = Table({A0: (0, 7), A1: (0, 5), B0: (0, 1)})
    view.stores = {"broker-a": "first"}
    _, whole = read_to_the_end(view, NEW)
    del view.ranges[A1]
    _, end = read_to_the_end(view, whole, failOnDataLoss="false")
    del view.ranges[A0]
    _, without = read_to_the_end(view, end, failOnDataLoss="false")
    assert (end_of(without), "parked" in without) == ({B0: 1}, False)
    view.ranges |= {A0: (0, 7), A1: (0, 2)}
    view.stores = {"broker-a": "second"}
    read, anew = read_to_the_end(view, end, failOnDataLoss="false")
    assert sorted(read) == [
        OffsetRange(A0, QueueOffset(0), QueueOffset(7)),
        OffsetRange(A1, QueueOffset(0), QueueOffset(2)),
    ]
    assert end_of(anew) == {A0: 7, A1: 2, B0: 1}


@pytest.mark.parametrize("options", [{}, {"maxOffsetsPerTrigger": "4"}])
@pytest.mark.parametrize("messages", [3, 7, 12])
def test_broker_with_another_store_is_a_loss_and_read_from_its_beginning(
    options: dict[str, str], messages: int, caplog: pytest.LogCaptureFixture
) -> None:
    view = Table({A0: (0, 7), B0: (0, 2)})
    view.stores = {"broker-a": "first", "broker-b": "other"}
    _, end = read_to_the_end(view, NEW, **options)
    assert end["stores"] == {"broker-a": "first", "broker-b": "other"}
    view.ranges[A0] = (0, messages)
    view.stores["broker-a"] = "second"
    with pytest.raises(DataLost, match="broker broker-a, queue 0: its broker holds another store"):
        opened(view, None, **options).next_end(end, OWN)
    with caplog.at_level(logging.WARNING):
        read, end = read_to_the_end(view, end, failOnDataLoss="false", **options)
    assert "offset 7 was to come next" in caplog.text
    assert read[0].begin == 0
    assert read[-1].end == messages
    assert sum(offset_range.messages for offset_range in read) == messages
    assert end["stores"] == {"broker-a": "second", "broker-b": "other"}
    assert opened(view, None, **options).next_end(end, OWN) == end


def test_batch_is_not_repeated_from_another_store() -> None:
    view = Table({A0: (0, 7), B0: (0, 2)})
    view.stores = {"broker-a": "first", "broker-b": "other"}
    end = opened(view).next_end(NEW, OWN)
    view.stores["broker-a"] = "second"
    with pytest.raises(DataLost, match=r"another store .* offset 7"):
        opened(view).offset_ranges(NEW, end)
    found = opened(view, failOnDataLoss="false").offset_ranges(NEW, end)
    assert found == [OffsetRange(B0, QueueOffset(0), QueueOffset(2))]


def test_store_ids_are_kept_while_a_broker_is_away_or_silent() -> None:
    view = Table({A0: (0, 7), B0: (0, 2)})
    view.stores = {"broker-a": "first", "broker-b": "other"}
    _, end = read_to_the_end(view, NEW, failOnDataLoss="false")
    view.brokers.discard("broker-b")
    del view.stores["broker-a"]
    view.ranges[A0] = (0, 9)
    read, end = read_to_the_end(view, end, failOnDataLoss="false")
    assert read == [OffsetRange(A0, QueueOffset(7), QueueOffset(9))]
    assert end["stores"] == {"broker-a": "first", "broker-b": "other"}


def test_messages_lost_since_the_batch_was_planned_are_an_error_too() -> None:
    view = Table({A0: (0, 9)})
    progress = opened(view)
    end = progress.next_end(NEW, OWN)
    view.ranges[A0] = (4, 9)
    with pytest.raises(DataLost, match="offsets 0 to 3"):
        opened(view).offset_ranges(NEW, end)


def test_stream_waits_for_the_brokers_of_its_queues_unless_it_may_lose_them() -> None:
    view = Table({A0: (0, 4), B0: (0, 4)})
    start = offsets_to_json({A0: QueueOffset(2), B0: QueueOffset(2)})
    end = opened(view).next_end(start, OWN)
    assert view.awaited.pop() == frozenset({"broker-a", "broker-b"})
    for fails in ("true", "false"):
        opened(view, failOnDataLoss=fails).next_end(NEW, OWN)
        assert view.awaited.pop() is None, "a query begins with every broker's queues"
    opened(view, failOnDataLoss="false").next_end(start, OWN)
    assert view.awaited.pop() == frozenset()
    # A batch that is repeated must read what it was to read.
    opened(view, failOnDataLoss="false").offset_ranges(start, end)
    assert view.awaited.pop() == frozenset({"broker-a", "broker-b"})


def test_broker_that_did_not_come_back_is_named() -> None:
    view = Table({A0: (0, 4), B0: (0, 4)})
    start = offsets_to_json({A0: QueueOffset(2), B0: QueueOffset(2)})
    end = opened(view).next_end(start, OWN)
    view.brokers.discard("broker-b")
    with pytest.raises(DataLost, match="broker-b, queue 0: its broker is no longer registered"):
        opened(view).next_end(start, OWN)
    gone = opened(view, failOnDataLoss="false")
    assert [offset_range.queue for offset_range in gone.offset_ranges(start, end)] == [A0]


def test_available_now_run_reads_brokers_absent_at_its_start() -> None:
    view = Table({A0: (0, 4), B0: (0, 4)})
    start = offsets_to_json({A0: QueueOffset(2), B0: QueueOffset(2)})
    view.brokers.discard("broker-b")
    progress = opened(view)
    progress.aim_at_present()
    view.brokers.add("broker-b")
    end = progress.next_end(start, ALL)
    assert end_of(end) == {A0: 4, B0: 4}
    view.ranges |= {A0: (0, 9), B0: (0, 9)}
    assert progress.next_end(end, ALL) == end


def test_permanent_errors_are_not_retried() -> None:
    clock, view = RestingClock(), Table({A0: (0, 4)})
    view.errors = [UsageError("no")]
    with pytest.raises(UsageError, match="no"):
        opened(view, clock).next_end(NEW, OWN)
    assert view.looks == 1


def test_times_begin_at_the_first_message_not_older() -> None:
    view = Table({A0: (0, 20), A1: (5, 9)})
    end = opened(view, startingTimestamp="7").next_end(NEW, OWN)
    assert end["from"] == {"TopicA": {"broker-a:0": 7, "broker-a:1": 7}}
    with pytest.raises(UsageError, match="startingTimestamp"):
        opened(view, startingTimestamp="15").next_end(NEW, OWN)


def test_missing_topic_is_an_error_naming_it() -> None:
    view = Table({})
    view.missing = {"TopicA"}
    with pytest.raises(UsageError, match="TopicA"):
        opened(view).next_end(NEW, OWN)


def test_tasks_read_disjoint_ranges_in_the_wanted_number() -> None:
    view = Table({A0: (0, 100), A1: (0, 20)})
    progress = opened(view, minPartitions="6", maxRecordsPerPartition="18")
    found = progress.offset_ranges(NEW, progress.next_end(NEW, OWN))
    assert len(found) >= 6
    assert max(offset_range.messages for offset_range in found) <= 18
    offsets = [
        (offset_range.queue, offset)
        for offset_range in found
        for offset in range(offset_range.begin, offset_range.end)
    ]
    assert sorted(offsets) == [(A0, n) for n in range(100)] + [(A1, n) for n in range(20)]


def test_commit_group_follows_spark_on_demand() -> None:
    view = Table({A0: (0, 4)})
    end = opened(view).next_end(NEW, OWN)
    opened(view).done(end)
    opened(view, commitGroup="lake", commitMode="none").done(end)
    assert not view.committed
    opened(view, commitGroup="lake").done(end)
    assert view.committed == [("lake", {A0: 4})]


def test_failed_commit_does_not_end_the_query(caplog: pytest.LogCaptureFixture) -> None:
    view = Table({A0: (0, 4)})
    progress = opened(view, commitGroup="lake")
    end = progress.next_end(NEW, OWN)
    view.errors = [Unreachable("broker-a cannot be reached")]
    with caplog.at_level(logging.WARNING):
        progress.done(end)
    assert "group=lake" in caplog.text
    assert "broker-a cannot be reached" in caplog.text


def test_queue_ends_are_reported_without_asking_again() -> None:
    view = Table({A0: (0, 4)})
    progress = opened(view, maxOffsetsPerTrigger="1")
    assert progress.latest() is None
    progress.next_end(NEW, OWN)
    assert progress.latest() == offsets_to_json({A0: QueueOffset(4)})
    assert view.looks == 1


def test_kafkas_view_refuses_brokers_whose_partition_numbers_are_equal() -> None:
    names = ("broker-afi", "broker-ahi-rack")
    table = Table({MessageQueue("TopicA", name, 0): (0, 1) for name in names})
    opened(table).next_end(NEW, OWN)
    with pytest.raises(UsageError, match="broker-afi and broker-ahi-rack"):
        opened(table, view="kafka").next_end(NEW, OWN)


def test_closing_closes_the_view() -> None:
    view = Table({A0: (0, 4)})
    opened(view).close()
    assert view.is_closed


def test_tighter_limit_of_the_engine_applies() -> None:
    limits = asked(maxOffsetsPerTrigger="30", maxBytesPerTrigger="500").limits
    tighter = BatchLimit(offsets_max=7, bytes_max=900).with_options(limits)
    assert tighter == replace(limits, offsets_max=7)
