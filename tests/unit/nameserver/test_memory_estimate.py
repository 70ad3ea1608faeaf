from ternmq_model.address import Address
from ternmq_model.route import QUEUES_MAX, RETENTION_MS_MAX, Permission, TopicConfig
from ternmq_nameserver.memory_estimate import is_cacheable_row, member_bytes, topics_bytes
from ternmq_remoting.converters import topic_config_to_pb


def test_topic_counts_its_name_and_member_its_texts_and_hosts() -> None:
    assert topics_bytes(map(TopicConfig, ("t", "long"))) == 2 * 512 + 5
    assert (
        member_bytes(("c", "ab"), (Address("h", 1), Address("host", 2))) == 1_024 + 3 + 2 * 256 + 5
    )


def test_bytes_of_a_legal_topic_are_kept_and_longer_ones_are_not() -> None:
    config = TopicConfig(
        "t" * 127, QUEUES_MAX, QUEUES_MAX, Permission(7), -1, True, RETENTION_MS_MAX
    )
    row = topic_config_to_pb(config).SerializeToString()
    assert is_cacheable_row(row, config)
    assert not is_cacheable_row(row + b"\xfa\x07" + bytes([64]) + bytes(64), config)
