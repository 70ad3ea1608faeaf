"""`ternmq health`, for services of this machine and of others."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Generator

import pytest
from click.testing import Result

from ternmq_model.address import Address
from ternmq_remoting import local_health
from ternmq_remoting.grpc_network import GrpcNetwork
from ternmq_remoting.local_health import answering, ask
from tests.support.console import invoke
from tests.support.processes import ServiceProcess, free_port, running_dev

AT_ONCE_S = 20.0
"""Far longer than an answer takes."""

ASKING = """
import sys
from ternmq_console.main import ternmq
try:
    ternmq.main(["health", *sys.argv[1:]])
except SystemExit as end:
    loaded = {"grpc", "asyncio", "google.protobuf", "ternmq_client"} & set(sys.modules)
    print(end.code, *loaded)
"""


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServiceProcess]:
    with running_dev(tmp_path_factory.mktemp("dev")) as running:
        yield running


def health(*words: str, **variables: str) -> list[str]:
    """Run `ternmq health` in a process; return its lines: what it prints, its code and imports."""
    done = subprocess.run(
        [sys.executable, "-c", ASKING, *words],
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    return done.stdout.splitlines()


def test_service_is_not_healthy_whose_port_is_closed() -> None:
    async def main() -> Result:
        async with answering(Address("127.0.0.1", port := free_port()), lambda: True):
            return await asyncio.to_thread(invoke, "health", f"127.0.0.1:{port}")

    done = asyncio.run(main())
    assert (done.exit_code, done.stdout) == (4, "")
    assert "Connection refused" in done.stderr


def test_illegal_variable_is_named() -> None:
    told = health(TERNMQ_HEALTH="bad")
    assert told[-1].startswith("2")
    assert "TERNMQ_HEALTH" in told[0]


def test_health_asks_one_address(monkeypatch: pytest.MonkeyPatch) -> None:
    for words in ("a:1,b:2", "a,b:2", "a:1;b:2"):
        done = invoke("health", words)
        assert (done.exit_code, "must be one address" in done.stderr) == (2, True)
    monkeypatch.setenv("TERNMQ_HEALTH", "a:1,b:2")
    assert "TERNMQ_HEALTH" in invoke("health").stderr


def test_health_needs_no_grpc_for_a_service_of_this_machine(dev: ServiceProcess) -> None:
    assert health(dev.nameserver) == [f"{dev.nameserver} serves", "0"]
    assert health(TERNMQ_HEALTH=dev.broker) == [f"{dev.broker} serves", "0"]


def test_health_needs_no_grpc_for_a_service_that_is_not_there_yet() -> None:
    address = f"127.0.0.1:{free_port()}"
    assert health(address) == [f"ternmq: {address}: Connection refused", "4"]


def test_health_gives_up_on_a_service_whose_loop_is_stuck(dev: ServiceProcess) -> None:
    dev.process.send_signal(signal.SIGSTOP)
    try:
        told = health(dev.broker, "--timeout", "0.2")
    finally:
        dev.process.send_signal(signal.SIGCONT)
    assert told == [f"ternmq: {dev.broker}: no answer in time", "4"]


def test_health_asks_other_machines_over_grpc(
    dev: ServiceProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask_nobody(address: Address, *, timeout_s: float) -> None:
        """Find none of this machine."""

    monkeypatch.setattr(local_health, "ask", ask_nobody)
    assert invoke("health", dev.broker).exit_code == 0


def test_health_refuses_a_port_of_another_program() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        done = invoke("health", address, "--timeout", "0.5")
    assert done.exit_code == 4
    assert done.stderr.startswith(f"ternmq: {address}: ")


def test_health_is_refused_by_a_server_that_closes() -> None:
    async def main() -> int:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            address = Address("127.0.0.1", listening.getsockname()[1])
            async with answering(address, lambda: False):
                done = await asyncio.to_thread(invoke, "health", str(address))
        assert "is closing" in done.stderr
        return done.exit_code

    assert asyncio.run(main()) == 4


def test_grpc_server_answers_beside_its_port() -> None:
    async def main() -> None:
        async with GrpcNetwork().serve([], Address("127.0.0.1", 0)) as server:
            assert await asyncio.to_thread(ask, server.address, timeout_s=AT_ONCE_S) is True
        assert ask(server.address, timeout_s=AT_ONCE_S) is None

    asyncio.run(main())
