"""Length of expressions and tags, and the blanks around them. Pure.

Source: RocketMQ `FilterAPI`, Java's `String.trim`.
"""

from typing import Final

EXPRESSION_CHARACTERS_MAX: Final = 4096

_JAVA_BLANKS: Final = "".join(map(chr, range(33)))


def trimmed(text: str) -> str:
    """Return `text` without the surrounding blanks that Java's `trim` removes.

    Unlike `str.strip`, it keeps U+00A0 and U+3000 and removes control characters.
    """
    return text.strip(_JAVA_BLANKS)
