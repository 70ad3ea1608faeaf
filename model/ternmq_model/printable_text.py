"""Printable texts for terminals and logs, from names and bodies of any sender.

A character that is not printable is shown as its escape: C0 and C1 controls, DEL, marks of the
writing direction, line and paragraph separators, lone surrogates, and unassigned characters.
"""

import json
from collections.abc import Callable
from functools import cache
from typing import Final
from unicodedata import category

_JOINERS: Final = "\u00ad\u200c\u200d"
"""Soft hyphen, and the joiners of Persian and Hindi letters and of emoji."""

_REMEMBERED: Final = 1 << 16
"""Number of characters whose escapes are cached: 64 Ki entries take 9 MB."""


def is_printable(character: str) -> bool:
    """Return whether a terminal gets a character unchanged: printable, a blank or a joiner."""
    return character.isprintable() or character in _JOINERS or category(character) == "Zs"


def printable(text: str, *, keep: str = "") -> str:
    r"""Return `text` with an escape such as `\x1b` or `\u202e` for each character not shown.

    Args:
        text: Any text.
        keep: Characters that stay unchanged, such as a line feed in a text of several lines.
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

    A parser reads the original value. The arguments are those of `json.dumps`.
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
    """Table of escapes for `str.translate`, filled on first use."""

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
