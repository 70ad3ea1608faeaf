import venv
from pathlib import Path

import pytest

from tools import make_venv


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, bool]]:
    """Say what is made instead of making it, which takes seconds."""
    found: list[tuple[Path, bool]] = []

    def create(folder: Path, *, with_pip: bool, clear: bool) -> None:
        assert with_pip
        found.append((folder, clear))

    monkeypatch.setattr(venv, "create", create)
    return found


def test_complete_environment_is_kept(tmp_path: Path, made: list[object]) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("python", "pip"):
        (tmp_path / "bin" / name).touch()
    make_venv.make(tmp_path)
    assert made == []


@pytest.mark.parametrize("there", [(), ("bin",), ("bin", "bin/python"), ("bin", "bin/pip")])
def test_half_made_environment_is_recreated(
    tmp_path: Path, made: list[object], there: tuple[str, ...]
) -> None:
    for name in there:
        (tmp_path / name).mkdir() if name == "bin" else (tmp_path / name).touch()
    make_venv.make(tmp_path)
    assert made == [(tmp_path, True)]


def test_lock_outlives_the_recreated_folder() -> None:
    assert not make_venv.LOCK.is_relative_to(make_venv.VENV)
