"""Run a command where containers can be run: `python3 tools/with_containers.py COMMAND...`.

What is missing is brought, from the least to the most: Docker itself (as root, with `apt-get`), an
engine that runs, `docker compose`, an image to build on, and wheels where an image's build reaches
no package index. It is kept in `~/.cache/ternmq/containers`, so a second run brings nothing; the
command finds it by variables. An engine that was started here ends with the command. Only the
standard library is there when this runs.
"""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
CACHE: Final = (
    Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ternmq" / "containers"
)
DEBIAN: Final = "bookworm"
PACKAGES: Final = ("docker.io", "iptables", "debootstrap", "ca-certificates")
PUBLISHED_BASE: Final = "python:3.12-slim"
OWN_BASE: Final = f"ternmq-base:{DEBIAN}"
COMPOSE: Final = "v2.40.0"
COMPOSE_MODULE: Final = f"""module compose

go 1.24

require github.com/docker/compose/v2 {COMPOSE}
"""
COMPOSE_IMPORT: Final = """package imports

import _ "github.com/docker/compose/v2/cmd/compose"
"""
READY_WITHIN_S: Final = 60
ENDED_WITHIN_S: Final = 60


def says(
    *command: str | Path, timeout_s: float = 60, variables: Mapping[str, str] | None = None
) -> bool:
    """Tell whether a command is there and succeeds; what it prints is not shown."""
    env = os.environ | (variables or {})
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=timeout_s, env=env)
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def do(*command: str | Path, folder: Path = ROOT) -> None:
    """Run a command that must succeed."""
    print("+", *command, flush=True)
    subprocess.run(command, check=True, cwd=folder)


def bring_docker() -> None:
    """Install Docker's programs where they are not there."""
    needed = ("docker", "dockerd", "iptables", "debootstrap")
    if all(shutil.which(program) for program in needed):
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        sys.exit("no Docker engine answers, and one can be installed only as root by apt-get")
    os.environ["DEBIAN_FRONTEND"] = "noninteractive"
    # It must not be started by its installation: who starts it ends it.
    with contextlib.ExitStack() as stack:
        policy = Path("/usr/sbin/policy-rc.d")
        if not policy.exists():
            policy.write_text("#!/bin/sh\nexit 101\n")
            policy.chmod(0o755)
            stack.callback(policy.unlink)
        do("apt-get", "update")
        do("apt-get", "install", "--yes", "--no-install-recommends", *PACKAGES)


@contextlib.contextmanager
def running_engine() -> Generator[None]:
    """Have an engine that answers; one that was started here ends with the block."""
    if says("docker", "version"):
        yield
        return
    bring_docker()
    run = CACHE / "run"
    run.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        end_left_behind(run / "docker.pid")
        os.environ["DOCKER_HOST"] = f"unix://{run}/docker.sock"
        command = [
            *("dockerd", "--host", os.environ["DOCKER_HOST"], "--pidfile", f"{run}/docker.pid"),
            *("--data-root", str(CACHE / "engine"), "--exec-root", f"{run}/exec"),
        ]
        print("+", *command, flush=True)
        # In a session of its own: Ctrl-C is for the command, which still needs it to clean up.
        with (
            (CACHE / "engine.log").open("wb") as log,
            subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True) as engine,
        ):
            try:
                wait_for(engine)
                remove_left_behind()
                yield
            finally:
                end(engine)


def end_left_behind(pid_file: Path) -> None:
    """End the engine of a run that was killed: it would keep its data to itself."""
    with contextlib.suppress(OSError, ValueError):
        pid = int(pid_file.read_text())
        while Path(f"/proc/{pid}/comm").read_text().strip() == "dockerd":
            os.kill(pid, signal.SIGTERM)
            time.sleep(0.5)


def remove_left_behind() -> None:
    """Remove what earlier runs built, and the containers of one that was killed: they run again."""
    asked = ["docker", "ps", "--all", "--quiet"]
    left = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split()
    if left and not says("docker", "rm", "--force", "--volumes", *left):
        print("containers of an earlier run cannot be removed", file=sys.stderr)
    says("docker", "image", "prune", "--force")


def wait_for(engine: subprocess.Popen[bytes]) -> None:
    """Return when the engine answers."""
    limit_s = time.monotonic() + READY_WITHIN_S
    while not says("docker", "version"):
        if engine.poll() is not None or time.monotonic() > limit_s:
            told = (CACHE / "engine.log").read_text(errors="replace")
            sys.exit(f"dockerd does not start\n{told[-4000:]}")
        time.sleep(0.2)


def end(engine: subprocess.Popen[bytes]) -> None:
    """End an engine, which ends its containers."""
    engine.terminate()
    try:
        engine.wait(ENDED_WITHIN_S)
    except subprocess.TimeoutExpired:
        engine.kill()


def bring_compose() -> dict[str, str]:
    """Build `docker compose` from its module where docker does not have it; return variables."""
    if says("docker", "compose", "version"):
        return {}
    config = CACHE / "docker"
    plugin = config / "cli-plugins" / "docker-compose"
    variables = {"DOCKER_CONFIG": str(config)}
    if says("docker", "compose", "version", variables=variables):
        return variables
    if shutil.which("go") is None:
        sys.exit("docker has no `compose`, and without Go it cannot be built")
    plugin.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "go.mod").write_text(COMPOSE_MODULE)
        (folder / "imports.go").write_text(COMPOSE_IMPORT)
        do("go", "mod", "tidy", folder=folder)
        built = plugin.with_suffix(".new")
        do(
            "go",
            "build",
            "-mod=mod",
            "-o",
            built,
            "github.com/docker/compose/v2/cmd",
            folder=folder,
        )
    built.replace(plugin)
    if not says("docker", "compose", "version", variables=variables):
        sys.exit("docker does not take the `compose` that was built")
    return variables


def bring_base() -> dict[str, str]:
    """Have an image that ours is built on; return variables that say which."""
    if "BASE" in os.environ:
        return {}
    if says("docker", "image", "inspect", PUBLISHED_BASE) or says(
        "docker", "pull", PUBLISHED_BASE, timeout_s=600
    ):
        return {}
    if not says("docker", "image", "inspect", OWN_BASE):
        make_base()
    bring_wheels()
    return {"BASE": OWN_BASE, "WHEELS": "only"}


def make_base() -> None:
    """Make an image with Debian's Python and nothing else."""
    with tempfile.TemporaryDirectory(prefix="ternmq-base-") as name:
        folder = Path(name) / "root"
        do(
            "debootstrap",
            "--variant=minbase",
            "--include=python3,python3-venv",
            DEBIAN,
            folder,
        )
        with subprocess.Popen(["tar", "-C", folder, "-c", "."], stdout=subprocess.PIPE) as tar:
            subprocess.run(["docker", "import", "-", OWN_BASE], stdin=tar.stdout, check=True)
        if tar.returncode:
            sys.exit("the base image could not be packed")


def bring_wheels() -> None:
    """Fill `wheels/` with what the image's build needs, for the Python that its base has."""
    asking = "import sys; print('%d.%d' % sys.version_info[:2])"
    command = ["docker", "run", "--rm", OWN_BASE, "python3", "-c", asking]
    version = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = told["project"]
    needed = [*told["build-system"]["requires"], *project["dependencies"]]
    extras = project["optional-dependencies"]
    needed += [*extras["metrics"], *extras["security"]]
    wheels, note = ROOT / "wheels", json.dumps([version, needed])
    stamp = wheels / "needed.json"
    if stamp.exists() and stamp.read_text() == note:
        return
    shutil.rmtree(wheels, ignore_errors=True)
    with tempfile.TemporaryDirectory() as name:
        python = Path(name) / "bin" / "python"
        do(sys.executable, "-m", "venv", name)
        do(
            python,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--disable-pip-version-check",
            "--dest",
            wheels,
            "--only-binary=:all:",
            "--python-version",
            version,
            *needed,
        )
    stamp.write_text(note)


def main(command: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends it in order, like Ctrl-C
    with running_engine():
        with ThreadPoolExecutor() as pool:
            bringing = [pool.submit(bring_compose), pool.submit(bring_base)]
        # Not by the threads: what one of them starts would read variables that the other replaces.
        for brought in bringing:
            os.environ.update(brought.result())
        # Testcontainers' own cleaner is an image that may not be there; our tests clean up.
        os.environ["TESTCONTAINERS_RYUK_DISABLED"] = "true"
        return subprocess.call(command, cwd=ROOT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
