"""The messages in hand of one queue. tests/property compares it with a model at random."""

from typing import NamedTuple

import pytest

from ternmq_consumer.process_queue.process_queue import ProcessQueue
from ternmq_model.offsets import QueueOffset


class Record(NamedTuple):
    queue_offset: QueueOffset
    record_bytes: int = 100


def records(begin: int, end: int) -> list[Record]:
    return [Record(QueueOffset(offset)) for offset in range(begin, end)]


def queue_with(begin: int, end: int) -> ProcessQueue[Record]:
    queue = ProcessQueue[Record](QueueOffset(begin))
    queue.add(records(begin, end), 100 * (end - begin), QueueOffset(end))
    return queue


def test_empty_queue_commits_where_it_began() -> None:
    queue = ProcessQueue[Record](QueueOffset(7))

    assert queue.commit_offset == 7
    assert queue.take(10) is None


def test_filtered_offset_is_committed_once_earlier_messages_finish() -> None:
    queue = queue_with(0, 2)
    queue.add([], 0, QueueOffset(50))

    assert queue.commit_offset == 0
    handout = queue.take(2)
    assert handout is not None
    queue.finish(handout)
    assert queue.commit_offset == 50


def test_later_stretch_ending_first_does_not_move_the_commit_offset() -> None:
    queue = queue_with(0, 10)
    first, second = queue.take(4), queue.take(4)
    assert first is not None
    assert second is not None

    queue.finish(second)
    assert queue.commit_offset == 0
    queue.finish(first)
    assert queue.commit_offset == 8


def test_failed_message_holds_the_commit_offset_until_it_is_finished() -> None:
    queue = queue_with(0, 10)
    handout = queue.take(10)
    assert handout is not None

    assert queue.finish(handout, unfinished=[Record(QueueOffset(6))]) == (9, 900)
    assert queue.commit_offset == 6
    assert queue.running == 0

    queue.take_again(handout)
    assert queue.running == 1
    assert queue.finish(handout) == (1, 100)
    assert queue.commit_offset == 10
    assert (queue.count, queue.record_bytes) == (0, 0)


def test_hand_out_joins_batches_and_splits_them() -> None:
    queue = queue_with(0, 3)
    queue.add(records(3, 6), 300, QueueOffset(6))

    first, second = queue.take(4), queue.take(4)

    assert first is not None
    assert second is not None
    assert [record.queue_offset for record in first.messages] == [0, 1, 2, 3]
    assert first.record_bytes == 400
    assert [record.queue_offset for record in second.messages] == [4, 5]
    assert queue.waiting == 0
    assert queue.count == 6


def test_reading_backwards_is_a_programming_error() -> None:
    queue = queue_with(0, 3)

    with pytest.raises(AssertionError):
        queue.add(records(1, 3), 200, QueueOffset(3))


def test_split_hand_out_is_finished_in_two() -> None:
    queue = queue_with(0, 10)
    handout = queue.take(6)
    assert handout is not None
    later = queue.take(4)
    assert later is not None

    rest = queue.part(handout, 2)

    assert rest is not None
    assert [record.queue_offset for record in rest.messages] == [2, 3, 4, 5]
    assert (handout.record_bytes, rest.record_bytes) == (200, 400)
    assert queue.running == 3
    assert queue.part(rest, 4) is None
    queue.finish(later)
    queue.finish(handout)
    assert queue.commit_offset == 2
    assert queue.finish(rest) == (4, 400)
    assert queue.commit_offset == 10
    assert (queue.count, queue.record_bytes, queue.running) == (0, 0, 0)
