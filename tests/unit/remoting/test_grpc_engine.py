"""Tests of the choice of gRPC's I/O engine."""

import os
import subprocess
import sys

import grpc
import pytest

from ternmq_remoting.grpc_engine import POLLING, VARIABLE, choose_engine, installed_version

CALLS = 500
COUNT_SWITCHES = """
import contextlib, os, re, sys, time
import ternmq_remoting
import asyncio, grpc

BLOCKS = 10

async def echo(request, context):
    return request

async def main():
    server = grpc.aio.server()
    methods = {"Echo": grpc.unary_unary_rpc_method_handler(echo)}
    handler = grpc.method_handlers_generic_handler("test.Echo", methods)
    server.add_generic_rpc_handlers([handler])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary("/test.Echo/Echo")
        found = 0
        for _ in range(BLOCKS):
            before, begun_s = switches(), time.monotonic()
            for _ in range(int(sys.argv[1]) // BLOCKS):
                await call(b"")
            after, taken_s = switches(), time.monotonic() - begun_s
            await asyncio.sleep(taken_s)
            found += 2 * after - before - switches()
        print(found)
    await server.stop(None)

def switches():
    found = 0
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            status = open(f"/proc/self/task/{thread}/status").read()
            if status.startswith("Name:\\tevent_engine"):
                found += int(re.search("voluntary_ctxt_switches:\\\\s+([0-9]+)", status)[1])
    return found

asyncio.run(main())
"""
"""Program that prints how often threads of the other engine ran for calls to itself: without what
they do anyway in the same time, which is long on a busy machine."""


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


@pytest.mark.parametrize("value", ["event_engine_client", ""])
def test_choose_engine_leaves_the_users_value(value: str) -> None:
    environ = {VARIABLE: value}
    choose_engine(environ, (1, 85))
    assert environ == {VARIABLE: value}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_calls_run_in_no_thread_of_the_other_engine() -> None:
    program = [sys.executable, "-c", COUNT_SWITCHES, str(CALLS)]
    bare = {name: value for name, value in os.environ.items() if name != VARIABLE}
    done = subprocess.run(program, capture_output=True, text=True, env=bare)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < CALLS // 5
    assert "Unknown experiment" not in done.stderr
    other = bare | {VARIABLE: POLLING.replace("-", "")}
    done = subprocess.run(program, capture_output=True, text=True, env=other)
    assert int(done.stdout) > CALLS
