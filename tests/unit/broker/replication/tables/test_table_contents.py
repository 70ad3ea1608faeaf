import pytest

from ternmq_broker.replication.tables.table_contents import parse_rows
from ternmq_broker.state.offsets import VersionedOffset
from ternmq_model.offsets import QueueOffset

LONG = "g" * 255
"""A group as RocketMQ up to 5.3 has them."""


def test_offset_rows_are_parsed_with_removals() -> None:
    rows = [["T", LONG, 1, 5, 2, 0], ["T", "G", 0, -1, 0, 1]]
    assert parse_rows({"offsets": rows}) == [
        (VersionedOffset(LONG, "T", 1, QueueOffset(5), 2), False),
        (VersionedOffset("G", "T", 0, None, 0), True),
    ]
    assert parse_rows({}) == []


@pytest.mark.parametrize(
    "row",
    [
        [],
        "T",
        ["T", "G", 1, 5, 2],
        ["../T", "G", 1, 5, 2, 0],
        ["T", "no good", 1, 5, 2, 0],
        ["T", "", 1, 5, 2, 0],
        [3, "G", 1, 5, 2, 0],
        ["T", "G", -1, 5, 2, 0],
        ["T", "G", 1 << 40, 5, 2, 0],
        ["T", "G", 1, -2, 2, 0],
        ["T", "G", 1, 1 << 62, 2, 0],
        ["T", "G", 1, 5, -1, 0],
        ["T", "G", 1, 5, 1 << 62, 0],
        ["T", "G", 1, 5.0, 0, 0],
        ["T", "G", True, 5, 0, 0],
    ],
)
def test_malformed_offset_row_is_refused(row: object) -> None:
    with pytest.raises(ValueError, match=r"offset|queue|version|topic|group"):
        parse_rows({"offsets": [row]})


def test_offsets_that_are_no_list_are_refused() -> None:
    with pytest.raises(ValueError, match="no list"):
        parse_rows({"offsets": 3})
