"""Tokenizer of the text of a condition: one token at a time. Pure.

Only as much is read as the parser asks for: what follows a condition is ignored, and need not
consist of tokens.

Source: RocketMQ `SelectorParser.jj`.
"""

import enum
import re
from typing import Final, NamedTuple

from ternmq_model.errors import UsageError
from ternmq_model.expression_text import EXPRESSION_CHARACTERS_MAX

_EXCERPT_CHARACTERS: Final = 24

KEYWORDS: Final = frozenset(
    {
        "AND", "BETWEEN", "CONTAINS", "ENDSWITH", "FALSE", "IN", "IS", "NOT", "NULL", "OR",
        "STARTSWITH", "TRUE",
    }
)  # fmt: skip
"""Written in any case; no property can have such a name."""


class TokenKind(enum.Enum):
    """The kind of a token."""

    KEYWORD = "keyword"
    NAME = "name"
    INTEGER = "integer"
    FLOAT = "float"
    STRING = "string"
    SYMBOL = "symbol"
    END = "end"


class Token(NamedTuple):
    """One token."""

    kind: TokenKind
    text: str
    """As it is written; a keyword in capitals."""

    position: int
    """Position of its first character."""


_SKIPPED: Final = re.compile(
    r"(?:[ \t\n\r\f]+|--[^\n\r]*(?:\r\n|\n|\r)|/\*[^*]*\*(?:\*|[^*/][^*]*\*)*/)+"
)
"""Blanks and comments. A `--` without an end of line after it is no comment: two signs."""

_TOKEN: Final = re.compile(
    r"(?P<NAME>[A-Za-z_$][A-Za-z0-9_$]*)"
    r"|(?P<FLOAT>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?"
    r"|[0-9]+[eE][+-]?[0-9]+)"
    r"|(?P<INTEGER>0|[1-9][0-9]*[lL]?)"
    r"|(?P<STRING>'(?:''|[^'])*')"
    r"|(?P<SYMBOL><>|<=|>=|[=<>(),+-])"
)


class Tokenizer:
    """The tokens of one text, in order.

    Raises:
        UsageError: The text is too long.
    """

    def __init__(self, text: str) -> None:
        if len(text) > EXPRESSION_CHARACTERS_MAX:
            raise UsageError(
                f"SQL92: the expression has {len(text)} characters, at most "
                f"{EXPRESSION_CHARACTERS_MAX} are read"
            )
        self._text = text
        self._position = 0
        self._ahead: list[Token] = []

    def peek(self, count: int = 0) -> Token:
        """Return the next token, or the one `count` tokens behind it, without taking it.

        Raises:
            UsageError: What is there is none.
        """
        while len(self._ahead) <= count:
            self._ahead.append(self._scan())
        return self._ahead[count]

    def take(self) -> Token:
        """Return the next token and go on behind it.

        Raises:
            UsageError: What is there is none.
        """
        token = self.peek()
        del self._ahead[0]
        return token

    def error(self, position: int, what: str) -> UsageError:
        """Return the error that tells where in the text something is wrong; characters from 1."""
        rest = self._text[position : position + _EXCERPT_CHARACTERS]
        where = f"at character {position + 1}, {rest!r}" if rest else "at the end"
        return UsageError(f"SQL92: {what} {where}")

    def _scan(self) -> Token:
        text = self._text
        skipped = _SKIPPED.match(text, self._position)
        position = self._position if skipped is None else skipped.end()
        if position == len(text):
            return Token(TokenKind.END, "", position)
        found = _TOKEN.match(text, position)
        if found is None:
            raise self.error(position, _why_none(text[position]))
        self._position = found.end()
        kind, image = TokenKind[found.lastgroup or ""], found.group()
        if kind is TokenKind.NAME and image.upper() in KEYWORDS:
            return Token(TokenKind.KEYWORD, image.upper(), position)
        return Token(kind, image, position)


def _why_none(character: str) -> str:
    if character == "'":
        return "a string does not end,"
    if character == '"':
        return "strings stand in single quotes,"
    return f"{character!r} has no meaning"
