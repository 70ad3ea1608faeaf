"""What a user gets: the built wheel, in an empty environment, without the checkout."""

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from tests.support.processes import running_dev
from tools.project import PACKAGES, REGISTERING, ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel once."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    built = subprocess.run([*command, str(ROOT)], capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    [path] = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into an empty environment and return the folder of its commands."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    pip = [f"{folder}/bin/python", "-m", "pip", "--disable-pip-version-check", "install"]
    done = subprocess.run([*pip, "--quiet", str(wheel)], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "bin"


def outside() -> dict[str, str]:
    """Return an environment in which nothing points to the checkout."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def test_the_wheel_has_every_module_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
    shipped = {name for name in names if ".dist-info/" not in name}
    expected = {
        path.relative_to(package.parent).as_posix()
        for package in (*PACKAGES.values(), REGISTERING)
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert shipped == expected
    assert {f"{package.name}/py.typed" for package in PACKAGES.values()} <= shipped
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_the_installed_command_helps_itself(installed: Path, tmp_path: Path) -> None:
    command = [f"{installed}/ternmq", "--help"]
    helped = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=outside())
    assert helped.returncode == 0, helped.stderr
    assert "dev" in helped.stdout


def test_the_installed_package_is_not_the_checkout(installed: Path, tmp_path: Path) -> None:
    names = ", ".join(package.name for package in PACKAGES.values())
    asking = f"import {names}; print(ternmq.__file__)"
    command = [f"{installed}/python", "-c", asking]
    asked = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=outside())
    assert asked.returncode == 0, asked.stderr
    assert Path(asked.stdout.strip()).is_relative_to(installed.parent)


def test_the_installed_dev_service_starts_and_ends_on_ctrl_c(
    installed: Path, tmp_path: Path
) -> None:
    with running_dev(tmp_path, launcher=[installed / "ternmq"], env=outside()) as dev:
        assert dev.nameserver != dev.broker
        assert dev.end() == 0
