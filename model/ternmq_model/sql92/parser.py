"""Parser of the text of a condition to its tree, by recursive descent. Pure.

Operators in ascending order of precedence: OR, AND, equality, comparison, sign and NOT. The length
of a condition, its depth and its number of parts are bounded.

Source: RocketMQ `SelectorParser.jj`, `ComparisonExpression`, `ConstantExpression`.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ternmq_model.errors import UsageError
from ternmq_model.sql92.tokenizer import Token, Tokenizer, TokenKind
from ternmq_model.sql92.tree import (
    AllOf,
    AnyOf,
    Equal,
    HasText,
    IsNull,
    Literal,
    Negative,
    Node,
    Not,
    OneOf,
    Ordered,
    Property,
    Truth,
    is_number,
    is_truth_value,
)
from ternmq_model.sql92.values import DOUBLE_LEAST, LONG_MAX, compare

DEPTH_MAX: Final = 64
"""Most levels of nested parts."""

NODES_MAX: Final = 1024
"""Most parts of a condition, the bound of its evaluation's cost."""

_ORDERS: Final = frozenset({"<", "<=", ">", ">="})
_TEXT_TESTS: Final = frozenset({"CONTAINS", "STARTSWITH", "ENDSWITH"})
_AFTER_NOT: Final = _TEXT_TESTS | {"BETWEEN", "IN"}


class ParsedCondition(NamedTuple):
    """Parsed condition."""

    tree: Node
    nodes: int
    """Number of its parts."""

    ignored_from: int | None
    """Position from which on the text is ignored; None = none is ignored."""


class _ParsedNode(NamedTuple):
    node: Node
    depth: int


def parse(text: str) -> ParsedCondition:
    """Parse a condition.

    As in RocketMQ, a condition ends before the first token that does not fit, and the rest is
    ignored.

    Raises:
        UsageError: The text is no condition or exceeds the bounds. The error has the position.
    """
    tokens = Tokenizer(text)
    parser = _Parser(tokens)
    if tokens.peek().kind is TokenKind.END:
        raise UsageError("SQL92: the expression is empty")
    part = parser.truth(parser.any_of(), tokens.peek())
    rest = tokens.peek()
    ignored_from = None if rest.kind is TokenKind.END else rest.position
    return ParsedCondition(part.node, parser.nodes, ignored_from)


class _Parser:
    """Parser of one condition."""

    def __init__(self, tokens: Tokenizer) -> None:
        self._tokens = tokens
        self._nesting = 0
        self.nodes = 0

    def any_of(self) -> _ParsedNode:
        """Parse parts joined by OR."""
        return self._joined("OR", self._all_of, AnyOf)

    def _all_of(self) -> _ParsedNode:
        return self._joined("AND", self._equality, AllOf)

    def _joined(
        self, word: str, operand: Callable[[], _ParsedNode], make: Callable[[Sequence[Node]], Node]
    ) -> _ParsedNode:
        first = operand()
        parts: list[_ParsedNode] = []
        while self._is_keyword(token := self._tokens.peek(), word):
            self._tokens.take()
            if not parts:
                parts.append(self.truth(first, token))
            parts.append(self.truth(operand(), token))
        if not parts:
            return first
        return self._made(make([part.node for part in parts]), token, *parts)

    def _equality(self) -> _ParsedNode:
        left = self._comparison()
        while True:
            token = self._tokens.peek()
            if token.kind is TokenKind.SYMBOL and token.text in ("=", "<>"):
                self._tokens.take()
                right = self._comparison()
                self._check_equal(left.node, right.node, token)
                same = self._made(Equal(left.node, right.node), token, left, right)
                left = same if token.text == "=" else self._made(Not(same.node), token, same)
            elif self._is_keyword(token, "IS"):
                self._tokens.take()
                is_negated = self._is_keyword(self._tokens.peek(), "NOT")
                if is_negated:
                    self._tokens.take()
                self._expect("NULL")
                missing = self._made(IsNull(left.node), token, left)
                left = self._made(Not(missing.node), token, missing) if is_negated else missing
            else:
                return left

    def _comparison(self) -> _ParsedNode:
        left = self._unary()
        while True:
            token = self._tokens.peek()
            is_negated = self._is_keyword(token, "NOT")
            word = self._tokens.peek(1).text if is_negated else token.text
            if token.kind is TokenKind.SYMBOL and token.text in _ORDERS:
                self._tokens.take()
                left = self._ordered(left, token.text, self._unary(), token)
            elif is_negated and word not in _AFTER_NOT:
                raise self._tokens.error(
                    token.position, "NOT must precede the condition that it negates,"
                )
            elif token.kind is TokenKind.KEYWORD and word in _AFTER_NOT:
                self._tokens.take()
                if is_negated:
                    self._tokens.take()
                left = self._tested(left, word, is_negated=is_negated, token=token)
            else:
                return left

    def _tested(
        self, left: _ParsedNode, word: str, *, is_negated: bool, token: Token
    ) -> _ParsedNode:
        if word == "BETWEEN":
            return self._between(left, is_negated=is_negated, token=token)
        if word == "IN":
            strings = self._strings()
            if not isinstance(left.node, Property):
                raise self._tokens.error(token.position, "IN follows the name of a property,")
            return self._made(OneOf(left.node, strings, is_negated), token, left)
        text = self._string()
        return self._made(HasText(left.node, word, text, is_negated), token, left)

    def _between(self, value: _ParsedNode, *, is_negated: bool, token: Token) -> _ParsedNode:
        low = self._unary()
        self._expect("AND")
        high = self._unary()
        if is_negated:
            below = self._ordered(value, "<", low, token)
            above = self._ordered(value, ">", high, token)
            return self._made(AnyOf((below.node, above.node)), token, below, above)
        above = self._ordered(value, ">=", low, token)
        below = self._ordered(value, "<=", high, token)
        if isinstance(low.node, Literal) and isinstance(high.node, Literal):
            least, most = low.node.value, high.node.value
            assert isinstance(least, int | float), "it has an order"
            assert isinstance(most, int | float), "it has an order"
            if compare(most, least) < 0:
                raise self._tokens.error(token.position, f"{least} is more than {most},")
        return self._made(AllOf((above.node, below.node)), token, above, below)

    def _unary(self) -> _ParsedNode:
        token = self._tokens.peek()
        is_sign = token.kind is TokenKind.SYMBOL and token.text in ("+", "-")
        if not is_sign and not self._is_keyword(token, "NOT"):
            return self._primary()
        self._tokens.take()
        with_sign = self._nested(self._unary, token)
        if token.text == "+":
            return with_sign
        if token.text == "-":
            return self._made(Negative(with_sign.node), token, with_sign)
        part = self.truth(with_sign, token)
        return self._made(Not(part.node), token, part)

    def _primary(self) -> _ParsedNode:
        token = self._tokens.take()
        if token.kind is TokenKind.NAME:
            return self._made(Property(token.text), token)
        if token.kind is TokenKind.SYMBOL and token.text == "(":
            part = self._nested(self.any_of, token)
            self._expect(")")
            return part
        return self._made(self._literal(token), token)

    def _literal(self, token: Token) -> Literal:
        text = token.text
        match token.kind:
            case TokenKind.STRING:
                return Literal(_unquoted(text))
            case TokenKind.INTEGER:
                number = int(text.rstrip("lL"))
                if number > LONG_MAX:
                    raise self._tokens.error(token.position, "the number has more than 64 bits,")
                return Literal(number)
            case TokenKind.FLOAT:
                value = float(text)
                if value < DOUBLE_LEAST or value == float("inf"):
                    rule = "a number with a point or an exponent must be above 0 and finite,"
                    raise self._tokens.error(token.position, rule)
                return Literal(value)
            case TokenKind.KEYWORD if text in _LITERALS:
                return Literal(_LITERALS[text])
            case _:
                raise self._tokens.error(token.position, "a value or a property is missing")

    def _strings(self) -> frozenset[str]:
        self._expect("(")
        strings = [self._string()]
        while (token := self._tokens.peek()).kind is TokenKind.SYMBOL and token.text == ",":
            self._tokens.take()
            strings.append(self._string())
        self._expect(")")
        return frozenset(strings)

    def _string(self) -> str:
        token = self._tokens.take()
        if token.kind is not TokenKind.STRING:
            raise self._tokens.error(token.position, "a string in single quotes is missing")
        return _unquoted(token.text)

    def _expect(self, text: str) -> None:
        token = self._tokens.take()
        if token.kind not in (TokenKind.KEYWORD, TokenKind.SYMBOL) or token.text != text:
            raise self._tokens.error(token.position, f"{text} is missing")

    def truth(self, part: _ParsedNode, token: Token) -> _ParsedNode:
        """Return a part as a truth value, for the operator `token`.

        Raises:
            UsageError: The part is a number or a string.
        """
        if is_truth_value(part.node):
            return part
        if isinstance(part.node, Property):
            return self._made(Truth(part.node), token, part)
        raise self._tokens.error(token.position, "a number or a string is no condition,")

    def _ordered(
        self, left: _ParsedNode, symbol: str, right: _ParsedNode, token: Token
    ) -> _ParsedNode:
        for node in (left.node, right.node):
            is_wrong = isinstance(node, Literal) and not is_number(node.value)
            if is_wrong or is_truth_value(node):
                raise self._tokens.error(token.position, "only numbers and properties are ordered,")
        return self._made(Ordered(left.node, symbol, right.node), token, left, right)

    def _check_equal(self, left: Node, right: Node, token: Token) -> None:
        literals = [node.value for node in (left, right) if isinstance(node, Literal)]
        if None in literals:
            raise self._tokens.error(token.position, "nothing equals NULL: write IS [NOT] NULL,")
        if len(literals) == 2 and isinstance(literals[0], bool) > isinstance(literals[1], bool):
            raise self._tokens.error(token.position, "TRUE and FALSE are no strings or numbers,")

    def _nested(self, read: Callable[[], _ParsedNode], token: Token) -> _ParsedNode:
        self._nesting += 1
        self._check_depth(self._nesting, token)
        part = read()
        self._nesting -= 1
        return part

    def _made(self, node: Node, token: Token, *parts: _ParsedNode) -> _ParsedNode:
        self.nodes += 1
        if self.nodes > NODES_MAX:
            raise self._tokens.error(token.position, f"more than {NODES_MAX} parts")
        depth = 1 + max((part.depth for part in parts), default=0)
        self._check_depth(depth, token)
        return _ParsedNode(node, depth)

    def _check_depth(self, depth: int, token: Token) -> None:
        if depth > DEPTH_MAX:
            raise self._tokens.error(
                token.position, f"parts are nested more than {DEPTH_MAX} levels deep"
            )

    def _is_keyword(self, token: Token, word: str) -> bool:
        return token.kind is TokenKind.KEYWORD and token.text == word


_LITERALS: Final[dict[str, bool | None]] = {"TRUE": True, "FALSE": False, "NULL": None}


def _unquoted(image: str) -> str:
    return image[1:-1].replace("''", "'")
