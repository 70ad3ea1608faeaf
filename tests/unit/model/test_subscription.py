"""Tag expressions."""

import pytest

from ternmq_model.errors import TernError
from ternmq_model.properties import tag_code
from ternmq_model.subscription import SQL92, parse_subscription, sql


@pytest.mark.parametrize("expression", ["*", "", "  *  "])
def test_subscription_to_all_wants_every_tag(expression: str) -> None:
    subscription = parse_subscription("T", expression)
    assert subscription.tag_codes is None
    assert subscription.wants("anything")
    assert subscription.wants("")


def test_tags_are_trimmed_and_hashed() -> None:
    subscription = parse_subscription("T", " a ||b|| ")
    assert subscription.tags == {"a", "b"}
    assert subscription.tag_codes == frozenset({tag_code("a"), tag_code("b")})
    assert subscription.wants("a")
    assert not subscription.wants("c")


def test_tags_of_one_code_are_told_apart_by_the_client() -> None:
    assert tag_code("Aa") == tag_code("BB")
    assert not parse_subscription("T", "Aa").wants("BB")


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        ("a\t|| \x01b ", {"a", "b"}),
        ("a ||", {"a"}),
        ("|| a", {"a"}),
        ("a||||a", {"a"}),
        ("|||", {"|"}),
        ("a | b", {"a | b"}),
        ("a||*", {"a", "*"}),
        ("\u3000", {"\u3000"}),
        ("a||\u00a0", {"a", "\u00a0"}),
    ],
)
def test_tags_are_parsed_as_in_rocketmq(expression: str, tags: set[str]) -> None:
    assert parse_subscription("T", expression).tags == tags


@pytest.mark.parametrize("expression", ["||", " || || ", "\x01||\t", "x" * 5000])
def test_expressions_without_a_tag_are_refused(expression: str) -> None:
    with pytest.raises(TernError, match="'T'"):
        parse_subscription("T", expression)


def test_sql92_subscription_asks_for_properties() -> None:
    subscription = parse_subscription("T", "a > 3 AND TAGS = 'x'", SQL92, version_ms=7)
    assert subscription.expression_type == SQL92
    assert subscription.tag_codes is None
    assert subscription.matches({"a": "4", "TAGS": "x"})
    assert not subscription.matches({"a": "4", "TAGS": "y"})
    assert not subscription.matches({})


def test_tag_subscription_matches_by_the_real_tag() -> None:
    subscription = parse_subscription("T", "Aa")
    assert subscription.matches({"TAGS": "Aa"})
    assert not subscription.matches({"TAGS": "BB"})
    assert not subscription.matches({})


def test_subscriptions_with_the_same_filter_are_told_apart_from_others() -> None:
    one = parse_subscription("T", "a || b", version_ms=1)
    assert one.has_same_filter(parse_subscription("T", "b||a", version_ms=2))
    assert not one.has_same_filter(parse_subscription("T", "a"))
    condition = parse_subscription("T", "a = 1", SQL92)
    assert condition.has_same_filter(parse_subscription("T", "a = 1", SQL92, version_ms=9))
    assert not condition.has_same_filter(parse_subscription("T", "a = 2", SQL92))
    assert not condition.has_same_filter(parse_subscription("T", "*"))


@pytest.mark.parametrize(
    ("expression", "expression_type", "why"),
    [("a >", SQL92, "'T': SQL92: .* at the end"), ("", SQL92, "empty"), ("a", "SQL99", "SQL99")],
)
def test_malformed_subscription_is_refused(expression: str, expression_type: str, why: str) -> None:
    with pytest.raises(TernError, match=why):
        parse_subscription("T", expression, expression_type)


def test_sql_reads_its_condition_at_once() -> None:
    assert sql("a = 1") == ("a = 1", SQL92)
    with pytest.raises(TernError, match="SQL92"):
        sql("a = ")
