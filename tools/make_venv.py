"""Make or renew `.venv`: `python3 tools/make_venv.py core|demo|dev`.

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


def main(extra: str) -> int:
    """Install the project with `extra` ("core" is no extra) and leave a stamp."""
    python = VENV / "bin" / "python"
    VENV.mkdir(exist_ok=True)
    # Targets may run side by side (`make -j`), and pip must not.
    with (VENV / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not python.exists():
            print("making .venv", flush=True)
            venv.create(VENV, with_pip=True)
        target = "." if extra == "core" else f".[{extra}]"
        print(f"installing {target} into .venv", flush=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        status = subprocess.call([*command, "--editable", target], cwd=ROOT)
        if status == 0:
            (VENV / f".{extra}").touch()
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
