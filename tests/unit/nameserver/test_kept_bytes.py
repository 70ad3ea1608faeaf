from ternmq_model.address import Address
from ternmq_model.route import TopicConfig
from ternmq_nameserver.kept_bytes import member_bytes, topics_bytes


def test_topic_counts_its_name_and_member_its_texts_and_hosts() -> None:
    assert topics_bytes(map(TopicConfig, ("t", "long"))) == 2 * 512 + 5
    assert (
        member_bytes(("c", "ab"), (Address("h", 1), Address("host", 2))) == 1_024 + 3 + 2 * 256 + 5
    )
