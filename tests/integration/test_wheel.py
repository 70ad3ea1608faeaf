"""What a user gets: the built wheel, in an empty environment, without the checkout."""

import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.support.processes import running_dev
from tools.project import PACKAGES
from tools.release import Rehearsal, differences, outside, rehearse


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Rehearsal:
    """Rehearse a release once: build, install, send and consume."""
    return rehearse(tmp_path_factory.mktemp("archives"), tmp_path_factory.mktemp("scratch"))


@pytest.fixture(scope="module")
def wheel(rehearsal: Rehearsal) -> Path:
    """Return the wheel."""
    return rehearsal.wheel


@pytest.fixture(scope="module")
def installed(rehearsal: Rehearsal) -> Path:
    """Return the folder of the commands of an environment that has the wheel alone."""
    return rehearsal.commands


def test_wheel_has_every_module_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert not differences(names)
    assert {f"{package.name}/py.typed" for package in PACKAGES.values()} <= names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_installed_command_shows_its_help(installed: Path, tmp_path: Path) -> None:
    command = [f"{installed}/ternmq", "--help"]
    helped = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=outside())
    assert helped.returncode == 0, helped.stderr
    assert "dev" in helped.stdout


def test_installed_package_is_not_the_checkout(installed: Path, tmp_path: Path) -> None:
    names = ", ".join(package.name for package in PACKAGES.values())
    asking = f"import {names}; print(ternmq.__file__)"
    command = [f"{installed}/python", "-c", asking]
    asked = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=outside())
    assert asked.returncode == 0, asked.stderr
    assert Path(asked.stdout.strip()).is_relative_to(installed.parent)


def test_installed_dev_service_starts_and_ends_on_ctrl_c(installed: Path, tmp_path: Path) -> None:
    with running_dev(tmp_path, launcher=[installed / "ternmq"], env=outside()) as dev:
        assert dev.nameserver != dev.broker
        assert dev.end() == 0
