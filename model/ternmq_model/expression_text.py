"""Bounds of expressions and tags as text: their length, and the blanks around them. Pure.

Source: RocketMQ `FilterAPI`, Java's `String.trim`.
"""

from typing import Final

EXPRESSION_CHARACTERS_MAX: Final = 4096

_JAVA_BLANKS: Final = "".join(map(chr, range(33)))


def trimmed(text: str) -> str:
    """Return `text` without the blanks around it that Java's `trim` removes.

    They are fewer characters than `str.strip` takes (U+00A0 and U+3000 stay), and others (control
    characters go).
    """
    return text.strip(_JAVA_BLANKS)
