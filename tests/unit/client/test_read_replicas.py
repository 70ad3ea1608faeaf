"""Which member of a broker name consumers talk to."""

import pytest

from ternmq_client.read_replicas import ReadReplicas, member_to_ask


@pytest.mark.parametrize(
    ("members", "away", "asked"),
    [
        ([0, 1, 2], [], 0),
        ([0, 1, 2], [0], 1),
        ([0, 1, 2], [0, 1], 2),
        ([1, 2], [], 1),
        ([2, 1], [1], 2),
        ([0], [0], 0),
        ([1], [1], 0),
        ([], [], 0),
    ],
)
def test_master_is_asked_or_else_the_first_present_slave(
    members: list[int], away: list[int], asked: int
) -> None:
    assert member_to_ask(members, away) == asked


def test_slave_stands_in_until_the_master_is_reachable() -> None:
    known = ReadReplicas()
    assert known.asked("b") is None
    assert known.choose("b", [0, 1]) == 0
    known.missed("b", 0)
    assert known.choose("b", [0, 1]) == 1
    assert known.masters_away == ["b"]
    known.reached("b", 0, 3)
    assert known.choose("b", [0, 1]) == 0
    assert known.masters_away == []
    assert known.choose("other", [0, 1]) == 0


def test_absent_members_are_all_tried_again() -> None:
    known = ReadReplicas()
    known.missed("b", 0)
    known.missed("b", 1)
    assert known.choose("b", [0, 1]) == 0
    known.missed("b", 0)
    assert known.choose("b", [0, 1]) == 1


def test_newest_epoch_counts() -> None:
    known = ReadReplicas()
    assert known.epoch("b") == 0
    known.reached("b", 0, 1000)
    known.reached("b", 1, 2)
    assert known.epoch("b") == 1000
