"""Where the tests of a module lie: in files of its name, or in those that COVERAGE.md lists."""

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from tools.project import PACKAGES, REGISTERING, ROOT, files_beside, relative, shipped_files

PAGE: Final = ROOT / "tests" / "COVERAGE.md"
_ROW: Final = re.compile(r"^\| `(\S+\.py)` \| (`\S+`(?:, `\S+`)*) \|$", re.MULTILINE)


def module_of(test: str, modules: Collection[str]) -> str | None:
    """Return the module after which a test file is named, None for none.

    `test_record_damage.py` holds a part of what would stand in `test_record.py`, unless there is a
    module `record_damage`.

    Args:
        test: Path below `tests/unit` or `tests/simulation`, such as `store/test_commit_log.py`.
        modules: Paths below each package, by role, such as `store/commit_log.py`.
    """
    folder, _, name = test.rpartition("/")
    words = name.removeprefix("test_").removesuffix(".py").split("_")
    begins = ("_".join(words[:count]) for count in range(len(words), 0, -1))
    return next((path for begin in begins if (path := f"{folder}/{begin}.py") in modules), None)


def mirroring_tests() -> list[str]:
    """Return the test files named after modules, as paths below `tests/unit` or `simulation`.

    Files in `tests/simulation` itself are scenarios of whole clusters and have names of their own.
    """
    found = [
        path.relative_to(ROOT / "tests" / mirror).as_posix()
        for mirror in ("unit", "simulation")
        for path in (ROOT / "tests" / mirror).rglob("test_*.py")
        if mirror == "unit" or path.parent.name != mirror
    ]
    return sorted(found)


def does_something(text: str) -> bool:
    """Tell whether a module has a function with more in it than a docstring and an ellipsis."""
    functions = (
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return any(
        not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        for function in functions
        for statement in function.body
    )


def shipped_modules() -> dict[str, bool]:
    """Return by module, as in `module_of`, whether it has something to test."""
    packages = {**PACKAGES, REGISTERING.name: REGISTERING}
    return {
        f"{role}/{path.relative_to(package).as_posix()}": does_something(path.read_text())
        for role, package in packages.items()
        for path in shipped_files()
        if path.is_relative_to(package)
    }


def rows(page: str) -> dict[str, list[str]]:
    """Return the test files of each module that the page lists."""
    return {module: re.findall(r"`(\S+)`", tests) for module, tests in _ROW.findall(page)}


def gaps(
    modules: Mapping[str, bool], tests: Collection[str], listed: Mapping[str, Collection[str]]
) -> Iterator[str]:
    """Find modules without a test, and rows that are stale.

    Args:
        modules: As `shipped_modules` returns them.
        tests: As `mirroring_tests` returns them.
        listed: As `rows` returns them.
    """
    named = {module_of(test, modules) for test in tests}
    for module, is_testable in modules.items():
        if is_testable and module not in named and module not in listed:
            yield f"{module}: no test has its name, and COVERAGE.md does not list it"
    for module, covering in listed.items():
        if module not in modules:
            yield f"{module}: is listed and does not exist"
        elif module in named:
            yield f"{module}: is listed and has a test of its name"
        elif not modules[module]:
            yield f"{module}: is listed and only declares"
        for test in covering:
            if not (ROOT / "tests" / test).is_file():
                yield f"{module}: {test} does not exist"


def test_mirroring_test_files_are_named_after_modules() -> None:
    modules = {*shipped_modules(), *(relative(p).removeprefix("tests/") for p in files_beside())}
    assert not [test for test in mirroring_tests() if module_of(test, modules) is None]


def test_modules_have_a_test_of_their_name_or_a_row() -> None:
    assert not list(gaps(shipped_modules(), mirroring_tests(), rows(PAGE.read_text())))


def test_module_of_a_test_is_the_longest_that_fits() -> None:
    modules = ["store/commit_log.py", "store/commit_log_full.py"]
    assert module_of("store/test_commit_log.py", modules) == modules[0]
    assert module_of("store/test_commit_log_empty.py", modules) == modules[0]
    assert module_of("store/test_commit_log_full.py", modules) == modules[1]
    for stray in ("store/test_log.py", "broker/test_commit_log.py", "test_commit_log.py"):
        assert module_of(stray, modules) is None


def test_module_that_only_declares_needs_no_test() -> None:
    assert not does_something(
        'class A:\n    async def f(self) -> None:\n        """Do."""\n        ...\n'
    )
    assert not does_something("X = 1\n")
    assert does_something("class A:\n    def f(self) -> int:\n        return 1\n")


def test_gaps_and_stale_rows_are_found() -> None:
    modules = {"a/tested.py": True, "a/listed.py": True, "a/alone.py": True, "a/names.py": False}
    page = (
        "| `a/listed.py` | `README.md`, `gone.py` |\n"
        "| `a/tested.py` | `README.md` |\n| `b.py` | `README.md` |\n"
        "| `a/names.py` | `README.md` |\n| `a/alone.py` | none |\n"
    )
    assert list(gaps(modules, ["a/test_tested.py"], rows(page))) == [
        "a/alone.py: no test has its name, and COVERAGE.md does not list it",
        "a/listed.py: gone.py does not exist",
        "a/tested.py: is listed and has a test of its name",
        "b.py: is listed and does not exist",
        "a/names.py: is listed and only declares",
    ]
