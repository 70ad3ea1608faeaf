from ternmq_pipeline.planning.apportionment import apportion


def test_shares_are_in_proportion() -> None:
    assert apportion({"a": 60, "b": 30, "c": 10}, 10) == {"a": 5, "b": 3, "c": 2}


def test_sufficient_budget_is_shared_whole() -> None:
    assert apportion({"a": 3, "b": 0}, 3) == {"a": 3, "b": 0}


def test_smallest_queue_does_not_starve_beside_large_ones() -> None:
    assert apportion({"a": 1_000_000, "b": 1}, 2) == {"a": 1, "b": 1}


def test_first_keys_get_one_each_when_there_is_not_one_for_all() -> None:
    assert apportion({"a": 0, "b": 9, "c": 9, "d": 9}, 2) == {"a": 0, "b": 1, "c": 1, "d": 0}
