import subprocess
from pathlib import Path

import pytest

from tools import check_types


def test_changed_files_are_those_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_types, "ROOT", tmp_path)
    every = ["kept.py", "changed.py", "staged.py", "deep/new.py"]
    assert check_types.changed(every) == every, "without git"

    def git(*words: str) -> None:
        me = ("-c", "user.name=me", "-c", "user.email=me@localhost")
        subprocess.run(["git", *me, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    for name in every[:3]:
        (tmp_path / name).write_text("x = 1\n")
    git("add", "--all")
    git("commit", "--message=Begin")
    for name in every[1:3]:
        (tmp_path / name).write_text("x = 2\n")
    git("add", "staged.py")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "new.py").write_text("")
    assert check_types.changed(every) == every[1:]
