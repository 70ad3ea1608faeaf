from ternmq_model.data_version import DataVersion


def test_change_counts_even_when_the_clock_went_back() -> None:
    version = DataVersion(1_000, 5)
    assert version.next(900) == DataVersion(900, 6)
    assert version.next(900) > version


def test_state_version_comes_before_counter_and_counter_before_time() -> None:
    ordered = [
        DataVersion(9, 9, 0),
        DataVersion(1, 1, 1),
        DataVersion(2, 1, 1),
        DataVersion(1, 2, 1),
        DataVersion(0, 0, 2),
    ]
    assert sorted(reversed(ordered)) == ordered
    assert ordered[0] < ordered[1] <= ordered[2] < ordered[3]
    assert ordered[4] >= ordered[3]
