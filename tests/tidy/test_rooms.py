"""Rooms: folders with imports one way between them, one thing for each name, and the glossary."""

import ast
import graphlib
import itertools
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import PurePath
from typing import Final

import pytest

from tests.tidy.source import Source, parse
from tools.project import PACKAGES, ROOT, relative, shipped_files

PACKAGES_MAX: Final = 2
"""Packages that may have a module of one name."""

COMMON: Final = frozenset(
    {
        *("service", "config", "stream", "rules", "query"),
        *("assembly", "reader", "topics", "groups", "offsets"),
    }
)
"""Names of modules that any package may have, since its own name says whose they are."""

FLOORS: Final[Mapping[str, Sequence[str]]] = {
    "ternmq_broker": (
        *("broker", "term", "assembly", "admin metrics scan", "send pull transactions"),
        *("groups scheduled replication", "environment", "storage registration"),
        *("state live_settings", "config steady_clock statistics"),
    ),
    "ternmq_store": (
        *("scan_process truncation", "scan message_store"),
        *("query verification replication inspection", "read recovery durability retention"),
        *("opened_files", "dispatch", "log", "config store_statistics", "queues index"),
        "disk",
    ),
}
"""The floors of the two largest roles, the top one first: a part stands on lower floors alone."""


def part_of(module: str, package: str) -> str | None:
    """Return the part of `package` that `module` lies in; None outside, `__init__` for itself."""
    if module == package:
        return "__init__"
    rest = module.removeprefix(f"{package}.")
    return None if rest == module else rest.split(".")[0]


def circle(package: str, imports: Mapping[str, Collection[str]]) -> list[str]:
    """Return the imports that lead round a circle of parts of `package`; none when none does.

    Args:
        package: Its parts are the modules and packages right below it, and its own `__init__`.
        imports: What each module imports, by dotted names. A package's `__init__` goes by the name
            of the package.
    """
    between: dict[str, dict[str, str]] = defaultdict(dict)
    for module, others in imports.items():
        part = part_of(module, package)
        for other in others:
            to = part_of(other, package)
            if part and to and part != to:
                between[part].setdefault(to, f"{module} imports {other}")
    try:
        graphlib.TopologicalSorter(between).prepare()
    except graphlib.CycleError as error:
        # What is imported stands before what imports it.
        parts: list[str] = error.args[1]
        return [between[part][to] for to, part in itertools.pairwise(parts)]
    return []


def shared_names(named: Iterable[tuple[str, str]], most: int) -> dict[str, set[str]]:
    """Return the names that stand in more than `most` places, with these places."""
    places: dict[str, set[str]] = defaultdict(set)
    for name, place in named:
        places[name].add(place)
    return {name: where for name, where in places.items() if len(where) > most}


def last_word(name: str) -> str:
    """Return the last word of a class or noun: lower case, and singular as far as letters tell."""
    word = re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)[-1].lower()
    return re.sub(r"((?<=ch)e)?s$", "", re.sub("ies$", "y", word))


def undefined(page: str, classes: Iterable[str]) -> list[str]:
    """Return the public ones of `classes` whose last word ends no noun in the tables of `page`."""
    cells = re.findall(r"^\| (.+?) \|", page, re.MULTILINE)
    known = {last_word(noun) for cell in cells for noun in cell.split(", ")}
    return [name for name in classes if name[0] != "_" and last_word(name) not in known]


@cache
def product() -> dict[str, Source]:
    """Return every module that the wheel ships, by its dotted name."""
    packages = {relative(package.parent): package.name for package in PACKAGES.values()}
    found: dict[str, Source] = {}
    for path in shipped_files():
        file = PurePath(relative(path))
        parts = file.parts if file.parts[0] in packages.values() else file.parts[1:]
        name = ".".join(parts).removesuffix(".py").removesuffix(".__init__")
        found[name] = parse(relative(path), path.read_text())
    return found


def named_in_strings(source: Source) -> Iterator[str]:
    """Yield what strings name that may be a module: `a.b:c` and f-strings of one constant, too."""
    constants = {
        target.id: node.value.value
        for node in source.nodes(ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }
    for text in source.nodes(ast.JoinedStr):
        match text.values:
            case [ast.FormattedValue(value=ast.Name(id=name)), ast.Constant(value=str(rest))]:
                yield f"{constants.get(name, '')}{rest}".partition(":")[0]
            case _:
                pass
    for node in source.nodes(ast.Constant):
        if isinstance(node.value, str):
            yield node.value.partition(":")[0]


def imports_of(source: Source, modules: Collection[str]) -> frozenset[str]:
    """Return those of `modules` that a module imports: at its top, in functions, or by name."""
    named = {*named_in_strings(source)}
    for node, name in source.imports:
        taken = node.names if isinstance(node, ast.ImportFrom) else []
        whole = {f"{name}.{alias.name}" for alias in taken} & {*modules}
        named |= whole if len(whole) == len(taken) and taken else whole | {name}
    return frozenset(named & {*modules})


@cache
def imports() -> dict[str, frozenset[str]]:
    """Return what each module of the product imports of it."""
    modules = product()
    return {module: imports_of(source, modules.keys()) for module, source in modules.items()}


def packages_with_parts() -> list[str]:
    """Return every package of the product, and of each role its top."""
    return [name for name, source in product().items() if source.file.endswith("__init__.py")]


@pytest.mark.parametrize("package", packages_with_parts())
def test_imports_between_the_parts_of_a_package_go_one_way(package: str) -> None:
    assert not (found := circle(package, imports())), "\n".join(found)


def test_names_of_modules_are_in_two_packages_at_most() -> None:
    named = (
        (module.rpartition(".")[2], module.rpartition(".")[0])
        for module, source in product().items()
        if not source.file.endswith("__init__.py")
    )
    found = shared_names((each for each in named if each[0] not in COMMON), PACKAGES_MAX)
    assert not found


def test_names_of_classes_stand_once_in_the_product() -> None:
    named = (
        (node.name, module)
        for module, source in product().items()
        for node in source.nodes(ast.ClassDef)
    )
    assert not shared_names(named, 1)


def test_glossary_has_the_last_word_of_every_class_and_links_every_folder() -> None:
    page = (ROOT / "docs" / "glossary.md").read_text()
    sources = product().values()
    assert not undefined(page, (node.name for each in sources for node in each.nodes(ast.ClassDef)))
    folders = {PurePath(each.file).parent.as_posix() for each in sources}
    assert not {folder for folder in folders if not re.search(rf"\(\.\./{folder}[/)]", page)}


def test_undefined_names_a_class_without_a_noun() -> None:
    page = "| noun | meaning |\n|---|---|\n| record batch | b. |\n| lost, `SendStatus` | c. |\n"
    assert not undefined(page, ["OpenBatches", "RangeLost", "TermStatus", "_Odd"])
    assert undefined(page, ["SendResult", "RecordBatchReader"]) == [
        "SendResult",
        "RecordBatchReader",
    ]


def test_circle_names_the_imports_that_close_it() -> None:
    given = {
        "a": ["a.x"],
        "a.x": ["a.y.one", "b"],
        "a.y.one": ["a.y.two", "a.y"],
        "a.y.two": ["a.z"],
        "a.z": ["a.x"],
    }
    found = circle("a", given)
    assert set(found) == {"a.x imports a.y.one", "a.y.two imports a.z", "a.z imports a.x"}
    assert not circle("a.y", given | {"a.y.one": ["a.y.two"]})
    assert not circle("a", given | {"a.z": ["a.z.inner"]})


def test_package_that_hands_on_what_its_module_takes_back_is_a_circle() -> None:
    found = circle("a", {"a": ["a.x"], "a.x": ["a"]})
    assert set(found) == {"a.x imports a", "a imports a.x"}


def test_module_named_in_a_string_is_imported() -> None:
    text = (
        'H = "a"\nimport_module("a.x")\nlazy = {"v": f"{H}.y:verb", "w": "a.z:verb"}\nb = "a.no"\n'
    )
    modules = {"a.x", "a.y", "a.z"}
    assert imports_of(parse("a/b.py", text), modules) == modules


@pytest.mark.parametrize("role", FLOORS)
def test_part_of_a_large_role_imports_lower_floors_alone(role: str) -> None:
    floors = {part: at for at, floor in enumerate(FLOORS[role]) for part in floor.split()}
    parts = {part_of(module, role) for module in product()} - {None, "__init__"}
    assert parts == floors.keys()
    found = [
        f"{module} imports {other}"
        for module, others in imports().items()
        for other in others
        if (part := part_of(module, role)) in floors
        and (to := part_of(other, role)) in floors
        and part != to
        and floors[part] >= floors[to]
    ]
    assert not found


def test_imports_see_modules_and_what_is_taken_from_them() -> None:
    assert "ternmq_model.errors" in imports()["ternmq_broker.config"]
    assert "ternmq_model" not in imports()["ternmq_broker.config"]


def test_shared_names_counts_places_and_not_mentions() -> None:
    named = [("A", "x"), ("A", "x"), ("B", "x"), ("B", "y")]
    assert shared_names(named, 1) == {"B": {"x", "y"}}
