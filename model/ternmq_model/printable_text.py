"""Texts made printable for terminals and logs: names and bodies come from whoever sends messages.

A character that `is_printable` denies is shown as its escape: C0 and C1 controls, DEL, marks that
turn the direction of a line, line and paragraph separators, lone surrogates, and unassigned
characters.
"""

import json
from collections.abc import Callable
from functools import cache
from typing import Final
from unicodedata import category

_JOINERS: Final = "\u00ad\u200c\u200d"
"""The soft hyphen, and what parts and joins letters of Persian or Hindi and emoji of a family."""

_REMEMBERED: Final = 1 << 16
"""Characters below are looked up once: 64 Ki entries are 9 MB, of 17 times as many characters."""


def is_printable(character: str) -> bool:
    """Tell whether a terminal gets a character as it is: it is printable, a blank, or a joiner."""
    return character.isprintable() or character in _JOINERS or category(character) == "Zs"


def printable(text: str, *, keep: str = "") -> str:
    r"""Return `text` with an escape such as `\x1b` or `\u202e` for each character not shown.

    Args:
        text: Anything.
        keep: Characters that stay as they are: where the text may have several lines, a line feed.
    """
    return text if text.isprintable() else text.translate(_escapes(_python_escape, keep))


def printable_json(
    value: object,
    *,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    ensure_ascii: bool = False,
    default: Callable[[object], object] | None = None,
) -> str:
    r"""Return `value` as JSON that a terminal can show: characters not shown are `\uXXXX`.

    It means the same to a parser. The arguments are those of `json.dumps`.
    """
    text = json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, default=default
    )
    return text if text.isprintable() else text.translate(_escapes(_json_escape, "\n"))


def _python_escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _json_escape(character: str) -> str:
    return json.dumps(character)[1:-1]


class _Escapes(dict[int, str]):
    """The table of `str.translate`: a character's escape, filled on first use."""

    def __init__(self, escape: Callable[[str], str], keep: str) -> None:
        super().__init__((ord(one), one) for one in keep)
        self._escape = escape

    def __missing__(self, code: int) -> str:
        one = chr(code)
        shown = one if is_printable(one) else self._escape(one)
        if code < _REMEMBERED:
            self[code] = shown
        return shown


_escapes = cache(_Escapes)
