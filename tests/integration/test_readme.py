"""The README's promises: its code is cut out and run against a real `ternmq dev`."""

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from functools import partial
from pathlib import Path

import pytest

from ternmq_client.config import ClientConfig
from ternmq_nameserver.config import NameServerConfig
from tests.support.processes import ServiceProcess, running_dev
from tools.project import ROOT

README = (ROOT / "README.md").read_text()
PYTHON_BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
SHELL_BLOCKS = re.findall(r"^```sh\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
TERNMQ = f"{Path(sys.executable).parent}/ternmq"
FIRST_SCREEN_LINES = 60


@pytest.fixture
def dev(tmp_path: Path) -> Generator[ServiceProcess]:
    """Run `ternmq dev` on free ports."""
    with running_dev(tmp_path, launcher=[TERNMQ]) as process:
        yield process


def pointed_at(dev: ServiceProcess, code: str) -> str:
    """Return the README's code with the address of this `dev` instead of the default one."""
    made = re.sub(
        r"(async with \w+\()(.*)(\)(?: as \w+)?:)",
        rf'\1\2, nameserver="{dev.nameserver}"\3',
        code,
    )
    assert made != code
    return made


def test_readme_first_screen_has_both_commands_and_the_code() -> None:
    top = "\n".join(README.splitlines()[:FIRST_SCREEN_LINES])
    assert "make demo" in top
    assert "make test" in top
    assert len(PYTHON_BLOCKS) == 3
    for block in PYTHON_BLOCKS[:2]:
        assert block in top
        assert len([line for line in block.splitlines() if line]) <= 10


def test_readme_test_passes(tmp_path: Path) -> None:
    (tmp_path / "test_reminder.py").write_text(PYTHON_BLOCKS[2])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert "1 passed" in ran.stdout, ran.stdout


def test_default_nameserver_is_where_dev_listens() -> None:
    assert ClientConfig().nameservers == (f"127.0.0.1:{NameServerConfig().port}",)


def test_consumer_example_takes_what_producer_example_sends(
    dev: ServiceProcess, tmp_path: Path
) -> None:
    producer, consumer = (pointed_at(dev, block) for block in PYTHON_BLOCKS[:2])
    sent = subprocess.run(
        [sys.executable, "-W", "error", "-c", producer],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
    )
    assert sent.returncode == 0, sent.stderr
    assert [line.split()[0] for line in sent.stdout.splitlines()] == ["SEND_OK"] * 10

    with subprocess.Popen(
        [sys.executable, "-u", "-c", consumer],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        # A shell lets what it runs in the background ignore Ctrl-C, and that is inherited.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout is not None
        watchdog = threading.Timer(30, process.kill)
        watchdog.start()
        try:
            lines = [process.stdout.readline() for _ in range(10)]
            process.send_signal(signal.SIGINT)
            _, complaints = process.communicate(timeout=60)
        finally:
            watchdog.cancel()
            process.kill()
    taken = [line.split(maxsplit=2)[2].strip() for line in lines]
    assert sorted(taken) == [f"hello {number}" for number in range(10)]
    assert (process.returncode, complaints) == (128 + signal.SIGINT, "")


def test_readme_commands_do_what_they_say(dev: ServiceProcess, tmp_path: Path) -> None:
    commands = next(block for block in SHELL_BLOCKS if "ternmq produce" in block)
    outputs: list[str] = []
    for line in commands.splitlines():
        pipe = line.split("|")
        text = pipe[0].split('"')[1] + "\n" if len(pipe) > 1 else None
        arguments = pipe[-1].split()
        assert arguments[0] == "ternmq"
        done = subprocess.run(
            [TERNMQ, *arguments[1:], "--nameserver", dev.nameserver],
            input=text,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=120,
        )
        assert done.returncode == 0, f"{line}: {done.stderr}"
        outputs.append(done.stdout)
    assert outputs[1] == "hello\n"
    assert "notes" in outputs[2]
