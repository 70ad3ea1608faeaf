from ternmq_broker.memory import is_hot, memory_bytes


def test_this_machine_has_some_memory() -> None:
    assert memory_bytes() > 1 << 20


def test_the_newest_40_percent_of_the_memory_are_hot() -> None:
    assert is_hot(400, 1000)
    assert not is_hot(401, 1000)
