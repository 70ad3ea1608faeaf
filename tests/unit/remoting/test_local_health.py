"""Health asked on this machine, without gRPC."""

import asyncio
import os
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from ternmq_model.address import Address
from ternmq_remoting import local_health
from ternmq_remoting.local_health import answering, ask

AT_ONCE_S = 20.0
"""Far longer than an answer takes."""


def free_port() -> int:
    """Return a port that nobody of this machine has, and no other test of this moment."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    return port


def test_answer_follows_the_server() -> None:
    async def main() -> None:
        is_serving = True
        address = Address("127.0.0.1", free_port())

        async def asked() -> bool | None:
            return await asyncio.to_thread(ask, address, timeout_s=AT_ONCE_S)

        assert await asked() is None
        async with answering(address, lambda: is_serving):
            assert await asked() is True
            is_serving = False
            assert await asked() is False
        assert await asked() is None

    asyncio.run(main())


def test_stuck_event_loop_gives_no_answer() -> None:
    async def main() -> None:
        address = Address("127.0.0.1", free_port())
        async with answering(address, lambda: True):
            # On the loop that should answer.
            with pytest.raises(TimeoutError):
                ask(address, timeout_s=0.1)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("listen", "asked", "answer"),
    [
        ("0.0.0.0", "127.0.0.1", True),
        ("::", "::1", True),
        ("0.0.0.0", "localhost", True),
        ("127.0.0.1", "localhost", True),
        ("0.0.0.0", "192.0.2.1", None),
        ("127.0.0.1", "127.0.0.2", None),
        ("h" * 253, "h" * 253, None),
    ],
)
def test_server_answers_for_the_addresses_that_it_listens_on(
    listen: str, asked: str, answer: bool | None
) -> None:
    async def main() -> bool | None:
        port = free_port()
        async with answering(Address(listen, port), lambda: True):
            return await asyncio.to_thread(ask, Address(asked, port), timeout_s=AT_ONCE_S)

    assert asyncio.run(main()) is answer


@pytest.mark.parametrize("uid", [0, os.geteuid()])
def test_root_and_the_same_user_are_believed(uid: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> bool | None:
        async with answering(address := Address("127.0.0.1", free_port()), lambda: True):
            return await asyncio.to_thread(ask, address, timeout_s=AT_ONCE_S)

    monkeypatch.setattr(local_health, "_uid_of_peer", lambda _: uid)  # pyright: ignore
    assert asyncio.run(main()) is True


@contextmanager
def named_socket(backlog: int) -> Generator[tuple[socket.socket, Address]]:
    """Give a Unix socket that has the name of a service, and its address."""
    address = Address("127.0.0.1", free_port())
    with socket.socket(socket.AF_UNIX) as taken:
        taken.bind(f"\0ternmq.health/{address}")
        taken.listen(backlog)
        yield taken, address


def test_name_that_another_user_took_is_not_believed(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(address: Address) -> bool | None:
        async with answering(address, lambda: False):
            return await asyncio.to_thread(ask, address, timeout_s=AT_ONCE_S)

    def stranger(_: socket.socket) -> int:
        return 65_534 if os.geteuid() != 65_534 else 65_533

    monkeypatch.setattr(local_health, "_uid_of_peer", stranger)
    with named_socket(1) as (_, address):
        assert asyncio.run(main(address)) is None
    assert "answered over gRPC alone" in caplog.text


def test_user_of_who_listens_is_known() -> None:
    with named_socket(1) as (taken, _), socket.socket(socket.AF_UNIX) as asking:
        asking.connect(taken.getsockname())
        assert local_health._uid_of_peer(asking) == os.geteuid()  # pyright: ignore


def test_peer_that_hangs_up_without_a_word_gave_no_answer() -> None:
    with named_socket(1) as (taken, address):
        hanging_up = threading.Thread(target=lambda: taken.accept()[0].close())
        hanging_up.start()
        with pytest.raises(ConnectionError, match="closed the connection without an answer"):
            ask(address, timeout_s=AT_ONCE_S)
        hanging_up.join()


def test_full_backlog_is_no_answer_of_anybody() -> None:
    with named_socket(0) as (taken, address), socket.socket(socket.AF_UNIX) as waiting:
        waiting.connect(taken.getsockname())
        assert ask(address, timeout_s=AT_ONCE_S) is None
