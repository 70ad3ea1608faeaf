"""Steps of a page of `docs/` that are done by hand: its blocks, run as they are written."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.support.processes import SOON_S, ServiceProcess


def blocks(text: str, language: str) -> list[str]:
    """Return the blocks of a text in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def run_shell(script: str, folder: Path, *, code: int = 0) -> str:
    """Run a script in `folder`, which says yes to questions, and return what it prints."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-euc", script],
        cwd=folder,
        env=os.environ | {"PATH": path},
        input="y\n",
        capture_output=True,
        text=True,
        timeout=SOON_S,
    )
    assert done.returncode == code, (script, done.stdout, done.stderr)
    return done.stdout + done.stderr


def start(folder: Path, step: str, data: str, port: int, *words: str) -> ServiceProcess:
    """Start the service of a step with a port, a directory below `folder` and words of its own."""
    _, verb, *own = shlex.split(step.replace("\\\n", ""))
    words = (*own, "--data", data, f"--port-{verb}", f"{port}", *words)
    return ServiceProcess(folder, verb, *words, data=folder / data)
