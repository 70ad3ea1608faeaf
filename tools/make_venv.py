"""Make or renew `.venv`: `python3 tools/make_venv.py core|demo|dev|spark`.

Make calls this when `pyproject.toml` is newer than the stamp `.venv/.<extra>`. Only the standard
library is there when it runs.
"""

import fcntl
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
LOCK = ROOT / ".venv.lock"


def make(folder: Path) -> None:
    """Make the environment `folder` unless it is there and whole."""
    # pip comes last: without it, making it was interrupted.
    if not ((folder / "bin" / "python").exists() and (folder / "bin" / "pip").exists()):
        print(f"making {folder.name}", flush=True)
        venv.create(folder, with_pip=True, clear=True)


def main(extra: str) -> int:
    """Install the project with `extra` ("core" is no extra) and leave a stamp."""
    python = VENV / "bin" / "python"
    # Targets may run side by side (`make -j`), and pip must not. Beside the folder, which may be
    # made anew while the lock is held.
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        make(VENV)
        target = "." if extra == "core" else f".[{extra}]"
        print(f"installing {target} into .venv", flush=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        status = subprocess.call([*command, "--editable", target], cwd=ROOT)
        if status == 0:
            (VENV / f".{extra}").touch()
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
