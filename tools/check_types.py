"""Check the types of every file, twice, and that no file was left out.

mypy and pyright find different mistakes. Both are silent about files they never saw, which a wrong
path makes easy; so each must have checked exactly as many files as there are. With `--changed`
pyright, which remembers nothing between runs, checks only the files that are not committed.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

from tools.project import ROOT, python_files, relative


def run_mypy(files: list[str]) -> list[str]:
    """Return what mypy has against `files`."""
    result = subprocess.run(
        [sys.executable, "-m", "mypy", "-n", "2", *files], cwd=ROOT, capture_output=True, text=True
    )
    if result.returncode:
        return [*result.stdout.splitlines(), *result.stderr.splitlines()]
    match = re.search(r"no issues found in (\d+) source files?", result.stdout)
    checked = int(match[1]) if match else 0
    if checked != len(files):
        return [f"mypy checked {checked} of {len(files)} files"]
    print(f"mypy: {checked} files, no issues")
    return []


def changed(files: list[str]) -> list[str]:
    """Return those of `files` that are not committed; all of them where there is no git."""
    command = ["git", "status", "--porcelain", "--untracked-files=all", "--no-renames", "-z"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    names = {entry[3:] for entry in result.stdout.split("\0")}
    return [file for file in files if file in names or result.returncode]


def run_pyright(files: list[str], *words: str) -> list[str]:
    """Return what pyright has against exactly `files`, those of the project or `words`."""
    result = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--outputjson", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    try:
        report = json.loads(result.stdout)
    except ValueError:
        return ["pyright did not answer", result.stdout[-2000:], result.stderr[-2000:]]
    problems = [
        f"{relative(Path(found['file']))}:{found['range']['start']['line'] + 1}: "
        f"{found['message']} [{found.get('rule', 'pyright')}]"
        for found in report["generalDiagnostics"]
        if found["severity"] == "error"
    ]
    checked = report["summary"]["filesAnalyzed"]
    if checked != len(files):
        problems.append(f"pyright checked {checked} of {len(files)} files")
    if not problems:
        print(f"pyright: {checked} files, no issues")
    return problems


def main(*, only_changed: bool) -> int:
    """Run both and print what they found."""
    files = [relative(path) for path in python_files()]
    problems = run_mypy(files)
    if not only_changed:
        problems += run_pyright(files)
    elif some := changed(files):
        problems += run_pyright(some, *some)
    print(*problems, sep="\n", end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(only_changed="--changed" in sys.argv))
