"""Content of the project: the one list of packages and Python files that the tools share."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]

ROLES: Final = (
    "protos",
    "model",
    "runtime",
    "remoting",
    "security",
    "store",
    "nameserver",
    "broker",
    "client",
    "producer",
    "consumer",
    "pipeline",
    "console",
    "testing",
)
"""Role folders. `<role>/` holds the package `ternmq_<role>`; the face is a folder of its own."""

PACKAGES: Final = {role: ROOT / role / f"ternmq_{role}" for role in ROLES} | {
    "ternmq": ROOT / "ternmq"
}
"""Every package that the wheel ships, by role."""

REGISTERING: Final = ROOT / "pipeline" / "pyspark_ternmq"
"""The package beside them by whose name Spark finds the data source."""

BESIDE: Final = ("tests", "benchmarks", "examples", "tools")
"""Folders with code that is not shipped."""

GENERATED: Final = ROOT / "protos" / "ternmq_protos" / "v1"


def relative(path: Path) -> str:
    """Return `path` as seen from the project's root."""
    return path.relative_to(ROOT).as_posix()


def shipped_files() -> list[Path]:
    """Return every module that the wheel ships and a person wrote."""
    found = [
        path for package in (*PACKAGES.values(), REGISTERING) for path in package.rglob("*.py")
    ]
    return sorted(path for path in found if not path.is_relative_to(GENERATED))


def files_beside() -> list[Path]:
    """Return every Python file that is not shipped: tests, benchmarks, examples and tools."""
    found = [path for folder in BESIDE for path in (ROOT / folder).rglob("*.py")]
    return sorted([*found, *(ROOT / "protos").glob("*.py")])


def python_files() -> list[Path]:
    """Return every Python file that a person wrote."""
    return [*shipped_files(), *files_beside()]
