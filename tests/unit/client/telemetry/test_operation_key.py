"""Attributes of operations by OpenTelemetry's conventions."""

from ternmq_client.telemetry.operation_key import (
    OperationKey,
    attributes_of,
    span_name,
    topic_of_all,
)


def test_attributes_have_every_known_part_of_the_key() -> None:
    key = OperationKey("settle", "10.0.0.1:10911", "orders", "billing", "BrokerBusy")
    assert attributes_of(key) == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "settle",
        "messaging.operation.type": "settle",
        "messaging.destination.name": "orders",
        "messaging.consumer.group.name": "billing",
        "error.type": "BrokerBusy",
        "server.address": "10.0.0.1",
        "server.port": 10911,
    }


def test_attributes_lack_what_is_unknown() -> None:
    assert len(attributes_of(OperationKey("send"))) == 3


def test_address_of_ipv6_has_no_brackets() -> None:
    assert attributes_of(OperationKey("send", "[::1]:1"))["server.address"] == "::1"


def test_span_is_named_by_its_operation_and_destination() -> None:
    assert span_name(OperationKey("send", topic="orders")) == "send orders"
    assert span_name(OperationKey("settle")) == "settle"


def test_messages_of_several_topics_have_no_topic_in_common() -> None:
    assert topic_of_all(["orders", "orders"]) == "orders"
    assert topic_of_all(["orders", "bills"]) == ""
    assert topic_of_all([]) == ""
