import pytest

from tests.tidy import shape_rules
from tests.tidy.shape_rules import RULES
from tests.tidy.source import lines_broken

BODY = "    x = 1\n"


def test_file_may_be_longer_by_name_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shape_rules, "LONGER", {"a.py": 600, "b.py": 600})
    rule = shape_rules.files_are_short

    assert not lines_broken(rule, "a.py", "x = 1\n" * 600)
    assert lines_broken(rule, "a.py", "x = 1\n" * 601) == [601]
    assert lines_broken(rule, "a.py", "x = 1\n" * 599) == [599]  # LONGER is lowered
    assert lines_broken(rule, "b.py", "x = 1\n" * 500) == [500]
    assert lines_broken(rule, "c.py", "x = 1\n" * 600) == [600]


@pytest.mark.parametrize(
    ("rule", "file", "text", "lines"),
    [
        ("files_are_short", "tests/unit/x.py", "x = 1\n" * 500, []),
        ("files_are_short", "tests/unit/x.py", "x = 1\n" * 501, [501]),
        ("functions_are_short", "tests/unit/x.py", "def f():\n" + BODY * 69, []),
        ("functions_are_short", "tests/unit/x.py", "\ndef f():\n" + BODY * 70, [2]),
        ("functions_are_short", "x.py", 'async def f():\n    """A\n\n    B"""\n' + BODY * 69, []),
        (
            "names_of_tests_begin_with_their_subject",
            "tests/unit/x.py",
            "def test_queue(): ...\ndef test_a_queue(): ...\nclass T:\n"
            "    def test_what_is_lost(self): ...\n",
            [2, 4],
        ),
        ("names_of_tests_begin_with_their_subject", "tools/x.py", "def test_a(): ...\n", []),
        (
            "docstrings_begin_with_a_noun_or_a_verb",
            "tools/x.py",
            "'''A module.'''\nclass A:\n    '''How it is.'''\n    x: int\n"
            "    '''Of one thing.'''\n    y = 'What'\n    '''Whatever limit there is.'''\n"
            "    z: int\n    '''\n    Who?'''\n",
            [3, 5, 9],
        ),
        ("docstrings_begin_with_a_noun_or_a_verb", "tests/unit/x.py", "'''How.'''\n", []),
        (
            "docstrings_begin_with_a_noun_or_a_verb",
            "tools/x.py",
            "def f(a, b):\n    '''Add.\n\n    Args:\n        a: Number.\n        b: Of a.\n"
            "    '''\ndef g():\n    '''Add.\n\n    Raises:\n        OSError: It fails.\n    '''\n",
            [2, 9],
        ),
        (
            "literals_are_written_out",
            "store/ternmq_store/x.py",
            "f(*(1, 2))\nf(*a, *[3])\nf(*a, *(b for b in c))\nd = {*(1, 2)}\n",
            [1, 2, 4],
        ),
        ("literals_are_written_out", "tools/x.py", "f(*(1, 2))\nd = {*(1, 2)}\n", [1]),
        ("modules_say_what_they_are_for", "tools/x.py", "x = 1\n", [1]),
        ("modules_say_what_they_are_for", "tools/x.py", '"""Why."""\n', []),
        (
            "public_things_say_what_they_do",
            "store/ternmq_store/x.py",
            "class A:\n    '''Doc.'''\n    def f(self): ...\n    def _g(self): ...\n"
            "    @override\n    def h(self): ...\ndef k(): ...\nclass _B:\n    def f(self): ...\n",
            [3, 7],
        ),
    ],
)
def test_broken_rule_is_found_at_its_line(
    rule: str, file: str, text: str, lines: list[int]
) -> None:
    named = {candidate.__name__: candidate for candidate in RULES}
    assert lines_broken(named[rule], file, text) == lines
