"""git in repositories that tests make."""

import subprocess
from pathlib import Path


def git(folder: Path, *words: str) -> str:
    """Run git in `folder` as nobody in particular and return what it prints."""
    name = ("-c", "user.name=T", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false")
    command = ["git", "-C", str(folder), *name, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
