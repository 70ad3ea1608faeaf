"""What a stream does about a topic that was deleted and created again."""

import logging

import pytest

from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_pipeline.offsets import OffsetRange, offsets_to_json
from ternmq_pipeline.planning.data_loss import DataLost
from ternmq_pipeline.source.streams.checkpoint_offsets import NEW
from ternmq_pipeline.source.streams.micro_batch_stream import BatchLimit
from tests.support.stream_table import Table, opened, read_to_the_end

A0 = MessageQueue("TopicA", "broker-a", 0)
A1 = MessageQueue("TopicA", "broker-a", 1)
B0 = MessageQueue("TopicA", "broker-b", 0)
ALL = BatchLimit(all_available=True)
OWN = BatchLimit()
TOPIC_A = ("TopicA", "broker-a")


@pytest.mark.parametrize("options", [{}, {"maxOffsetsPerTrigger": "4"}])
@pytest.mark.parametrize("messages", [3, 7, 12])
def test_topic_created_again_is_a_loss_and_read_from_its_beginning(
    options: dict[str, str], messages: int, caplog: pytest.LogCaptureFixture
) -> None:
    view = Table({A0: (0, 7), A1: (0, 5), B0: (0, 2)})
    view.stores = {"broker-a": "first", "broker-b": "other"}
    view.created = {TOPIC_A: 0, ("TopicA", "broker-b"): 40}
    _, end = read_to_the_end(view, NEW, **options)
    del view.ranges[A1]
    _, end = read_to_the_end(view, end, failOnDataLoss="false", **options)
    assert end["parked"]
    view.ranges |= {A0: (0, messages), A1: (0, 6)}
    view.created[TOPIC_A] = 100
    told = "topic TopicA, broker broker-a, queue 0: its topic was deleted and created again"
    with pytest.raises(DataLost, match=told) as caught:
        opened(view, None, **options).next_end(end, OWN)
    assert [loss.queue for loss in caught.value.losses] == [A0, A1]
    with caplog.at_level(logging.WARNING):
        read, end = read_to_the_end(view, end, failOnDataLoss="false", **options)
    assert "offset 7 of the one before was to come next" in caplog.text
    assert sum(offset_range.messages for offset_range in read) == messages + 6
    assert {offset_range.queue: offset_range.end for offset_range in read} == {A0: messages, A1: 6}
    assert read_to_the_end(view, end, **options) == ([], end)


def test_batch_is_not_repeated_from_a_topic_created_again() -> None:
    view = Table({A0: (0, 7), B0: (0, 2)})
    view.created = {TOPIC_A: 40}
    end = opened(view).next_end(NEW, OWN)
    view.created[TOPIC_A] = 100
    with pytest.raises(DataLost, match="created again; offset 7"):
        opened(view).offset_ranges(NEW, end)
    found = opened(view, failOnDataLoss="false").offset_ranges(NEW, end)
    assert found == [OffsetRange(B0, QueueOffset(0), QueueOffset(2))]


def test_available_now_run_reads_a_topic_created_again_up_to_its_target() -> None:
    view = Table({A0: (0, 7)})
    view.created = {TOPIC_A: 40}
    _, end = read_to_the_end(view, NEW)
    view.ranges[A0], view.created[TOPIC_A] = (0, 9), 100
    progress = opened(view, failOnDataLoss="false")
    progress.aim_at_present()
    view.ranges[A0] = (0, 30)
    following = progress.next_end(end, ALL)
    assert progress.offset_ranges(end, following) == [
        OffsetRange(A0, QueueOffset(0), QueueOffset(9), 100)
    ]


@pytest.mark.parametrize("told", [None, 0, 40, 99])
def test_creations_forgotten_or_unknown_to_a_slave_are_no_loss(told: int | None) -> None:
    view = Table({A0: (0, 7)})
    view.created = {TOPIC_A: 100}
    _, end = read_to_the_end(view, NEW)
    view.ranges[A0] = (0, 9)
    view.answered_by_slave = {"broker-a"}
    view.created = {} if told is None else {TOPIC_A: told}
    read, behind = read_to_the_end(view, end)
    # What a slave says is not told to tasks, which may find its master there again.
    assert read == [OffsetRange(A0, QueueOffset(7), QueueOffset(9))]
    assert behind["stores"] == {"broker-a:TopicA": "100"}
    view.answered_by_slave.clear()
    view.ranges[A0] = (0, 11)
    read, after = read_to_the_end(view, behind)
    assert read == [OffsetRange(A0, QueueOffset(9), QueueOffset(11), told)]
    assert after["stores"] == {"broker-a:TopicA": str(100 if told is None else told)}


def test_slave_that_stands_in_tells_no_creation_that_a_master_has_not_told() -> None:
    view = Table({A0: (0, 7)})
    # Its master was of an older version, and told it nothing.
    view.answered_by_slave, view.created = {"broker-a"}, {TOPIC_A: 0}
    _, end = read_to_the_end(view, NEW)
    assert "stores" not in end
    view.answered_by_slave.clear()
    view.ranges[A0], view.created = (0, 9), {TOPIC_A: 948}
    read, end = read_to_the_end(view, end)
    assert read == [OffsetRange(A0, QueueOffset(7), QueueOffset(9), 948)]
    assert end["stores"] == {"broker-a:TopicA": "948"}
    view.answered_by_slave = {"broker-a"}
    view.ranges[A0], view.created = (0, 3), {TOPIC_A: 2_000}
    with pytest.raises(DataLost, match="created again; offset 9"):
        opened(view).next_end(end, OWN)
    read, end = read_to_the_end(view, end, failOnDataLoss="false")
    assert read == [OffsetRange(A0, QueueOffset(0), QueueOffset(3))]
    assert read_to_the_end(view, end) == ([], end)


def test_topic_of_which_nothing_was_read_may_be_created_again() -> None:
    view = Table({A0: (0, 0), A1: (0, 0)})
    view.created = {TOPIC_A: 40}
    _, end = read_to_the_end(view, NEW)
    view.ranges[A0], view.created[TOPIC_A] = (0, 2), 100
    read, end = read_to_the_end(view, end)
    assert read == [OffsetRange(A0, QueueOffset(0), QueueOffset(2), 100)]
    assert end["stores"] == {"broker-a:TopicA": "100"}
    view.created[TOPIC_A] = 200
    with pytest.raises(DataLost, match="created again") as caught:
        opened(view).next_end(end, OWN)
    assert [loss.queue for loss in caught.value.losses] == [A0, A1]


def test_older_checkpoint_learns_creations_and_older_versions_read_them() -> None:
    view = Table({A0: (0, 7)})
    view.stores = {"broker-a": "first"}
    _, of_older = read_to_the_end(view, NEW)
    view.ranges[A0], view.created = (0, 9), {TOPIC_A: 100}
    _, end = read_to_the_end(view, of_older)
    # Versions before pass over names of no broker, and refuse members that they do not know.
    assert end == {
        **offsets_to_json({A0: QueueOffset(9)}),
        "stores": {"broker-a": "first", "broker-a:TopicA": "100"},
    }
    view.created[TOPIC_A] = 200
    with pytest.raises(DataLost, match="created again"):
        opened(view).next_end(end, OWN)


def test_group_is_not_told_offsets_of_the_topic_before() -> None:
    view = Table({A0: (0, 7), B0: (0, 2)})
    view.created = {TOPIC_A: 40}
    progress = opened(view, failOnDataLoss="false", commitGroup="G")
    end = progress.next_end(NEW, ALL)
    view.ranges[A0], view.created[TOPIC_A] = (0, 9), 100
    following = progress.next_end(end, ALL)
    progress.done(end)
    progress.done(following)
    assert [offsets for _, offsets in view.committed] == [{B0: 2}, {A0: 9, B0: 2}]
