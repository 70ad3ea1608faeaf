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
    for name, line in (("python3.11", f"exit {status}"), ("make", 'echo "$CI $@"')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        [ROOT / ".ci" / "run"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"true test PYTHON3={python}\n"
