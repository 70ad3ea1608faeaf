"""Whatever queues do and limits say: nothing is lost or read twice, and limits hold."""

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_pipeline.offsets import OffsetRange, offsets_from_json, offsets_text
from ternmq_pipeline.options.source_options import TriggerLimits
from ternmq_pipeline.planning.admission import RangeSize, TriggerState, admit, targets_of
from ternmq_pipeline.planning.apportionment import apportion
from ternmq_pipeline.planning.offset_ranges import offset_ranges, split
from tests.support.planning import offsets, snapshot

QUEUES = [MessageQueue("TopicA", f"broker-{name}", number) for name in "ab" for number in (0, 1)]
SIZES = (1, 7, 100, 5_000)


def size_of(queue: MessageQueue, offset: int) -> int:
    """Return the bytes of a message: any, but always the same."""
    return SIZES[(offset * 7 + queue.queue_id) % len(SIZES)]


def measure(asked: Sequence[tuple[OffsetRange, int]]) -> Sequence[RangeSize]:
    """Measure as a broker does: up to the message that reaches the bytes."""
    found: list[RangeSize] = []
    for offset_range, bytes_max in asked:
        end, total = int(offset_range.begin), 0
        while end < offset_range.end and (bytes_max == 0 or total < bytes_max):
            total += size_of(offset_range.queue, end)
            end += 1
        found.append(RangeSize(end, total))
    return found


def bytes_of(read: Sequence[OffsetRange]) -> int:
    return sum(
        size_of(offset_range.queue, offset)
        for offset_range in read
        for offset in range(offset_range.begin, offset_range.end)
    )


limits_of = st.builds(
    TriggerLimits,
    offsets_max=st.none() | st.integers(1, 30),
    bytes_max=st.none() | st.integers(1, 20_000),
    offsets_min=st.none(),
)
growth = st.dictionaries(st.sampled_from(QUEUES), st.integers(0, 40), max_size=4)


@given(st.lists(growth, min_size=1, max_size=8), limits_of)
@example(
    [{QUEUES[3]: 2, QUEUES[0]: 0, QUEUES[1]: 3}, {QUEUES[0]: 0, QUEUES[2]: 1}],
    TriggerLimits(bytes_max=1),
)
def test_every_message_is_read_once_in_order_within_the_limits(
    steps: list[dict[MessageQueue, int]], limits: TriggerLimits
) -> None:
    ends: dict[MessageQueue, int] = dict.fromkeys(steps[0], 0)
    place = offsets(ends)
    read: dict[MessageQueue, list[int]] = {}
    turn = 0
    for step in [*steps, *[{}] * 2_000]:
        for queue, more in step.items():
            ends[queue] = ends.get(queue, 0) + more
        now = snapshot({queue: (0, end) for queue, end in ends.items()})
        end = admit(place, now, limits, trigger=TriggerState(turn=turn), measure=measure).end
        planned = offset_ranges(place, end, now)
        assert planned.warnings == []
        _within(planned.offset_ranges, limits)
        for offset_range in planned.offset_ranges:
            read.setdefault(offset_range.queue, []).extend(
                range(offset_range.begin, offset_range.end)
            )
        assert place.keys() <= end.keys()
        is_idle = end == place
        place, turn = offsets_from_json(offsets_text(end)), turn + (not is_idle)
        if not step and is_idle:
            break
    assert place == ends
    assert {queue: len(seen) for queue, seen in read.items()} == {
        queue: end for queue, end in ends.items() if end
    }
    assert all(seen == list(range(len(seen))) for seen in read.values())


def _within(read: Sequence[OffsetRange], limits: TriggerLimits) -> None:
    if limits.offsets_max is not None:
        assert sum(offset_range.messages for offset_range in read) <= limits.offsets_max
    if limits.bytes_max is not None:
        is_alone = sum(offset_range.messages for offset_range in read) == 1
        assert is_alone or bytes_of(read) <= limits.bytes_max


@given(
    st.dictionaries(st.sampled_from(QUEUES), st.integers(0, 100), min_size=1),
    st.sets(st.sampled_from(QUEUES)),
    limits_of,
)
@example(dict.fromkeys(QUEUES, 2), set(QUEUES), TriggerLimits(offsets_max=2, bytes_max=1))
def test_every_waiting_queue_is_read_in_as_many_batches_as_there_are_queues(
    begins: dict[MessageQueue, int], waiting: set[MessageQueue], limits: TriggerLimits
) -> None:
    place = offsets(begins)
    # Queues that always wait: a batch reads 30 messages, or 20,000 bytes, at most.
    ends = {queue: 10**5 if queue in waiting else begin for queue, begin in begins.items()}
    now = snapshot({queue: (0, end) for queue, end in ends.items()})
    for turn in range(len(begins)):
        place = admit(place, now, limits, trigger=TriggerState(turn=turn), measure=measure).end
    assert all(place[queue] > begin for queue, begin in begins.items() if queue in waiting)


ranges_of = st.dictionaries(
    st.sampled_from(QUEUES),
    st.tuples(st.integers(0, 60), st.integers(0, 60)).map(lambda pair: (min(pair), max(pair))),
)


@given(ranges_of, st.lists(ranges_of, min_size=1, max_size=10), limits_of)
def test_available_now_run_ends_at_its_targets_whatever_queues_do(
    first: dict[MessageQueue, tuple[int, int]],
    then: list[dict[MessageQueue, tuple[int, int]]],
    limits: TriggerLimits,
) -> None:
    begun = snapshot(first)
    trigger = TriggerState(targets=targets_of(begun))
    place = {queue: there.begin for queue, there in begun.ranges.items()}
    last = then[-1]
    for step, ranges in enumerate([*then, *[last] * 400]):
        now = snapshot(ranges)
        found = admit(place, now, limits, trigger=trigger, measure=measure, fail_on_data_loss=False)
        for offset_range in offset_ranges(
            place, found.end, now, fail_on_data_loss=False
        ).offset_ranges:
            assert ranges[offset_range.queue][0] <= offset_range.begin < offset_range.end
            assert offset_range.end <= ranges[offset_range.queue][1]
        assert found.end.keys() <= first.keys()
        if found.end == place and step >= len(then):
            return
        place = found.end
    raise AssertionError("it does not end")


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 10**12)),
    st.integers(0, 10**12),
)
def test_shares_use_the_whole_budget_and_leave_no_queue_out(
    wanted: dict[str, int], budget: int
) -> None:
    shares = apportion(wanted, budget)
    assert shares.keys() == wanted.keys()
    assert sum(shares.values()) == min(budget, sum(wanted.values()))
    assert all(0 <= shares[key] <= wanted[key] for key in wanted)
    waiting = [key for key in wanted if wanted[key]]
    assert all(shares[key] for key in waiting[:budget])


@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 500)), max_size=5),
    st.none() | st.integers(1, 200),
    st.none() | st.integers(1, 300),
)
def test_partitions_are_disjoint_complete_and_not_empty(
    lengths: list[tuple[int, int]], partitions_min: int | None, records_max: int | None
) -> None:
    whole = [
        OffsetRange(
            MessageQueue("TopicA", "broker-a", number),
            QueueOffset(begin),
            QueueOffset(begin + messages),
        )
        for number, (begin, messages) in enumerate(lengths)
    ]
    pieces = split(whole, partitions_min=partitions_min, records_max=records_max)
    assert all(piece.messages > 0 for piece in pieces)
    for offset_range in whole:
        mine = [piece for piece in pieces if piece.queue == offset_range.queue]
        assert mine[0].begin == offset_range.begin
        assert mine[-1].end == offset_range.end
        assert all(one.end == two.begin for one, two in pairwise(mine))
    if records_max is not None:
        assert all(piece.messages <= records_max for piece in pieces)
    if partitions_min is not None and whole:
        messages = sum(offset_range.messages for offset_range in whole)
        assert len(pieces) >= min(partitions_min, messages)
