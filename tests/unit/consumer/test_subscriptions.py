import logging

import pytest

from ternmq_consumer.subscriptions import (
    Subscriptions,
    subscription_message,
    subscription_to,
    subscriptions_by_topic,
)
from ternmq_model.errors import IllegalName, UsageError
from ternmq_model.subscription import SQL92, parse_subscription, sql


def test_topic_alone_subscribes_to_all_of_it() -> None:
    (one,) = subscriptions_by_topic("orders").values()
    assert (one.topic, one.expression, one.tag_codes) == ("orders", "*", None)


def test_topics_have_tags_or_conditions() -> None:
    found = subscriptions_by_topic({"orders": "eu || jp", "payments": sql("amount > 100")})
    assert found["orders"].tags == {"eu", "jp"}
    assert found["payments"].expression_type == SQL92
    assert found["payments"].matches({"amount": "101"})


def test_subscription_objects_are_taken_as_they_are() -> None:
    one, two = parse_subscription("a", "x"), parse_subscription("b", "c = 1", SQL92)
    assert subscriptions_by_topic([one, two]) == {"a": one, "b": two}
    assert subscriptions_by_topic(two) == {"b": two}


def test_illegal_subscriptions_are_refused() -> None:
    one = parse_subscription("a", "x")
    wrongs: list[Subscriptions] = [[], {}, [one, one]]
    for wrong in wrongs:
        with pytest.raises(UsageError, match="at least one topic, and each topic once"):
            subscriptions_by_topic(wrong)
    with pytest.raises(UsageError, match="names no tag"):
        subscriptions_by_topic({"a": "||"})
    with pytest.raises(IllegalName):
        subscriptions_by_topic({"a b": "*"})
    with pytest.raises(UsageError, match="at the end"):
        sql("a =")


def test_expression_type_is_sent_to_brokers() -> None:
    told = subscription_message(subscription_to("t", sql("a = 1"), version_ms=7))
    assert (told.topic, told.expression_type, told.expression) == ("t", "SQL92", "a = 1")
    assert told.version_ms == 7
    assert subscription_message(subscription_to("t", "x")).expression_type == "TAG"


def test_ignored_text_behind_a_condition_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        subscription_to("t", sql("a = 1 LIKE 'x'"))
    assert "\"LIKE 'x'\"" in caplog.text
