"""What is brought to run containers, with stand-ins for the programs that are brought."""

import subprocess
import sys
from pathlib import Path

from tools.project import ROOT

TELL = 'echo "$BASE|$WHEELS|$DOCKER_HOST|$DOCKER_CONFIG|$TESTCONTAINERS_RYUK_DISABLED"; exit 7'


def with_containers(folder: Path, **programs: str) -> subprocess.CompletedProcess[str]:
    """Run a command among these programs, each a line of shell."""
    for name, line in {"iptables": "", "debootstrap": "exit 1", **programs}.items():
        (folder / name).write_text(f"#!/bin/sh\n{line}\n")
        (folder / name).chmod(0o755)
    return subprocess.run(
        [sys.executable, ROOT / "tools" / "with_containers.py", "sh", "-c", TELL],
        env={"PATH": f"{folder}:/usr/bin:/bin", "HOME": str(folder), "SEEN": str(folder / "seen")},
        capture_output=True,
        text=True,
        timeout=30,
    )


def test_available_container_tools_are_used_as_they_are(tmp_path: Path) -> None:
    done = with_containers(tmp_path, docker="exit 0", dockerd="exit 1", go="exit 1")
    assert (done.stdout, done.stderr, done.returncode) == ("||||true\n", "", 7)
    assert not (tmp_path / ".cache").exists()


def test_container_engine_started_here_ends_with_the_command(tmp_path: Path) -> None:
    docker = '[ "$1" != version ] || [ -e "$SEEN" ]'
    dockerd = 'trap "echo ended >> $SEEN; exit" TERM; echo $$ > $SEEN; while :; do sleep 0.1; done'
    done = with_containers(tmp_path, docker=docker, dockerd=dockerd)
    assert done.returncode == 7, done.stderr
    cache = tmp_path / ".cache" / "ternmq" / "containers"
    assert f"unix://{cache}/run/docker.sock" in done.stdout
    pid, ended = (tmp_path / "seen").read_text().split()
    assert ended == "ended"
    assert not Path(f"/proc/{pid}").exists()


def test_containers_of_a_killed_run_are_removed(tmp_path: Path) -> None:
    docker = (
        'case $1 in version) [ -e "$SEEN" ];; ps) echo one two;; rm) echo $* > "$HOME/gone";; esac'
    )
    dockerd = 'trap exit TERM; touch "$SEEN"; while :; do sleep 0.1; done'
    assert with_containers(tmp_path, docker=docker, dockerd=dockerd).returncode == 7
    assert (tmp_path / "gone").read_text() == "rm --force --volumes one two\n"


def test_engine_that_does_not_start_says_why(tmp_path: Path) -> None:
    done = with_containers(tmp_path, docker="exit 1", dockerd="echo no room; exit 1")
    assert done.returncode == 1
    assert done.stderr == "dockerd does not start\nno room\n\n"


def test_unbuildable_compose_is_named(tmp_path: Path) -> None:
    done = with_containers(tmp_path, docker='[ "$1" = version ]', go="exit 1")
    assert done.returncode != 0
    assert "'go', 'mod', 'tidy'" in done.stderr
