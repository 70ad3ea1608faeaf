import json

import pytest

from ternmq_model.printable_text import printable, printable_json


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("plain ÄÖ 中文 é", "plain ÄÖ 中文 é"),
        ("\x1b[2J", r"\x1b[2J"),
        ("a\r\n\tb", r"a\r\n\tb"),
        ("\x7f\x9b\x00", r"\x7f\x9b\x00"),
        ("\u2028\u2029\u202e\u2066", r"\u2028\u2029\u202e\u2066"),
        ("\udc9b", r"\udc9b"),
        ("\U000e0001", r"\U000e0001"),
        ("C:\\x1b", "C:\\x1b"),
        ("\u200b\u200e\u200f\ufeff", r"\u200b\u200e\u200f\ufeff"),
        ("\U0001f468\x1b\u4e2d", "\U0001f468\\x1b\u4e2d"),
    ],
)
def test_unprintable_character_is_shown_as_its_escape(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",  # Persian, with a non-joiner
        "\u0915\u094d\u200d\u0937",  # Hindi, with a joiner
        "\U0001f468\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f",  # a family, a heart
        "\u6771\u4eac\u3000\u5927\u962a",  # Japanese, with its blank
        "1\u202f000\u00a0\u20ac, Donau\u00addampf",  # French and German
    ],
)
def test_ordinary_text_of_any_language_is_shown_as_it_is(text: str) -> None:
    assert printable(text) == text
    assert printable(text + "\x1b") == text + r"\x1b"
    assert printable_json(text) == f'"{text}"'


def test_kept_characters_stay() -> None:
    assert printable("a\tb\n\x1b", keep="\n") == "a\\tb\n\\x1b"


def test_json_keeps_its_layout_and_its_meaning() -> None:
    told = {"k\x9b": ["\x1b\n", "\U000e0001", "é中"], "n": 1}
    text = printable_json(told, indent=1)
    assert text == (
        '{\n "k\\u009b": [\n  "\\u001b\\n",\n  "\\udb40\\udc01",\n  "é中"\n ],\n "n": 1\n}'
    )
    assert json.loads(text) == told
    assert printable_json({"a": 1}, separators=(",", ":")) == '{"a":1}'
    assert printable_json("é\x7f", ensure_ascii=True) == r'"\u00e9\u007f"'
    assert printable_json([object], default=lambda _: "\x9b") == '["\\u009b"]'
