from ternmq_broker.memory import memory_bytes


def test_this_machine_has_some_memory() -> None:
    assert memory_bytes() > 1 << 20
