"""Tags that producers take are those that subscriptions can name."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ternmq_model.errors import IllegalMessage, UsageError
from ternmq_model.properties import check_tag
from ternmq_model.subscription import ALL_TAGS, parse_subscription
from tests.support.examples import examples

TAGS = st.text(
    st.sampled_from("a|* \t\x00\x05\x1b\x7f\x85\xa0\u3000") | st.characters(codec="utf-8"),
    min_size=1,
).filter(lambda tag: not {"\x01", "\x02"} & set(tag))  # refused in every property


def is_taken(tag: str) -> bool:
    try:
        check_tag(tag)
    except IllegalMessage:
        return False
    return True


def can_be_named(tag: str) -> bool:
    try:
        return tag in (parse_subscription("T", tag).tags or {ALL_TAGS})
    except UsageError:
        return False


@given(TAGS)
@example("\u3000")
@example("\u3000a")
@example("a\xa0")
@example("\x05a")
@example("\x1ba")
@example("a|b")
@example("a||b")
@example("*")
@example(" * ")
@example("a" * 4096)
@example("a" * 4097)
@settings(max_examples=examples(300))
def test_tag_is_taken_exactly_when_subscription_can_name_it(tag: str) -> None:
    assert is_taken(tag) == can_be_named(tag)
