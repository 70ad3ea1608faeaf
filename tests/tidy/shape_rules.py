"""How long things may be, and what every module has."""

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Final

from tests.tidy.source import Source, Violation

FILE_LINES_MAX: Final = 500
LONGER: Final[Mapping[str, int]] = {}
"""Files that hold one idea in more lines, each with its length: a number here may only fall."""

FUNCTION_LINES_MAX: Final = 70

NO_SUBJECT: Final = re.compile(
    r"""test_(
    a | about | across | after | again | also | although | an | and | anybody | anyone |
    anything | are | as | at | because | before | behind | between | beyond | both | but | by |
    can | does | during | either | even | ever | everybody | everyone | everything | far | few |
    fewer | for | from | he | here | how | if | in | inside | into | is | it | its | just |
    less | many | more | most | must | near | neither | never | no | nobody | none | nor | not |
    nothing | of | off | on | once | one | only | opened | or | others | out | outside | over |
    she | should | since | so | somebody | someone | something | such | than | that | the |
    their | them | then | there | these | they | this | those | though | through | to | too |
    under | unless | until | up | what | whatever | when | whenever | where | wherever |
    whether | which | while | who | whoever | whom | whose | why | will | with | within |
    without
    )_""",
    re.VERBOSE,
)
"""Articles, pronouns, prepositions, conjunctions, auxiliary verbs: none begins a test's name."""

NO_NOUN: Final = re.compile(
    r"(what|who|whom|whose|how|which|where|whether|when|why|of|likewise|as above|the same"
    r"|it|its|they|their|there|this|these|those|nothing|nobody|everything|everybody|somebody)\b",
    re.IGNORECASE,
)
"""Words that begin no docstring: a clause or a pronoun is no subject."""

NO_DESCRIPTION: Final = re.compile(
    r"\n[ ]+\*{0,2}\w+:[ ]"
    r"(what|who|whom|whose|how|which|where|whether|when|why|of|as|it|its|that|those|likewise)\b",
    re.IGNORECASE,
)
"""Begins of an argument's, a field's or an error's description that cannot be read alone."""


def files_are_short(source: Source) -> Iterator[Violation]:
    """Find files that hold more than one idea, and named exceptions that became shorter."""
    lines = len(source.text.splitlines())
    allowed = LONGER.get(source.file, FILE_LINES_MAX)
    if lines > allowed:
        yield Violation(source.file, lines, f"the file may have at most {allowed} lines")
    elif lines < allowed and source.file in LONGER:
        rest = f"lower LONGER to {lines}" if lines > FILE_LINES_MAX else "remove it from LONGER"
        yield Violation(source.file, lines, f"the file has become shorter: {rest}")


def functions_are_short(source: Source) -> Iterator[Violation]:
    """Find functions that are too long even without their docstring."""
    functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = [*source.nodes(ast.FunctionDef)]
    for node in (*functions, *source.nodes(ast.AsyncFunctionDef)):
        lines = _lines(node) - (_lines(node.body[0]) if ast.get_docstring(node) else 0)
        if lines > FUNCTION_LINES_MAX:
            rule = f"{node.name} has {lines} lines, a function at most {FUNCTION_LINES_MAX}"
            yield source.at(node, rule)


def names_of_tests_begin_with_their_subject(source: Source) -> Iterator[Violation]:
    """Find tests whose names begin with an article or a clause instead of a noun of the field."""
    if not source.file.startswith("tests/"):
        return
    for node in source.nodes(ast.FunctionDef):
        if NO_SUBJECT.match(node.name):
            yield source.at(node, f"{node.name} begins with no subject")


def docstrings_begin_with_a_noun_or_a_verb(source: Source) -> Iterator[Violation]:
    """Find docstrings, and entries in their sections, that begin with a clause or a pronoun."""
    if source.file.startswith("tests/"):
        return
    for node in source.nodes(ast.Expr):
        text = node.value.value if isinstance(node.value, ast.Constant) else None
        if not isinstance(text, str):
            continue
        if found := NO_NOUN.match(text.strip()):
            yield source.at(node, f"no docstring begins with {found[0]!r}")
        for entry in NO_DESCRIPTION.finditer(text):
            yield source.at(node, f"no description begins with {entry[0].strip()!r}")


def literals_are_written_out(source: Source) -> Iterator[Violation]:
    """Find literals that are unpacked where they stand, which only saves lines.

    What is not shipped may so keep a command's option and its value on one line of a list.
    """
    calls = {id(each) for call in source.nodes(ast.Call) for each in call.args}
    for node in source.nodes(ast.Starred):
        if isinstance(node.value, ast.Tuple | ast.List) and (
            source.is_shipped or id(node) in calls
        ):
            yield source.at(node, "a literal is written out, not unpacked")


def modules_say_what_they_are_for(source: Source) -> Iterator[Violation]:
    """Find modules without a docstring. A test file's names say it already."""
    if not source.file.startswith("tests/") and not ast.get_docstring(source.tree):
        yield Violation(source.file, 1, "a module begins with a docstring")


def public_things_say_what_they_do(source: Source) -> Iterator[Violation]:
    """Find public classes, functions and methods without a docstring in what is shipped."""
    if not source.is_shipped:
        return
    for node in source.tree.body:
        yield from _undocumented(source, node)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for member in node.body:
                yield from _undocumented(source, member)


def _undocumented(source: Source, node: ast.stmt) -> Iterator[Violation]:
    if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return
    inherits = any("override" in ast.unparse(mark) for mark in node.decorator_list)
    if not node.name.startswith("_") and not inherits and not ast.get_docstring(node):
        yield source.at(node, f"{node.name} is public and has no docstring")


def _lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


RULES: Final = (
    files_are_short,
    functions_are_short,
    names_of_tests_begin_with_their_subject,
    docstrings_begin_with_a_noun_or_a_verb,
    literals_are_written_out,
    modules_say_what_they_are_for,
    public_things_say_what_they_do,
)
