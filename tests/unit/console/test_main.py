import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ternmq_console.main import LOGGERS, ternmq
from ternmq_remoting.tls import CREDENTIALS_VARIABLE
from tools.project import PACKAGES

ROLES = ("async_master", "sync_master", "slave")
LOADED = """
import sys
from ternmq_console.main import ternmq
command = ternmq
for word in sys.argv[2:]:
    command = command.get_command(None, word)
assert sys.argv[1] not in sys.modules, sys.argv[1]
"""

COMPLETING = """
import sys
from ternmq_console.main import main
try:
    main()
finally:
    assert sys.argv[1] not in sys.modules
"""

STARTING = """
import gc, os, sys
from ternmq_console.main import main
collecting = set()
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name.startswith(("grpc", "numpy", "ternmq_store")):
            collecting.add(gc.isenabled())
sys.meta_path.insert(0, Finder())
try:
    main()
finally:
    print(collecting, gc.isenabled(), len(os.listdir("/proc/self/task")))
"""


def test_warnings_of_every_package_are_silenced() -> None:
    assert sorted(LOGGERS) == sorted(package.name for package in PACKAGES.values())


@pytest.mark.parametrize(
    ("verb", "package"),
    [
        ("topic create", "numpy"),
        ("group describe", "numpy"),
        ("dlq redrive", "numpy"),
        ("cluster list", "numpy"),
        ("message get", "numpy"),
        ("broker status", "ternmq_broker.broker"),
        ("nameserver", "ternmq_broker.broker"),
        ("topic create", "grpc"),
        ("group describe", "grpc"),
        ("broker", "grpc"),
        ("pipeline archive", "grpc"),
        ("user create", "numpy"),
        ("acl test", "numpy"),
        ("acl test", "grpc"),
    ],
)
def test_command_starts_without_packages_it_does_not_need(verb: str, package: str) -> None:
    subprocess.run([sys.executable, "-c", LOADED, package, *verb.split()], check=True)


def test_dev_loads_its_modules_without_collections_and_threads() -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("OPENBLAS")}
    command = [sys.executable, "-c", STARTING, "dev", "--help"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "{False} True 1"


@pytest.mark.parametrize(
    ("line", "found", "package"),
    [
        ("ternmq to", ["topic"], "ternmq_client"),
        ("ternmq topic d", ["describe", "delete"], "ternmq_client"),
        ("ternmq broker se", ["settings", "set-permission"], "grpc"),
        ("ternmq user re", ["revoke", "remove", "recover"], "ternmq_client"),
        ("ternmq topic describe --n", ["--nameserver"], "grpc"),
        ("ternmq broker set-permission broker-a r", ["rw", "r"], "grpc"),
    ],
)
def test_completion_tells_what_goes_on_without_packages_it_does_not_need(
    line: str, found: list[str], package: str
) -> None:
    asked = {
        "_TERNMQ_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(line.count(" ")),
    }
    command = [sys.executable, "-c", COMPLETING, package]
    done = subprocess.run(command, env=os.environ | asked, capture_output=True, text=True)
    assert done.stderr == ""
    assert [row.removeprefix("plain,") for row in done.stdout.splitlines()] == found


@pytest.mark.parametrize(
    ("shell", "words", "place", "found"),
    [
        ("bash", "ternmq broker --role = as", "4", ["plain,async_master"]),
        ("bash", "ternmq broker --name = b --role = s", "7", ["plain,sync_master", "plain,slave"]),
        ("bash", "ternmq broker --role =", "3", [f"plain,{role}" for role in ROLES]),
        ("zsh", "ternmq broker --role=as", "2", ["plain", "--role=async_master", "_"]),
        ("fish", "ternmq broker --role=as", "--role=as", ["plain,--role=async_master"]),
        ("fish", "ternmq broker --role=", "--role=", [f"plain,--role={role}" for role in ROLES]),
    ],
)
def test_value_is_completed_behind_an_equals_sign(
    shell: str, words: str, place: str, found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_TERNMQ_COMPLETE", f"{shell}_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", place)
    done = CliRunner().invoke(ternmq, [], prog_name="ternmq")
    assert done.stdout.splitlines() == found


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_is_printed_for_each_shell(shell: str) -> None:
    asked = {"_TERNMQ_COMPLETE": f"{shell}_source"}
    command = [sys.executable, "-c", COMPLETING, "grpc"]
    done = subprocess.run(command, env=os.environ | asked, capture_output=True, text=True)
    assert done.stderr == ""
    assert f"_TERNMQ_COMPLETE={shell}_complete" in done.stdout


def test_bash_completes_with_the_script_that_is_printed(tmp_path: Path) -> None:
    program = tmp_path / "ternmq"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ternmq "$@"\n')
    program.chmod(0o755)
    script = """
        eval "$(_TERNMQ_COMPLETE=bash_source ternmq)"
        COMP_WORDS=(ternmq topic d); COMP_CWORD=2; _ternmq_completion ternmq
        echo "${COMPREPLY[@]}"
    """
    env = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("describe delete\n", "")


def test_credentials_of_the_command_line_count_before_those_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = ("topic", "list", "--nameserver", "127.0.0.1:1")
    for former in ("former.toml", None):
        if former is None:
            monkeypatch.delenv(CREDENTIALS_VARIABLE, raising=False)
        else:
            monkeypatch.setenv(CREDENTIALS_VARIABLE, former)
        done = CliRunner().invoke(ternmq, ["--credentials", str(tmp_path / "given.toml"), *words])
        assert done.exit_code == 2
        assert "given.toml': cannot be read" in done.stderr
        assert os.environ.get(CREDENTIALS_VARIABLE) == former
    (tmp_path / "public.toml").write_text('token = "tmq.ada.0123456789abcdef"')
    done = CliRunner().invoke(ternmq, ["--credentials", str(tmp_path / "public.toml"), *words])
    assert done.exit_code == 2
    assert "mode must be 0600" in done.stderr
    assert "0123456789abcdef" not in done.output
