import pytest

from ternmq_model.errors import UsageError
from ternmq_pipeline.options.positions import AtOffsets, AtTime, AtTimes, QueueEnd, TimeStrategy
from ternmq_pipeline.planning.data_loss import DataLost
from ternmq_pipeline.planning.offset_resolution import (
    ending_offsets,
    refuse_backwards,
    starting_offsets,
    times_of,
)
from tests.support.planning import A0, A1, offsets, snapshot

NOW = snapshot({A0: (5, 10), A1: (0, 3)})


def test_edges_are_the_queues_own() -> None:
    assert starting_offsets(QueueEnd.EARLIEST, NOW, {}).offsets == {A0: 5, A1: 0}
    assert starting_offsets(QueueEnd.LATEST, NOW, {}).offsets == {A0: 10, A1: 3}
    assert ending_offsets(QueueEnd.LATEST, NOW, {}).offsets == {A0: 10, A1: 3}


def test_offsets_may_be_earliest_or_latest() -> None:
    position = AtOffsets({A0: -2, A1: -1})
    assert starting_offsets(position, NOW, {}).offsets == {A0: 5, A1: 3}
    assert ending_offsets(AtOffsets({A0: 7, A1: -1}), NOW, {}).offsets == {A0: 7, A1: 3}


def test_times_are_resolved_for_existing_queues() -> None:
    assert times_of(AtTime(9), NOW) == {A0: 9, A1: 9}
    assert times_of(AtTimes({A0: 9}), NOW) == {A0: 9}
    assert times_of(QueueEnd.LATEST, NOW) == {}


def test_time_begins_with_the_first_message_not_older() -> None:
    found = starting_offsets(AtTime(9), NOW, offsets({A0: 7, A1: 1}))
    assert found.offsets == {A0: 7, A1: 1}
    assert ending_offsets(AtTime(9), NOW, offsets({A0: 99, A1: 1})).offsets == {A0: 10, A1: 1}


@pytest.mark.parametrize("position", [AtTime(9), AtTimes({A0: 9, A1: 9})])
def test_queue_without_a_later_message_is_an_error_or_begins_at_its_end(
    position: AtTime | AtTimes,
) -> None:
    at_times = offsets({A0: 10, A1: 1})
    with pytest.raises(UsageError, match=r"starting.*: TopicA@broker-a:0 has no message.*latest"):
        starting_offsets(position, NOW, at_times)
    found = starting_offsets(position, NOW, at_times, strategy=TimeStrategy.LATEST)
    assert found.offsets == {A0: 10, A1: 1}


@pytest.mark.parametrize(
    ("position", "told"),
    [
        (AtOffsets({A0: 5}), "startingOffsets: must name every queue.*TopicA@broker-a:1 too .-2 ="),
        (AtTimes({A0: 5}), "startingOffsetsByTimestamp: must name every queue.*too$"),
        (
            AtOffsets({A0: 5, A1: 0, A1._replace(queue_id=7): 0}),
            "startingOffsets: there is no queue TopicA@broker-a:7",
        ),
    ],
)
def test_position_names_exactly_the_existing_queues(
    position: AtOffsets | AtTimes, told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        starting_offsets(position, NOW, {})


def test_missing_topic_is_an_error() -> None:
    now = snapshot({A0: (0, 1)}, missing=["topic TopicZ"])
    with pytest.raises(UsageError, match="no broker has topic TopicZ"):
        starting_offsets(QueueEnd.EARLIEST, now, {})
    with pytest.raises(UsageError, match="no broker has topic TopicZ"):
        ending_offsets(QueueEnd.LATEST, now, {})


@pytest.mark.parametrize(
    ("wanted", "taken", "told"),
    [(4, 5, "offsets 4 to 4 are no longer kept"), (11, 10, "offset 11 is beyond its end")],
)
def test_offset_outside_the_queue_is_an_error_or_moved_to_the_nearest(
    wanted: int, taken: int, told: str
) -> None:
    position = AtOffsets({A0: wanted, A1: 0})
    for find in (starting_offsets, ending_offsets):
        with pytest.raises(DataLost, match=told):
            find(position, NOW, {})
        found = find(position, NOW, {}, fail_on_data_loss=False)
        assert found.offsets[A0] == taken
        assert told in found.warnings[0]


def test_lagging_slave_may_get_an_offset_beyond_its_end() -> None:
    now = snapshot({A0: (0, 10)}, answered_by_slave=["broker-a"])
    assert starting_offsets(AtOffsets({A0: 11}), now, {}).offsets == {A0: 11}
    later = snapshot({A0: (5, 10)}, answered_by_slave=["broker-a"])
    assert starting_offsets(AtOffsets({A0: 3}), later, {}) == ({A0: 3}, [])


def test_batch_that_ends_before_it_begins_is_refused() -> None:
    refuse_backwards(offsets({A0: 5, A1: 9}), offsets({A0: 5}))
    with pytest.raises(UsageError, match=r"TopicA@broker-a:0: .* offset 6 and ends before 5"):
        refuse_backwards(offsets({A0: 6}), offsets({A0: 5}))
