"""Health of a service on this machine without gRPC, whose import alone takes 90 ms.

Beside its port a server listens on a Unix socket in Linux's abstract namespace, named after its
address. The event loop answers each connection, so a stuck loop gives no answer. Such a name
belongs to the network namespace, like a port, needs no writable directory, and ends with its
process. Any process there may take the name first, so only answers of root and of the same user
count.
"""

import errno
import logging
import os
import socket
import struct
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from ternmq_model.address import ANY_HOST, Address, is_loopback, is_unspecified

if TYPE_CHECKING:
    import asyncio

logger = logging.getLogger(__name__)

_SERVING: Final = b"SERVING\n"
_NOT_SERVING: Final = b"NOT_SERVING\n"

_CREDENTIALS: Final = struct.Struct("=iII")
"""Linux's `struct ucred`: process, user and group."""


def ask(address: Address, *, timeout_s: float) -> bool | None:
    """Return whether the service on this machine that listens on `address` serves.

    Only answers of root and of the same user count: another user may have taken the name.

    Returns:
        None without such an answer: the service may run on another machine or as another user, be
        another program, not run, or have too many waiting connections.

    Raises:
        OSError: The service runs, and its event loop does not answer within `timeout_s` seconds or
            closes the connection.
    """
    names = [_name(address)]
    if is_loopback(address.host):
        names.append(_name(Address(ANY_HOST, address.port)))
    for name in names:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(timeout_s)
            try:
                asking.connect(name)
            except OSError:
                continue
            if _uid_of_peer(asking) not in (0, os.geteuid()):
                continue
            answer = asking.recv(len(_NOT_SERVING))
            if answer not in (_SERVING, _NOT_SERVING):
                raise ConnectionResetError(
                    errno.ECONNRESET, "closed the connection without an answer"
                )
            return answer == _SERVING
    return None


@asynccontextmanager
async def answering(address: Address, is_serving: Callable[[], bool]) -> AsyncGenerator[None]:
    """Answer `ask` while the block runs.

    If the name is taken, this server does not answer. If another user has taken it, `ask` ignores
    that user, and its caller uses gRPC.

    Args:
        address: Address of the server, with its port.
        is_serving: Function of the answer, called on the event loop.
    """
    # A process that only asks does not need this import.
    import asyncio

    async def answer(_: "asyncio.StreamReader", writer: "asyncio.StreamWriter") -> None:
        writer.write(_SERVING if is_serving() else _NOT_SERVING)
        writer.close()

    try:
        server = await asyncio.start_unix_server(answer, _name(address))
    except OSError as error:
        logger.warning(
            "health checks are answered over gRPC alone, the Unix socket cannot be opened"
            " address=%s err=%s",
            address,
            error,
        )
        yield
        return
    try:
        yield
    finally:
        server.close()


def _uid_of_peer(connected: socket.socket) -> int:
    """Return the user of the listening process; `nobody` for another user namespace."""
    credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(credentials)
    return int(uid)


def _name(address: Address) -> str:
    host = ANY_HOST if is_unspecified(address.host) else address.host
    plain = "127.0.0.1" if host == "localhost" else host
    return f"\0ternmq.health/{Address(plain, address.port)}"
