"""Properties and tags, as RocketMQ writes and reads them."""

import pytest

from ternmq_model.errors import IllegalMessage
from ternmq_model.properties import (
    check_property,
    decode_properties,
    encode_properties,
    java_hash,
    tag_code,
)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("TagA", 2598919),
        ("hello world", 1794106052),
        ("polygenelubricants", -(1 << 31)),
        ("订单", 1129459),
        ("😀", 1772899),
    ],
)
def test_hashes_equal_javas(text: str, code: int) -> None:
    assert java_hash(text) == code


def test_empty_tag_has_code_zero() -> None:
    assert tag_code("") == 0


def test_properties_survive_round_trip() -> None:
    pairs = {"KEYS": "a b", "TAGS": "t", "city": "Zürich"}
    assert decode_properties(encode_properties(pairs)) == pairs


def test_reading_drops_pairs_without_name_or_value() -> None:
    assert decode_properties(b"a\x01\x02\x01b\x02c\x02d\x01e") == {"d": "e"}


def test_value_may_hold_the_first_separator_when_read() -> None:
    assert decode_properties(b"a\x01b\x01c\x02") == {"a": "b\x01c"}


@pytest.mark.parametrize(
    ("name", "value"), [("", "v"), ("n", ""), ("n\x01", "v"), ("n", "v\x02"), ("n", "\x01")]
)
def test_unreadable_pairs_are_refused(name: str, value: str) -> None:
    with pytest.raises(IllegalMessage):
        check_property(name, value)
