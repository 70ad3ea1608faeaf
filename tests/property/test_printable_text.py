import json
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from ternmq_model.printable_text import is_printable, printable, printable_json

TEXTS = st.text(st.characters(codec=None))
"""Lone surrogates too."""


def is_harmless(text: str, *, keep: str = "") -> bool:
    """Tell whether a terminal shows `text` as characters, one after the other."""
    keep += "\u00ad\u200c\u200d"  # which neither move a cursor nor turn a line's direction
    kinds = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return all(one in keep or unicodedata.category(one) not in kinds for one in text)


@given(TEXTS)
def test_shown_text_has_no_controls_and_stays_when_shown_again(text: str) -> None:
    shown = printable(text)
    assert is_harmless(shown)
    assert printable(shown) == shown
    assert shown.encode().decode() == shown


@given(TEXTS)
def test_text_of_shown_characters_alone_is_shown_as_it_is(text: str) -> None:
    assert (printable(text) == text) == all(map(is_printable, text))
    assert printable(text) == "".join(map(printable, text))


@given(TEXTS)
def test_kept_line_feeds_part_what_is_shown_line_by_line(text: str) -> None:
    assert printable(text, keep="\n") == "\n".join(map(printable, text.split("\n")))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | TEXTS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
        max_leaves=10,
    ),
    st.sampled_from([None, 2]),
)
def test_json_without_controls_is_parsed_to_the_same_value(
    value: object, indent: int | None
) -> None:
    text = printable_json(value, indent=indent)
    assert is_harmless(text, keep="\n")
    assert text.encode().decode() == text
    # Two lone surrogates that make a pair are one character to every parser of JSON.
    assert json.loads(text) == json.loads(json.dumps(value))
