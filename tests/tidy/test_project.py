"""Checks on the project as a whole."""

import filecmp
import importlib
import inspect
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tools.project import (
    GENERATED,
    PACKAGES,
    REGISTERING,
    ROLES,
    ROOT,
    files_beside,
    relative,
    shipped_files,
)
from tools.write_reference import (
    MARKER,
    METRICS_MARKER,
    METRICS_PAGE,
    PAGE,
    metrics_page_with_tables,
    page_with_tables,
)


@pytest.mark.parametrize("role", [*ROLES, "ternmq"])
def test_every_role_has_a_readme_and_typed_code(role: str) -> None:
    assert (ROOT / role / "README.md").is_file()
    assert (PACKAGES[role] / "py.typed").is_file()
    assert (PACKAGES[role] / "__init__.py").is_file()


def test_wheel_ships_every_package() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    shipped = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    packages = {*PACKAGES.values(), REGISTERING}
    assert set(shipped) == {relative(package) for package in packages}


def test_file_lists_are_not_empty() -> None:
    assert len(shipped_files()) >= len(PACKAGES)
    assert Path(__file__) in files_beside()


def stale(made: Path, committed: Path) -> list[str]:
    """Return the names of files in which two folders of generated code differ."""
    names = {path.name for folder in (made, committed) for path in folder.glob("*.py*")}
    return sorted(
        name
        for name in names
        if not ((made / name).exists() and (committed / name).exists())
        or not filecmp.cmp(made / name, committed / name, shallow=False)
    )


def test_generated_code_is_fresh(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "protos" / "generate.py", tmp_path], check=True)
    assert not (found := stale(tmp_path, GENERATED)), f"run `make protos`: {found}"


def test_stale_generated_code_is_found(tmp_path: Path) -> None:
    for folder in ("made", "committed"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same.py").write_text("x = 1\n")
        (tmp_path / folder / "old.py").write_text(folder)
    (tmp_path / "committed" / "gone.pyi").write_text("")
    assert stale(tmp_path / "made", tmp_path / "committed") == ["gone.pyi", "old.py"]


def test_tables_of_settings_are_fresh() -> None:
    page = PAGE.read_text()
    assert page == page_with_tables(page), "run `make reference`"


def test_tables_of_metrics_are_fresh() -> None:
    page = METRICS_PAGE.read_text()
    assert page == metrics_page_with_tables(page), "run `make reference`"


def test_stale_tables_of_metrics_are_renewed() -> None:
    page = metrics_page_with_tables(f"# Metrics\n{METRICS_MARKER}| obsolete |\n")
    assert page.startswith(f"# Metrics\n{METRICS_MARKER}\n## Broker\n")
    assert "| `rocketmq_messages_in_total` | counter | `topic`, `message_type`" in page
    assert "obsolete" not in page


def test_stale_tables_of_settings_are_renewed() -> None:
    page = page_with_tables(f"# Settings\n{MARKER}| obsolete |\n")
    assert page.startswith(f"# Settings\n{MARKER}\n## nameserver\n")
    assert "`broker.flush_mode`" in page
    assert "obsolete" not in page


def test_public_api_exports_its_listed_names() -> None:
    face = importlib.import_module("ternmq")
    listed: list[str] = face.__all__
    assert sorted(listed) == sorted(set(listed))
    shown = {
        name
        for name, value in vars(face).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert shown <= set(listed)
    for name in listed:
        value = getattr(face, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__module__ == "ternmq", f"{name} says it is from {value.__module__}"


WITHOUT_LINUX = """
import importlib, sys
import click, google.protobuf, grpc, grpc.aio, isal.isal_zlib, numpy
from tests.support.without_linux import forget_linux
forget_linux()
for name in sys.argv[1:]:
    importlib.import_module(name)
print(len(sys.argv) - 1)
"""


def test_every_module_imports_without_linux_specifics() -> None:
    roots = {package.parent: package for package in PACKAGES.values()}
    names = [
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        for root, package in roots.items()
        for path in sorted(package.rglob("*.py"))
        if path.name != "__main__.py" and "_pb2" not in path.name
    ]
    command = [sys.executable, "-W", "error::SyntaxWarning", "-c", WITHOUT_LINUX, *names]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) == len(names)


def made(*arguments: str) -> str:
    """Return what make says, without running any recipe but that of `help`."""
    command = ["make", "--no-print-directory", *arguments]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def test_make_help_lists_every_target() -> None:
    [phony] = [
        line for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith(".PHONY:")
    ]
    told = [line.split()[0] for line in made("help").splitlines()]
    assert sorted(told) == sorted(set(phony.split()[1:]) - {"help"})


def test_make_dev_executes_the_service_directly() -> None:
    # A shell that waited for it would die of make's SIGTERM and leave the service behind.
    assert made("--dry-run", "dev").splitlines()[-1].strip() == "exec .venv/bin/ternmq dev"
