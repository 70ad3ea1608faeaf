import pytest

from ternmq_model.permission import (
    CLUSTER,
    Action,
    Resource,
    ResourceKind,
    of_group,
    to_administer,
    to_publish,
    to_read,
)

ORDERS = Resource(ResourceKind.TOPIC, "orders")
SHOP = Resource(ResourceKind.GROUP, "shop")


def test_resources_are_written_as_users_write_them() -> None:
    assert list(map(str, (CLUSTER, ORDERS, SHOP))) == ["cluster", "topic:orders", "group:shop"]


def test_topic_of_users_needs_its_own_permission() -> None:
    assert to_publish("orders") == (Action.PUBLISH, ORDERS)
    assert to_read("orders") == (Action.SUBSCRIBE, ORDERS)
    assert to_administer("orders") == (Action.ADMIN, ORDERS)
    assert of_group("shop") == (Action.SUBSCRIBE, SHOP)


@pytest.mark.parametrize("prefix", ["%RETRY%", "%DLQ%"])
def test_topics_of_a_group_belong_to_its_members(prefix: str) -> None:
    assert to_read(prefix + "shop") == of_group("shop")
    assert to_administer(prefix + "shop") == (Action.ADMIN, SHOP)


def test_members_send_to_the_retry_topic_and_administrators_to_the_dead_letters() -> None:
    assert to_publish("%RETRY%shop") == of_group("shop")
    assert to_publish("%DLQ%shop") == (Action.ADMIN, SHOP)


def test_system_topics_belong_to_the_cluster() -> None:
    for topic in ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer"):
        assert to_read(topic) == to_publish(topic) == (Action.ADMIN, CLUSTER)


def test_traces_and_replies_are_sent_by_every_known_identity_and_read_by_administrators() -> None:
    assert to_publish("RMQ_SYS_TRACE_TOPIC") is None
    assert to_publish("DefaultCluster_REPLY_TOPIC", is_reply=True) is None
    assert to_publish("orders", is_reply=True) == (Action.PUBLISH, ORDERS)
    for topic in ("RMQ_SYS_TRACE_TOPIC", "DefaultCluster_REPLY_TOPIC"):
        assert to_read(topic) == to_administer(topic) == (Action.ADMIN, CLUSTER)


def test_topic_of_replies_is_no_topic_of_a_tenant() -> None:
    assert to_publish("orders_REPLY_TOPIC") == (Action.ADMIN, CLUSTER)
