from ternmq_nameserver.metrics import add_routes
from tests.support.metrics_text import samples_of
from tests.support.registrations import master, slave, table_with, topics

NODE = ("", "nameserver", "ns:9876")


def test_routes_are_counted_by_cluster_and_names_without_a_master_shown() -> None:
    table = table_with(
        master("a", topics=topics("t", "u")), slave("a", 1), slave("b", 1), master("x", cluster="d")
    )
    found = samples_of(lambda scrape: add_routes(scrape, NODE, table))
    assert {each.labels["node_id"] for each in found} == {"ns:9876"}
    assert {(each.name, each.labels["cluster"], each.labels.get("broker")): each.value
            for each in found} == {
        ("ternmq_nameserver_brokers", "c", None): 3,
        ("ternmq_nameserver_brokers", "d", None): 1,
        ("ternmq_nameserver_without_master", "c", "b"): 1,
        ("ternmq_nameserver_topics", "", None): 2,
    }  # fmt: skip


def test_empty_table_has_no_topics_and_no_brokers() -> None:
    (topic_count,) = samples_of(lambda scrape: add_routes(scrape, NODE, table_with()))
    assert (topic_count.name, topic_count.value) == ("ternmq_nameserver_topics", 0)
