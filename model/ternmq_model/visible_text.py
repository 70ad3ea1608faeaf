"""Texts as terminals and logs may have them: names and bodies come from whoever sends messages.

A character that cannot be printed is shown as its escape. What cannot be printed is what
`str.isprintable` says: C0 and C1 controls, DEL, marks that turn the direction of a line, line and
paragraph separators, lone surrogates, and blanks other than the space.
"""

import json
from collections.abc import Callable


def visible(text: str, *, keep: str = "") -> str:
    r"""Return `text` with an escape such as `\x1b` or `\u202e` for each unprintable character.

    Args:
        text: Anything.
        keep: Characters that stay as they are: where the text may have several lines, a line feed.
    """
    return _escaped(text, keep, lambda one: one.encode("unicode_escape").decode())


def visible_json(
    value: object,
    *,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    ensure_ascii: bool = False,
    default: Callable[[object], object] | None = None,
) -> str:
    r"""Return `value` as JSON that a terminal can show: unprintable characters as `\uXXXX`.

    It means the same to a parser. The arguments are those of `json.dumps`.
    """
    text = json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, default=default
    )
    return _escaped(text, "\n", lambda one: json.dumps(one)[1:-1])


def _escaped(text: str, keep: str, escape: Callable[[str], str]) -> str:
    if text.isprintable():
        return text
    if "\n" in keep and "\n" in text:
        # Line by line is 10 times as fast as by character: most lines have nothing to escape.
        rest = keep.replace("\n", "")
        return "\n".join(_escaped(line, rest, escape) for line in text.split("\n"))
    return "".join(one if one.isprintable() or one in keep else escape(one) for one in text)
