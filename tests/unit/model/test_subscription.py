"""Tag expressions."""

import pytest

from ternmq_model.errors import TernError
from ternmq_model.properties import tag_code
from ternmq_model.subscription import parse_subscription


@pytest.mark.parametrize("expression", ["*", "", "  *  "])
def test_everything_is_wanted(expression: str) -> None:
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


@pytest.mark.parametrize("expression", ["||", " || || ", "x" * 5000])
def test_expressions_without_a_tag_are_refused(expression: str) -> None:
    with pytest.raises(TernError, match="'T'"):
        parse_subscription("T", expression)
