"""What the containers may do, and what the cluster does for whoever is beside or inside it."""

import asyncio
import contextlib
import json
import re
import signal
import subprocess
import threading
from collections.abc import Generator
from functools import partial
from typing import Final

import pytest

from tests.support.containers import (
    BROKER_PORTS,
    COMPOSE,
    NAMESERVERS,
    PORTS,
    container,
    inspected,
)
from tests.support.processes import eventually, run_ternmq
from tools.project import ROOT

README: Final = re.findall(
    r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL
)
SOON_S: Final = 120.0


@pytest.mark.parametrize("service", PORTS)
def test_container_writes_only_to_its_data(service: str) -> None:
    told = inspected(service)
    assert told["State"]["Health"]["Status"] == "healthy"
    assert told["Config"]["Healthcheck"]["Test"] == ["CMD", "ternmq", "health"]
    assert told["HostConfig"]["Init"]
    assert told["Config"]["User"] == "10001:10001"
    host = told["HostConfig"]
    assert host["ReadonlyRootfs"]
    assert host["CapDrop"] == ["ALL"]
    assert host["SecurityOpt"] == ["no-new-privileges:true"]
    assert not host["Privileged"]
    assert host["RestartPolicy"]["Name"] == "unless-stopped"
    assert [mount["Destination"] for mount in told["Mounts"] if mount["RW"]] == ["/data"]
    assert {port["HostIp"] for [port] in host["PortBindings"].values()} == {"127.0.0.1"}


@pytest.mark.parametrize("service", ["nameserver-1", "broker-a"])
def test_container_filesystem_is_writable_only_in_data_and_tmp(service: str) -> None:
    script = (
        "for folder in / /etc /opt/ternmq /usr/local; do touch $folder/new && exit 1; done;"
        "touch /tmp/new /data/new && rm /data/new &&"
        "grep -q '^CapEff:\\s*0*$' /proc/self/status &&"
        "grep -q '^NoNewPrivs:\\s*1' /proc/self/status"
    )
    done = in_container(service, "sh", "-c", script)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.count("Read-only file system") == 4


def test_container_stops_cleanly_and_at_once() -> None:
    for service in ("nameserver-2", "broker-b"):
        subprocess.run(["docker", "stop", container(service)], check=True, capture_output=True)
        state = inspected(service)["State"]
        subprocess.run(["docker", "start", container(service)], check=True, capture_output=True)
        assert (state["ExitCode"], state["OOMKilled"]) == (0, False)
    log = subprocess.run(
        ["docker", "logs", container("broker-b")], check=True, capture_output=True, text=True
    )
    assert "store closed folder=/data clean=True" in log.stderr
    assert asyncio.run(eventually(is_whole)), "broker-b is not back"


async def is_whole() -> bool:
    """Tell whether each member is registered in each NameServer, and answers."""
    for nameserver in NAMESERVERS.split(";"):
        told = await asyncio.to_thread(
            run_ternmq, "cluster", "list", "--nameserver", nameserver, "--output", "json"
        )
        members = json.loads(told)
        if len(members) < len(BROKER_PORTS) or any(each["status"] != "serving" for each in members):
            return False
    return True


def test_readme_code_runs_in_another_container() -> None:
    producer, consumer, _ = README
    with in_client("python", "-c", producer) as process:
        sent, complaints = process.communicate(timeout=SOON_S)
    assert [line.split()[0] for line in sent.splitlines()] == ["SEND_OK"] * 10, complaints
    with in_client("python", "-u", "-c", consumer) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(10)]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=SOON_S)
    taken = [line.split(maxsplit=2)[2].strip() for line in lines]
    assert sorted(taken) == [f"hello {number}" for number in range(10)]
    with in_client("ternmq", "topic", "list") as process:
        told, complaints = process.communicate(timeout=SOON_S)
    assert "greetings" in told, complaints


def in_container(service: str, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the container of a service."""
    return subprocess.run(
        ["docker", "exec", container(service), *command], capture_output=True, text=True
    )


@contextlib.contextmanager
def in_client(program: str, *arguments: str) -> Generator[subprocess.Popen[str]]:
    """Run a program in a container of its own, beside those of the cluster, for a while."""
    command = [*COMPOSE, "run", "--rm", "--no-TTY", "--entrypoint", program, "client", *arguments]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell lets what it runs in the background ignore Ctrl-C, and that is inherited.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    ) as process:
        watchdog = threading.Timer(SOON_S, process.kill)
        watchdog.start()
        try:
            yield process
        finally:
            watchdog.cancel()
            process.kill()
