import pytest

from ternmq_broker.admin.lag import timed_offsets
from ternmq_protos.v1 import admin_pb2 as admin


@pytest.mark.parametrize(
    ("committed", "first", "end", "wanted"),
    [
        (-1, 0, 0, []),
        (-1, 0, 5, [0]),
        (-1, 3, 5, [3]),
        (0, 0, 5, [0]),
        (2, 0, 5, [1, 2]),
        (5, 0, 5, [4]),
        (2, 3, 5, [3]),
        (3, 3, 5, [3]),
        (9, 0, 5, []),
    ],
)
def test_last_consumed_and_the_next_message_are_looked_up(
    committed: int, first: int, end: int, wanted: list[int]
) -> None:
    progress = admin.GroupProgress(committed_offset=committed, min_offset=first, max_offset=end)
    assert timed_offsets(progress) == wanted
