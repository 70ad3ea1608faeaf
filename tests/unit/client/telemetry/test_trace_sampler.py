"""Sampling of messages ahead of their spans."""

from random import Random

import pytest

from ternmq_client.telemetry.trace_sampler import TraceSampler


@pytest.mark.parametrize(("ratio", "expected"), [(0.0, []), (1.0, [0, 1, 2])])
def test_sampler_takes_none_or_all_at_the_ends(ratio: float, expected: list[int]) -> None:
    assert TraceSampler(ratio, Random(1)).picks(3) == expected
    sampler = TraceSampler(ratio, Random(1))
    assert [index for index in range(3) if sampler.takes()] == expected


def test_sampler_takes_its_part_of_the_messages() -> None:
    sampler = TraceSampler(0.01, Random(7))
    assert 900 < sum(sampler.takes() for _ in range(100_000)) < 1_100


def test_sampler_picks_the_same_messages_in_one_call_and_one_by_one() -> None:
    single, bulk = TraceSampler(0.2, Random(3)), TraceSampler(0.2, Random(3))
    expected = [index for index in range(300) if single.takes()]
    found = [
        begin + at for begin, count in [(0, 70), (70, 1), (71, 229)] for at in bulk.picks(count)
    ]
    assert found == expected
