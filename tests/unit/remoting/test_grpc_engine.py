"""Tests of the choice of gRPC's I/O engine."""

import subprocess
import sys

import grpc
import pytest

from ternmq_remoting.grpc_engine import POLLING, VARIABLE, choose_engine, installed_version

THREADS = """
import asyncio, os
from ternmq_model.address import Address
from ternmq_model.errors import Unreachable
from ternmq_remoting.grpc_network import GrpcNetwork

async def main():
    try:
        await GrpcNetwork().connect([Address("127.0.0.1", 1)], timeout_s=0.2)
    except Unreachable:
        pass
    for thread in os.listdir("/proc/self/task"):
        print(open(f"/proc/self/task/{thread}/comm").read().strip())

asyncio.run(main())
"""


def test_installed_version_is_that_of_the_loaded_library() -> None:
    major, minor = grpc.__version__.split(".")[:2]
    assert installed_version() == (int(major), int(minor))


@pytest.mark.parametrize("version", [(1, 80), (1, 85)])
def test_choose_engine_polls_where_grpc_has_both_engines(version: tuple[int, int]) -> None:
    environ: dict[str, str] = {}
    choose_engine(environ, version)
    assert environ == {VARIABLE: POLLING}


@pytest.mark.parametrize("version", [(1, 79), (1, 86), (2, 0), None])
def test_choose_engine_names_no_flag_to_other_versions(version: tuple[int, int] | None) -> None:
    environ: dict[str, str] = {}
    choose_engine(environ, version)
    assert environ == {}


def test_choose_engine_leaves_the_users_value() -> None:
    environ = {VARIABLE: "event_engine_client"}
    choose_engine(environ, (1, 85))
    assert environ == {VARIABLE: "event_engine_client"}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_polling_client_starts_no_thread_of_the_other_engine() -> None:
    done = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "event_engine" not in done.stdout.split()
    assert "Unknown experiment" not in done.stderr
