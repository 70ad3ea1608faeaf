"""`.ci/run`, with stand-ins for what it calls."""

import subprocess
from pathlib import Path

import pytest

from tools.project import ROOT


@pytest.mark.parametrize(
    ("status", "python"), [(0, "python3.11"), (1, "python3")], ids=["found", "only a shim"]
)
def test_continuous_integration_runs_on_the_oldest_python(
    tmp_path: Path, status: int, python: str
) -> None:
    for name, found in (("python3.11", status), ("python3", 0)):
        lines = ("#!/bin/sh", f'[ "$1" = -c ] && exit {found}', 'echo "$CI ${0##*/} $@"', "")
        (tmp_path / name).write_text("\n".join(lines))
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        [ROOT / ".ci" / "run"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    targets = "make --keep-going test test-all"
    assert done.stdout == f"true {python} tools/with_containers.py {targets} PYTHON3={python}\n"
