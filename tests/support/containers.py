"""The clusters of compose.yaml and compose.secure.yaml in containers, and what befalls containers.

    with running_containers():
        ...
        await docker("kill", container("broker-a"))

Their projects are not those of a user's `docker compose up`, and nor are their volumes. The ports
of compose.yaml are.
"""

import asyncio
import contextlib
import json
import os
import subprocess
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import Generator, Sequence
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
SECURE_PROJECT: Final = f"{PROJECT}-secure"
SECURE_COMPOSE: Final = (
    *("docker", "compose", "--project-name", SECURE_PROJECT),
    *("--file", "compose.secure.yaml", "--file", "tests/cluster/compose.secure.yaml"),
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
SECURE_NAMESERVERS: Final = "127.0.0.1:9886;127.0.0.1:9887"


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


@contextlib.contextmanager
def running_secure_containers() -> Generator[None]:
    """Run the cluster with TLS and users, of the image that is there, until all are healthy."""
    try:
        remove_containers(SECURE_COMPOSE)  # of a run that was killed
        start_secure_containers()
        yield
    finally:
        remove_containers(SECURE_COMPOSE)


def start_secure_containers() -> None:
    """Start the containers with TLS and users, and wait until all have done their work."""
    command = [*SECURE_COMPOSE, "up", "--no-build", "--detach", "--wait"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    logs = [*SECURE_COMPOSE, "logs", "--no-color"]
    if done.returncode:
        told = subprocess.run(logs, cwd=ROOT, capture_output=True, text=True)
        raise AssertionError(f"{done.stdout}\n{done.stderr}\n{told.stdout}")


def remove_containers(compose: Sequence[str] = COMPOSE) -> None:
    """Remove every container, volume and network of the project."""
    down = ("--profile", "*", "down", "--volumes", "--remove-orphans", "--timeout", "1")
    subprocess.run([*compose, *down], cwd=ROOT, check=True, capture_output=True)


def container(service: str, project: str = PROJECT) -> str:
    """Return the name of a service's container."""
    return f"{project}-{service}-1"


async def docker(*arguments: str) -> str:
    """Run a command of docker and return what it says."""
    process = await asyncio.create_subprocess_exec(
        "docker", *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=PIPE, stderr=STDOUT, cwd=ROOT
    )
    told, _ = await process.communicate()
    assert process.returncode == 0, f"docker {' '.join(arguments)}: {told.decode()}"
    return told.decode()


def inspected(service: str, project: str = PROJECT) -> dict[str, Any]:
    """Return what docker knows of a service's container."""
    command = ["docker", "inspect", container(service, project)]
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
