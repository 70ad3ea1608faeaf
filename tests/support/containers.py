"""The cluster of compose.yaml in containers of its own, and what befalls containers.

    with running_containers():
        ...
        await docker("kill", container("broker-a"))

Its project is not that of a user's `docker compose up`, and nor are its volumes; its ports are.
"""

import asyncio
import contextlib
import json
import os
import subprocess
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import Generator
from typing import Any, Final

from testcontainers.compose import DockerCompose

from ternmq_model.errors import TernError
from tests.support.brokers import connected
from tests.support.processes import run_ternmq
from tools.project import ROOT

PROJECT: Final = "ternmq-tests"
NETWORK: Final = f"{PROJECT}_default"
FILES: Final = ("compose.yaml", "tests/cluster/compose.yaml")
COMPOSE: Final = (
    *("docker", "compose", "--project-name", PROJECT),
    *(word for file in FILES for word in ("--file", file)),
)
NAMESERVER_PORTS: Final = {"nameserver-1": 9876, "nameserver-2": 9877}
BROKER_PORTS: Final = {
    "broker-a": 10911,
    "broker-a-slave": 10921,
    "broker-b": 10931,
    "broker-b-slave": 10941,
}
PORTS: Final = NAMESERVER_PORTS | BROKER_PORTS
"""Where this machine reaches every service that must serve."""

NAMESERVERS: Final = ";".join(f"127.0.0.1:{port}" for port in NAMESERVER_PORTS.values())


def what_is_missing() -> str:
    """Say why no containers can be run here; nothing where they can."""
    for arguments, missing in (
        (["docker", "version"], "no Docker engine answers"),
        (["docker", "compose", "version"], "docker has no `compose`"),
    ):
        try:
            subprocess.run(arguments, check=True, capture_output=True, timeout=20)
        except (OSError, subprocess.SubprocessError):
            return missing
    return ""


@contextlib.contextmanager
def running_containers() -> Generator[DockerCompose]:
    """Run the cluster until every container is healthy; remove it and its data at the end."""
    os.environ["COMPOSE_PROJECT_NAME"] = PROJECT
    compose = DockerCompose(ROOT, compose_file_name=list(FILES), build=True)
    try:
        remove_containers()  # of a run that was killed
        try:
            compose.start()
        except subprocess.CalledProcessError as error:
            told = [error.stdout.decode(), error.stderr.decode(), *compose.get_logs()]
            raise AssertionError("\n".join(told)) from None
        yield compose
    finally:
        remove_containers()
        del os.environ["COMPOSE_PROJECT_NAME"]


def remove_containers() -> None:
    """Remove every container, volume and network of the project."""
    down = ("--profile", "*", "down", "--volumes", "--remove-orphans", "--timeout", "1")
    subprocess.run(
        [*COMPOSE, *down],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )


def container(service: str) -> str:
    """Return the name of a service's container."""
    return f"{PROJECT}-{service}-1"


async def docker(*arguments: str) -> str:
    """Run a command of docker and return what it says."""
    process = await asyncio.create_subprocess_exec(
        "docker", *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=PIPE, stderr=STDOUT, cwd=ROOT
    )
    told, _ = await process.communicate()
    assert process.returncode == 0, f"docker {' '.join(arguments)}: {told.decode()}"
    return told.decode()


def inspected(service: str) -> dict[str, Any]:
    """Return what docker knows of a service's container."""
    command = ["docker", "inspect", container(service)]
    [told] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return dict(told)


async def log_bytes(service: str, end: int) -> str:
    """Return a checksum of a broker's log from its first byte to `end`."""
    script = f"cat /data/commitlog/* | head --bytes {end} | sha256sum"
    return await docker("exec", container(service), "sh", "-c", script)


async def destroy_data(service: str) -> None:
    """Take a container away together with its volume; it must not run."""
    await docker("rm", container(service))
    await docker("volume", "rm", f"{PROJECT}_{service}")


async def make_anew(service: str) -> None:
    """Make and start a service's container, with a new volume if it has none."""
    await docker(*COMPOSE[1:], "up", "--detach", "--no-deps", "--no-build", service)


async def console(*words: str) -> str:
    """Run a command of the console on this machine and return what it prints."""
    return await asyncio.to_thread(run_ternmq, *words, "--nameserver", NAMESERVERS)


async def cut_off(service: str) -> None:
    """Take a container's network away; its connections hear nothing of it."""
    await docker("network", "disconnect", NETWORK, container(service))


async def join(service: str) -> None:
    """Give a container its network back, and its name in there."""
    await docker("network", "connect", "--alias", service, NETWORK, container(service))


async def is_served(service: str) -> bool:
    """Tell whether a service serves this machine."""
    try:
        async with connected(f"127.0.0.1:{PORTS[service]}", timeout_s=1):
            return True
    except TernError:
        return False
