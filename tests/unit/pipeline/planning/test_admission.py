from collections.abc import Sequence

import pytest

from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_pipeline.offsets import OffsetRange
from ternmq_pipeline.options.source_options import TriggerLimits
from ternmq_pipeline.planning.admission import (
    RangeSize,
    TriggerState,
    admit,
    targets_of,
    within_bytes,
)
from ternmq_pipeline.planning.data_loss import DataLost
from tests.support.planning import A0, A1, B0, offsets, snapshot, unasked


def messages_of(size: int) -> "Measurer":
    return Measurer(size)


class Measurer:
    """Messages that all have the same size."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.asked = 0

    def __call__(self, asked: Sequence[tuple[OffsetRange, int]]) -> Sequence[RangeSize]:
        self.asked += 1
        found: list[RangeSize] = []
        for offset_range, bytes_max in asked:
            count = offset_range.messages if bytes_max == 0 else -(-bytes_max // self.size)
            count = min(count, offset_range.messages)
            found.append(RangeSize(offset_range.begin + count, count * self.size))
        return found


NO_LIMITS = TriggerLimits()


def test_unlimited_batch_reads_all_there_is() -> None:
    found = admit(
        offsets({A0: 3, A1: 5}),
        snapshot({A0: (0, 10), A1: (2, 5)}),
        NO_LIMITS,
        trigger=TriggerState(),
        measure=unasked,
    )
    assert found == ({A0: 10, A1: 5}, [])


def test_offsets_are_shared_in_proportion_to_waiting_messages() -> None:
    found = admit(
        offsets({A0: 0, A1: 0, B0: 0}),
        snapshot({A0: (0, 900), A1: (0, 90), B0: (0, 10)}),
        TriggerLimits(offsets_max=100),
        trigger=TriggerState(),
        measure=unasked,
    )
    assert sum(found.end.values()) == 100
    assert found.end[A0] >= 88
    assert found.end[A1] >= 8
    assert found.end[B0] >= 1


def test_queues_take_turns_when_offsets_are_fewer() -> None:
    limits = TriggerLimits(offsets_max=1)
    ends = snapshot({A0: (0, 2), A1: (0, 2), B0: (0, 2)})
    place = offsets({A0: 0, A1: 0, B0: 0})
    for turn in range(3):
        place = admit(place, ends, limits, trigger=TriggerState(turn=turn), measure=unasked).end
    assert place == {A0: 1, A1: 1, B0: 1}


def test_batch_that_reads_everything_ignores_limits() -> None:
    found = admit(
        offsets({A0: 0}),
        snapshot({A0: (0, 500), A1: (7, 9)}),
        TriggerLimits(offsets_max=1, bytes_max=1, offsets_min=1_000),
        trigger=TriggerState(all_available=True),
        measure=unasked,
    )
    assert found.end == {A0: 500, A1: 9}


def test_new_queue_enters_with_its_beginning_and_is_read_afterwards() -> None:
    ends = snapshot({A0: (0, 4), B0: (2, 6)})
    first = admit(offsets({A0: 0}), ends, NO_LIMITS, trigger=TriggerState(), measure=unasked)
    assert first.end == {A0: 4, B0: 2}
    assert admit(first.end, ends, NO_LIMITS, trigger=TriggerState(), measure=unasked).end[B0] == 6


def test_small_batch_waits_until_the_delay_is_over() -> None:
    start = offsets({A0: 0})
    limits = TriggerLimits(offsets_min=10, delay_max_ms=1_000)
    ends = snapshot({A0: (0, 9)})
    early = admit(start, ends, limits, trigger=TriggerState(waited_ms=999), measure=unasked)
    assert early.end == start
    late = admit(start, ends, limits, trigger=TriggerState(waited_ms=1_000), measure=unasked)
    assert late.end == {A0: 9}
    enough = snapshot({A0: (0, 10)})
    assert admit(start, enough, limits, trigger=TriggerState(), measure=unasked).end == {A0: 10}


def test_bytes_are_shared_and_every_range_stays_within_its_share() -> None:
    found = admit(
        offsets({A0: 0, A1: 0}),
        snapshot({A0: (0, 1_000), A1: (0, 1_000)}),
        TriggerLimits(bytes_max=1_050),
        trigger=TriggerState(),
        measure=messages_of(100),
    )
    assert found.end == {A0: 5, A1: 5}


def test_small_ranges_are_measured_with_one_request() -> None:
    measure = messages_of(100)
    limits = TriggerLimits(bytes_max=1_000)
    ends = snapshot({A0: (0, 4), A1: (0, 6)})
    found = admit(offsets({A0: 0, A1: 0}), ends, limits, trigger=TriggerState(), measure=measure)
    assert found.end == {A0: 4, A1: 6}
    assert measure.asked == 1


def test_oversized_message_goes_alone_and_every_queue_gets_its_turn() -> None:
    limits = TriggerLimits(bytes_max=10)
    ends = snapshot({A0: (0, 1), A1: (0, 1)})
    place = offsets({A0: 0, A1: 0})
    for turn in range(2):
        before = sum(place.values())
        trigger = TriggerState(turn=turn)
        place = admit(place, ends, limits, trigger=trigger, measure=messages_of(100)).end
        assert sum(place.values()) == before + 1
    assert place == {A0: 1, A1: 1}


@pytest.mark.parametrize(
    ("large", "turn", "messages"),
    [
        (5_000, 0, {A0: 1, A1: 0}),
        (5_000, 1, {A0: 0, A1: 1}),
        (900, 0, {A0: 5, A1: 0}),
        (900, 1, {A0: 1, A1: 1}),
        (600, 0, {A0: 6, A1: 0}),
        (600, 1, {A0: 4, A1: 1}),
        (100, 0, {A0: 9, A1: 0}),
        (100, 1, {A0: 9, A1: 1}),
    ],
)
def test_message_above_its_share_takes_its_turn_and_the_others_read_what_it_leaves(
    large: int, turn: int, messages: dict[MessageQueue, int]
) -> None:
    found = admit(
        offsets({A0: 0, A1: 0}),
        snapshot({A0: (0, 50), A1: (0, 1)}),
        TriggerLimits(bytes_max=1_000),
        trigger=TriggerState(turn=turn),
        measure=lambda asked: [
            messages_of(100 if each[0].queue == A0 else large)([each])[0] for each in asked
        ],
    )
    assert found.end == messages


@pytest.mark.parametrize("turn", [0, 1])
def test_queue_whose_bytes_are_unknown_waits_beside_others(turn: int) -> None:
    found = admit(
        offsets({A0: 0, A1: 0}),
        snapshot({A0: (0, 50), A1: (0, 50)}),
        TriggerLimits(bytes_max=1_000),
        trigger=TriggerState(turn=turn),
        measure=lambda asked: [
            messages_of(100)([each])[0] if each[0].queue == A0 else RangeSize(0, 0)
            for each in asked
        ],
    )
    assert found.end == {A0: 10, A1: 0}


def test_measure_of_zero_does_not_stop_the_stream() -> None:
    offset_range = OffsetRange(A0, QueueOffset(5), QueueOffset(9))
    found = within_bytes([offset_range], 10, lambda asked: [RangeSize(5, 0)] * len(asked))
    assert found == [OffsetRange(A0, QueueOffset(5), QueueOffset(6))]


def test_targets_end_a_stream_whatever_happens_meanwhile() -> None:
    targets = targets_of(snapshot({A0: (0, 10), A1: (0, 10), B0: (0, 10)}))
    later = snapshot({A0: (0, 50), A1: (12, 50), MessageQueue("TopicA", "broker-c", 0): (0, 5)})
    trigger = TriggerState(targets=targets)
    place = offsets({A0: 2, A1: 2, B0: 10})
    first = admit(
        place, later, NO_LIMITS, trigger=trigger, measure=unasked, fail_on_data_loss=False
    )
    assert first.end == {A0: 10, A1: 12}
    assert len(first.warnings) == 2
    second = admit(first.end, later, NO_LIMITS, trigger=trigger, measure=unasked)
    assert second.end == first.end


def test_targets_do_not_wait_for_a_fuller_batch() -> None:
    ends = snapshot({A0: (0, 1)})
    limits = TriggerLimits(offsets_min=100)
    trigger = TriggerState(targets=targets_of(ends))
    assert admit(offsets({A0: 0}), ends, limits, trigger=trigger, measure=unasked).end == {A0: 1}


@pytest.mark.parametrize(
    ("saved", "now", "told"),
    [
        ({A0: 3}, {A0: (5, 9)}, "offsets 3 to 4 are no longer kept"),
        ({A0: 30}, {A0: (5, 9)}, "offset 30 is beyond its end, which is 9"),
        ({A0: 3}, {}, "does not exist any more; offset 3"),
    ],
)
def test_lost_messages_are_an_error_naming_queue_and_option(
    saved: dict[MessageQueue, int], now: dict[MessageQueue, tuple[int, int]], told: str
) -> None:
    with pytest.raises(DataLost) as caught:
        admit(offsets(saved), snapshot(now), NO_LIMITS, trigger=TriggerState(), measure=unasked)
    for part in (told, "topic TopicA", "broker broker-a", "queue 0", "failOnDataLoss=false"):
        assert part in str(caught.value)


def test_lost_messages_are_skipped_when_tolerated() -> None:
    start = offsets({A0: 3, A1: 30, B0: 8})
    now = snapshot({A0: (5, 9), A1: (5, 9)})
    found = admit(
        start, now, NO_LIMITS, trigger=TriggerState(), measure=unasked, fail_on_data_loss=False
    )
    assert found.end == {A0: 9, A1: 9}
    assert len(found.warnings) == 3


def test_recreated_queue_is_read_from_its_first_message() -> None:
    found = admit(
        offsets({A0: 30}),
        snapshot({A0: (0, 9)}),
        TriggerLimits(offsets_max=4),
        trigger=TriggerState(),
        measure=unasked,
        fail_on_data_loss=False,
    )
    assert found.end == {A0: 4}


def test_lagging_slave_has_lost_nothing() -> None:
    now = snapshot({A0: (0, 9)}, answered_by_slave=["broker-a"])
    found = admit(offsets({A0: 30}), now, NO_LIMITS, trigger=TriggerState(), measure=unasked)
    assert found == ({A0: 30}, [])
    later = snapshot({A0: (40, 50)}, answered_by_slave=["broker-a"])
    found = admit(offsets({A0: 30}), later, NO_LIMITS, trigger=TriggerState(), measure=unasked)
    assert found == ({A0: 50}, [])


def test_queues_of_an_unregistered_broker_stay_where_they_are() -> None:
    now = snapshot({A0: (0, 9)}, brokers=["broker-a"])
    start = offsets({A0: 0, B0: 4})
    with pytest.raises(DataLost, match=r"broker is no longer registered; offset 4"):
        admit(start, now, NO_LIMITS, trigger=TriggerState(), measure=unasked)
    found = admit(
        start, now, NO_LIMITS, trigger=TriggerState(), measure=unasked, fail_on_data_loss=False
    )
    assert found.end == {A0: 9, B0: 4}
