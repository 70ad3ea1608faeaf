from ternmq_broker.storage.memory_limit import memory_bytes


def test_memory_size_of_this_machine_is_known() -> None:
    assert memory_bytes() > 1 << 20
