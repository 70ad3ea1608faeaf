"""The watcher over sockets without gRPC, whose calls the tests note themselves."""

import asyncio
import contextlib
import errno
import logging
import os
import socket
from collections.abc import Generator
from dataclasses import dataclass, replace

import pytest

from ternmq_model.address import Address
from ternmq_remoting.connection_limits import PortLimit
from ternmq_remoting.connection_watcher import LOG_INTERVAL_S, ConnectionWatcher
from ternmq_remoting.network_config import NetworkConfig
from ternmq_remoting.port_calls import PortCalls
from ternmq_runtime.service import JobRunner

LIMITS = NetworkConfig(anonymous_bytes_max=4096)


@dataclass
class Port:
    """A port of this process, with both ends of its connections."""

    listening: socket.socket
    calls: PortCalls
    watcher: ConnectionWatcher
    stack: contextlib.ExitStack

    def connect(self) -> tuple[socket.socket, str]:
        """Return the caller's end of a new connection, and gRPC's name of it."""
        address = ("127.0.0.1", self.listening.getsockname()[1])
        near = self.stack.enter_context(socket.create_connection(address))
        far, peer = self.listening.accept()
        self.stack.enter_context(far)
        return near, f"ipv4:127.0.0.1:{peer[1]}"


@contextlib.contextmanager
def watched(limits: NetworkConfig = LIMITS, listen: str = "127.0.0.1") -> Generator[Port]:
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.create_server((listen, 0)))
        calls = PortCalls(limits.streams_max)
        address = Address(listen, listening.getsockname()[1])
        watcher = ConnectionWatcher([address], calls, limits)
        assert len(watcher.jobs()) == 1
        yield Port(listening, calls, watcher, stack)


def looks(port: Port, *times_s: float) -> None:
    async def look() -> None:
        for now_s in times_s:
            await port.watcher.look(now_s=now_s)

    asyncio.run(look())


def is_open(near: socket.socket) -> bool:
    near.setblocking(False)
    try:
        return bool(near.recv(1))
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False


@pytest.mark.parametrize("listen", ["127.0.0.1", "0.0.0.0", "localhost"])
def test_silent_connection_is_closed_and_one_that_has_called_is_not(listen: str) -> None:
    with watched(listen=listen) as port:
        silent, _ = port.connect()
        calling, name = port.connect()
        port.calls.begin(name)
        port.calls.end(name)
        looks(port, 0, 9)
        assert is_open(silent)
        looks(port, 10, 11)
        assert not is_open(silent)
        assert is_open(calling)
        assert port.calls.counts == {PortLimit.FIRST_MESSAGE: 1}


def test_refused_caller_who_sends_on_is_closed() -> None:
    with watched() as port:
        near, name = port.connect()
        port.calls.on_doubt = lambda: None
        port.calls.refuse(name)
        near.sendall(bytes(4096))
        looks(port, 0)
        assert is_open(near)
        near.sendall(b"!")
        looks(port, 1)
        assert not is_open(near)
        assert port.calls.counts == {PortLimit.ANONYMOUS_BYTES: 1}


def test_newest_connection_of_an_address_is_closed() -> None:
    with watched(replace(LIMITS, connections_by_address_max=2)) as port:
        old = [port.connect()[0] for _ in range(2)]
        looks(port, 0)
        new, _ = port.connect()
        looks(port, 1)
        assert [*map(is_open, old), is_open(new)] == [True, True, False]
        assert port.calls.counts == {PortLimit.ADDRESS: 1}


def test_connections_that_are_gone_are_forgotten_and_failed_handshakes_counted() -> None:
    with watched() as port:
        _, name = port.connect()
        port.calls.begin(name)
        port.calls.end(name)
        port.connect()
        looks(port, 0)
        assert port.calls.called()
        port.stack.close()
        looks(port, 10)
        assert not port.calls.called()
        assert port.calls.counts == {PortLimit.HANDSHAKE: 1}


def test_other_sockets_and_files_of_the_process_are_left_alone() -> None:
    with watched() as port, watched() as other, contextlib.ExitStack() as stack:
        for pair in (socket.socketpair(), socket.socketpair()):
            stack.enter_context(pair[0])
            stack.enter_context(pair[1])
        ends = os.pipe()
        near, _ = other.connect()
        looks(port, 0, 100)
        assert is_open(near)
        assert not port.calls.counts
        for end in ends:
            os.close(end)


def test_connections_are_closed_while_no_file_number_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    with watched() as port:
        known, _ = port.connect()
        looks(port, 0)
        for name in ("listdir", "dup"):
            monkeypatch.setattr(os, name, fail)
        looks(port, 10)
        assert not is_open(known)


def test_look_follows_a_refused_call_soon_and_the_log_tells_of_it_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(port: Port) -> None:
        async with asyncio.timeout(20), JobRunner(*port.watcher.jobs()):
            for count in (1, 2):
                near, name = port.connect()
                near.sendall(bytes(5000))
                port.calls.refuse(name)
                while port.calls.counts[PortLimit.ANONYMOUS_BYTES] < count:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

    with watched() as port, caplog.at_level(logging.WARNING):
        asyncio.run(main(port))
    (record,) = caplog.records
    assert "anonymous_bytes=1" in record.getMessage()
    assert LOG_INTERVAL_S == 60


def test_watcher_has_no_job_on_a_system_without_the_means(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "TCP_INFO")
    calls = PortCalls(16)
    assert not ConnectionWatcher([], calls, LIMITS).jobs()
    assert not calls.is_watched
