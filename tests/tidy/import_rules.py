"""Who may import what."""

import ast
import functools
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Final

from tests.tidy.source import Source, Violation, parse
from tools.project import ROOT, relative

ARROWS: Final[Mapping[str, frozenset[str]]] = {
    "model": frozenset(),
    "protos": frozenset(),
    "runtime": frozenset({"model"}),
    "store": frozenset({"model"}),
    "remoting": frozenset({"model", "runtime", "protos"}),
    "security": frozenset({"remoting"}),
    "nameserver": frozenset({"security"}),
    "client": frozenset({"remoting"}),
    "broker": frozenset({"store", "security"}),
    "producer": frozenset({"client"}),
    "consumer": frozenset({"client"}),
    "pipeline": frozenset({"store", "producer", "consumer"}),
    "console": frozenset({"nameserver", "broker", "pipeline"}),
    "testing": frozenset({"nameserver", "broker", "producer", "consumer"}),
    "ternmq": frozenset({"console", "testing"}),
}
"""What each role stands on. Imports follow the arrows, any number of them, and nothing else."""

THIRD_PARTY: Final[Mapping[str, frozenset[str]]] = {
    "click": frozenset({"console"}),
    "cryptography": frozenset({"console"}),
    "google": frozenset(ARROWS) - {"model", "store", "runtime"},
    "grpc": frozenset({"remoting"}),
    "grpc_health": frozenset({"remoting"}),
    "grpc_reflection": frozenset({"remoting"}),
    "isal": frozenset({"model"}),
    "jinja2": frozenset({"pipeline"}),
    "markupsafe": frozenset({"pipeline"}),
    "matplotlib": frozenset({"pipeline"}),
    "numpy": frozenset(ARROWS),
    "pandas": frozenset({"pipeline"}),
    "opentelemetry": frozenset({"client", "consumer", "producer", "pipeline"}),
    "prometheus_client": frozenset({"runtime"}),
    "pyarrow": frozenset({"model", "store", "consumer", "pipeline"}),
    "pyspark": frozenset({"pipeline"}),
    "pytest": frozenset({"testing"}),
    "testcontainers": frozenset({"testing"}),
    "docker": frozenset({"testing"}),
}
"""What we depend on, in the core or an extra, and the roles that may import it."""

ONE_HOME: Final[Mapping[str, tuple[str, ...]]] = {
    "mmap": ("store/ternmq_store/disk/filesystem.py",),
    "threading": (
        "runtime/",
        "client/ternmq_client/blocking_client.py",
        "testing/ternmq_testing/time/cluster_time.py",
    ),
    "concurrent": (
        "runtime/",
        "client/ternmq_client/blocking_client.py",
        "producer/ternmq_producer/blocking_producer.py",
    ),
    "multiprocessing": ("runtime/",),
    "pickle": (),
    "marshal": (),
    "shelve": (),
}
"""Modules of the standard library that belong to few places, and those places."""

PURE_ROLES: Final = frozenset({"model"})
"""Roles in which every module is pure: no I/O, no clock, no randomness."""

PURE: Final = re.compile(r"\bPure\b[.:;]")
"""What the docstring of any other module says when it is pure, and is then held to."""

IMPURE: Final = frozenset(
    {
        *("asyncio", "concurrent", "logging", "mmap", "multiprocessing", "os", "random"),
        *("secrets", "select", "selectors", "shutil", "signal", "socket", "subprocess"),
        *("tempfile", "threading", "time", "uuid"),
    }
)


WHOLE: Final = re.compile(
    r"ternmq_broker\.broker|ternmq_nameserver\.server|tests\.support\.processes"
    r"|ternmq_producer\.(staging\.)?(\w+_)?producer"
    r"|ternmq_consumer\.(push\.push|pull\.(blocking_)?pull)_consumer"
    r"|ternmq(_producer|_consumer)?\.(\w+\.)*\w*(Producer|Consumer)"
)
"""Whole services and clients: tests that run them lie below `tests/simulation`."""


def reachable(role: str) -> frozenset[str]:
    """Return every role that `role` may import."""
    direct = ARROWS[role]
    return direct.union(*(reachable(other) for other in direct))


def role_of(module: str) -> str | None:
    """Return the role that `module` belongs to, None for one of somebody else."""
    top = module.split(".")[0]
    role = "ternmq" if top == "ternmq" else top.removeprefix("ternmq_")
    return role if role in ARROWS and (top == "ternmq") == (role == "ternmq") else None


def imports_are_absolute(source: Source) -> Iterator[Violation]:
    """Find relative imports."""
    for node, module in source.imports:
        if not module:
            yield source.at(node, "imports are absolute")


def imports_follow_the_arrows(source: Source) -> Iterator[Violation]:
    """Find imports of a role that this one does not stand on, and of what is not shipped."""
    if not source.is_shipped:
        return
    for node, module in source.imports:
        role = role_of(module)
        if role and role != source.role and role not in reachable(source.role):
            yield source.at(node, f"{source.role} must not import {module}")


def third_parties_are_dependencies(source: Source) -> Iterator[Violation]:
    """Find imports of what is neither ours, the standard library's nor the role's to use."""
    if not source.is_shipped:
        return
    for node, module in source.imports:
        top = module.split(".")[0]
        if not module or role_of(module) or top in sys.stdlib_module_names:
            continue
        if source.role not in THIRD_PARTY.get(top, ()):
            yield source.at(node, f"{source.role} must not import {module}")


def modules_stay_home(source: Source) -> Iterator[Violation]:
    """Find imports of `mmap`, threads and unsafe formats outside the places made for them."""
    for node, module in source.imports:
        top = module.split(".")[0]
        if top not in ONE_HOME or source.file.startswith(ONE_HOME[top]):
            continue
        if source.is_shipped or not ONE_HOME[top]:
            homes = ", ".join(ONE_HOME[top]) or "nobody"
            yield source.at(node, f"{module} is imported by {homes} alone")


def store_is_synchronous(source: Source) -> Iterator[Violation]:
    """Find asyncio in the store, whose functions return when the work is done."""
    if source.role != "store" or not source.is_shipped:
        return
    for node, module in source.imports:
        if module.split(".")[0] in ("asyncio", "grpc"):
            yield source.at(node, f"store must not import {module}")


def pure_modules_do_nothing(source: Source) -> Iterator[Violation]:
    """Find imports that let a pure module do more than compute. Those for types alone may stay."""
    is_said = PURE.search(ast.get_docstring(source.tree) or "") is not None
    if not source.is_shipped or not (is_said or source.role in PURE_ROLES):
        return
    for_types = {
        inner
        for node in source.nodes(ast.If)
        if "TYPE_CHECKING" in ast.unparse(node.test)
        for part in node.body
        for inner in ast.walk(part)
    }
    for node, module in source.imports:
        if node not in for_types and module.split(".")[0] in IMPURE:
            yield source.at(node, f"a pure module must not import {module}")
    for call in source.nodes(ast.Call):
        if isinstance(call.func, ast.Name) and call.func.id in ("open", "print", "input"):
            yield source.at(call, f"a pure module must not call {call.func.id}")


@functools.cache
def runs_whole(module: str) -> bool:
    """Tell whether `module` is one of `WHOLE`, or a helper of tests that imports one of those."""
    path = ROOT / f"{module.replace('.', '/')}.py"
    if WHOLE.fullmatch(module):
        return True
    if not module.startswith("tests.support.") or not path.exists():
        return False
    helper = parse(relative(path), path.read_text())
    return any(map(runs_whole, (name for _, names in imported(helper) for name in names)))


def imported(source: Source) -> Iterator[tuple[ast.alias | ast.ImportFrom, list[str]]]:
    """Yield each import with the names of the module and of what is taken from it."""
    for node, module in source.imports:
        taken = node.names if isinstance(node, ast.ImportFrom) else []
        yield node, [module, *(f"{module}.{alias.name}" for alias in taken)]


def unit_tests_run_no_whole_service(source: Source) -> Iterator[Violation]:
    """Find imports of whole services and clients in unit tests of the packages."""
    if not source.file.startswith("tests/unit/") or source.file.startswith("tests/unit/support/"):
        return
    for node, names in imported(source):
        if any(map(runs_whole, names)):
            yield source.at(node, f"a test that runs {names[0]} belongs below tests/simulation")


RULES: Final = (
    imports_are_absolute,
    imports_follow_the_arrows,
    third_parties_are_dependencies,
    modules_stay_home,
    store_is_synchronous,
    pure_modules_do_nothing,
    unit_tests_run_no_whole_service,
)
