import pytest

from ternmq_model.errors import UsageError
from ternmq_model.offsets import QueueOffset
from ternmq_pipeline.offsets import OffsetRange
from ternmq_pipeline.planning.data_loss import DataLost
from ternmq_pipeline.planning.offset_ranges import offset_ranges, split
from tests.support.planning import A0, A1, B0, offsets, snapshot


def offset_range(begin: int, end: int) -> OffsetRange:
    return OffsetRange(A0, QueueOffset(begin), QueueOffset(end))


def test_queues_with_nothing_to_read_have_no_range() -> None:
    now = snapshot({A0: (0, 10), A1: (0, 10)})
    found = offset_ranges(offsets({A0: 2, A1: 5}), offsets({A0: 9, A1: 5}), now)
    assert found == ([offset_range(2, 9)], [])


def test_queue_without_a_start_is_read_from_its_first_message() -> None:
    found = offset_ranges({}, offsets({A0: 9}), snapshot({A0: (4, 10)}))
    assert found.offset_ranges == [offset_range(4, 9)]
    # It entered with its beginning, and that moved on before anything was to be read.
    assert offset_ranges({}, offsets({A0: 3}), snapshot({A0: (4, 10)})) == ([], [])


@pytest.mark.parametrize(
    ("begin", "end", "told", "left"),
    [
        (1, 9, "offsets 1 to 3 are no longer kept, it begins with 4 now", [offset_range(4, 9)]),
        (1, 3, "offsets 1 to 2 are no longer kept", []),
        (5, 19, "offset 19 is beyond its end, which is 10", [offset_range(5, 10)]),
        (15, 19, "offset 19 is beyond its end", []),
        (9, 6, "offset 9 is beyond its end, which is 6", []),
    ],
)
def test_lost_messages_are_an_error_or_skipped(
    begin: int, end: int, told: str, left: list[OffsetRange]
) -> None:
    now = snapshot({A0: (4, 10)})
    start, until = offsets({A0: begin}), offsets({A0: end})
    with pytest.raises(DataLost, match=told):
        offset_ranges(start, until, now)
    found = offset_ranges(start, until, now, fail_on_data_loss=False)
    assert found.offset_ranges == left
    assert told in found.warnings[0]


def test_recreated_queue_is_read_from_message_0() -> None:
    now = snapshot({A0: (0, 10)})
    found = offset_ranges(offsets({A0: 90}), offsets({A0: 6}), now, fail_on_data_loss=False)
    assert found.offset_ranges == [offset_range(0, 6)]


def test_missing_queue_is_an_error_unless_nothing_was_to_be_read() -> None:
    now = snapshot({}, brokers=["broker-a"])
    assert offset_ranges(offsets({A0: 3}), offsets({A0: 3}), now) == ([], [])
    with pytest.raises(DataLost, match="does not exist any more"):
        offset_ranges(offsets({A0: 3}), offsets({A0: 4}), now)
    with pytest.raises(DataLost, match="broker is no longer registered"):
        offset_ranges(offsets({B0: 3}), offsets({B0: 4}), now)


@pytest.mark.parametrize("told", [(0, 5), (4, 12), (20, 30)])
def test_range_a_slave_lacks_is_left_to_the_reader(told: tuple[int, int]) -> None:
    now = snapshot({A0: told}, answered_by_slave=["broker-a"])
    assert offset_ranges(offsets({A0: 3}), offsets({A0: 9}), now) == ([offset_range(3, 9)], [])


def test_ranges_are_split_into_the_wanted_partitions() -> None:
    assert split([offset_range(0, 10)], partitions_min=None, records_max=None) == [
        offset_range(0, 10)
    ]
    assert split([offset_range(0, 10)], partitions_min=3, records_max=None) == [
        *(offset_range(0, 3), offset_range(3, 6), offset_range(6, 10))
    ]
    assert len(split([offset_range(0, 10)], partitions_min=None, records_max=4)) == 3
    assert len(split([offset_range(0, 2)], partitions_min=50, records_max=None)) == 2


def test_excessive_partitions_are_refused() -> None:
    with pytest.raises(UsageError, match="maxRecordsPerPartition=1: makes 200000 partitions"):
        split([offset_range(0, 200_000)], partitions_min=None, records_max=1)
