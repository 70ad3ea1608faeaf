"""Tokenizer of the text of a condition, one token at a time. Pure.

The tokenizer reads only as far as the parser needs: the text behind a condition is ignored and need
not consist of tokens.

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
"""Keywords, in any case. No property can have such a name."""


class TokenKind(enum.Enum):
    """Kind of a token."""

    KEYWORD = "keyword"
    NAME = "name"
    INTEGER = "integer"
    FLOAT = "float"
    STRING = "string"
    SYMBOL = "symbol"
    END = "end"


class Token(NamedTuple):
    """Token of a condition."""

    kind: TokenKind
    text: str
    """Text of the token; a keyword in capitals."""

    position: int
    """Position of the first character."""


_SKIPPED: Final = re.compile(
    r"(?:[ \t\n\r\f]+|--[^\n\r]*(?:\r\n|\n|\r)|/\*[^*]*\*(?:\*|[^*/][^*]*\*)*/)+"
)
"""Blanks and comments. A `--` without an end of line behind it is not a comment but two signs."""

_TOKEN: Final = re.compile(
    r"(?P<NAME>[A-Za-z_$][A-Za-z0-9_$]*)"
    r"|(?P<FLOAT>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?"
    r"|[0-9]+[eE][+-]?[0-9]+)"
    r"|(?P<INTEGER>0|[1-9][0-9]*[lL]?)"
    r"|(?P<STRING>'(?:''|[^'])*')"
    r"|(?P<SYMBOL><>|<=|>=|[=<>(),+-])"
)


class Tokenizer:
    """Tokens of one text, in order.

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
            UsageError: The text there is no token.
        """
        while len(self._ahead) <= count:
            self._ahead.append(self._scan())
        return self._ahead[count]

    def take(self) -> Token:
        """Consume and return the next token.

        Raises:
            UsageError: The text there is no token.
        """
        token = self.peek()
        del self._ahead[0]
        return token

    def error(self, position: int, what: str) -> UsageError:
        """Return an error with the position in the text, counted from 1."""
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
        return "strings need single quotes,"
    return f"{character!r} has no meaning"
