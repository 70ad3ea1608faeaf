"""Build the archives of a release and try the wheel in a new environment: `make release`.

Nothing is tagged or uploaded: what is left for a person is printed in the end. See
docs/releasing.md.
"""

import os
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from ternmq_model.version import __version__
from tests.support.processes import running_dev
from tools.project import PACKAGES, REGISTERING, ROOT, relative

DIST: Final = ROOT / "dist"
FRAGMENTS: Final = ROOT / "changelog.d"
VERSION_FILE: Final = PACKAGES["model"] / "version.py"


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """A wheel that was built, installed into an environment of its own, and used."""

    wheel: Path
    commands: Path
    """Folder of the commands of that environment."""


def run(command: Sequence[str | Path], folder: Path, sent: str = "") -> str:
    """Run a command outside the checkout and return what it prints.

    Args:
        command: Program and arguments.
        folder: Working directory of the command.
        sent: Standard input of the command.

    Raises:
        SystemExit: The command failed.
    """
    done = subprocess.run(
        command, cwd=folder, env=outside(), input=sent, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{command[0]} failed\n{done.stdout}{done.stderr}")
    return done.stdout


def outside() -> dict[str, str]:
    """Return an environment in which nothing points to the checkout."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def build(archives: Path) -> Path:
    """Build the source archive and, from it, the wheel; return the wheel."""
    # Isolation would bring hatchling again, which is a part of this environment.
    command = [
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        "--outdir",
        str(archives),
        str(ROOT),
    ]
    run(command, ROOT)
    return archives / f"ternmq-{__version__}-py3-none-any.whl"


def differences(shipped: set[str]) -> set[str]:
    """Return the files that either the packages or the names of a wheel lack."""
    expected = {
        path.relative_to(package.parent).as_posix()
        for package in (*PACKAGES.values(), REGISTERING)
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    metadata = f"ternmq-{__version__}.dist-info/"
    return expected ^ {name for name in shipped if not name.startswith(metadata)}


def install(wheel: Path, environment: Path) -> Path:
    """Install `wheel` into a new environment and return the folder of its commands."""
    venv.create(environment)
    commands = environment / "bin"
    # With the pip that is here, and modules are compiled when they run: less than half of the time.
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(environment)]
    run([*pip, "install", "--quiet", "--no-compile", str(wheel)], environment)
    return commands


def use(commands: Path, folder: Path) -> None:
    """Send a message through `ternmq dev` and consume it, by the commands of an environment.

    Raises:
        SystemExit: The version is another, or the message did not come.
    """
    ternmq = commands / "ternmq"
    version = run([ternmq, "--version"], folder)
    if version != f"ternmq, version {__version__}\n":
        raise SystemExit(f"version {__version__} calls itself {version!r}")
    with running_dev(folder, launcher=[ternmq], env=outside()) as dev:
        to = ("--nameserver", dev.nameserver)
        run([ternmq, "produce", "releases", *to], folder, __version__)
        consumed = run([ternmq, "consume", "releases", "--group=g", "--max=1", *to], folder)
        status = dev.end()
    if (consumed, status) != (f"{__version__}\n", 0):
        raise SystemExit(f"consumed {consumed!r}, and `ternmq dev` ended with {status}")


def rehearse(archives: Path, scratch: Path) -> Rehearsal:
    """Build into `archives`, and install and use the wheel below the empty folder `scratch`."""
    wheel = build(archives)
    with zipfile.ZipFile(wheel) as archive:
        if found := differences(set(archive.namelist())):
            raise SystemExit(f"wheel and packages differ: {', '.join(sorted(found))}")
    commands = install(wheel, scratch / "environment")
    use(commands, scratch)
    return Rehearsal(wheel, commands)


Tag = Literal["missing", "here", "elsewhere"]
"""Position of this version's tag: missing, at HEAD, or at another commit."""


def remaining_steps(tag: Tag, *, fragments: bool, changes: bool) -> list[str]:
    """Return what a person has yet to do.

    Args:
        tag: Place of this version's tag.
        fragments: The changelog has yet to be built.
        changes: The checkout has changes that no commit has.
    """
    version = f"v{__version__}"
    steps: list[str] = []
    if tag == "elsewhere":
        steps.append(f"write a new version into {relative(VERSION_FILE)}: {version} is released")
    if fragments:
        steps.append(".venv/bin/towncrier build --yes")
    if steps or changes:
        return [*steps, "commit, then run `make release` again"]
    if tag == "missing":
        steps.append(f'git tag --annotate {version} --message "TernMQ {__version__}"')
    return [*steps, f"git push origin {version}", f"twine upload dist/ternmq-{__version__}*"]


def find_tag(root: Path) -> Tag:
    """Return where the tag of this version is in the checkout `root`."""
    name = f"v{__version__}"
    if git(root, "tag", "--points-at", "HEAD", "--list", name):
        return "here"
    return "elsewhere" if git(root, "tag", "--list", name) else "missing"


def git(root: Path, *words: str) -> str:
    """Return what git prints about the checkout `root`."""
    command = ["git", "-C", str(root), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    """Rehearse the release, and print what is left to do."""
    with tempfile.TemporaryDirectory() as scratch:
        rehearsal = rehearse(DIST, Path(scratch))
    print(f"{relative(rehearsal.wheel)} is built; installed, it sends and consumes. What is left:")
    steps = remaining_steps(
        find_tag(ROOT),
        fragments=any(FRAGMENTS.glob("*.*.md")),
        changes=bool(git(ROOT, "status", "--porcelain")),
    )
    print(*(f"  {step}" for step in steps), sep="\n")


if __name__ == "__main__":
    main()
