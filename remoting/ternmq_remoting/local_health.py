"""Health of a service of this machine, asked without gRPC, whose import alone costs 90 ms.

Beside its port a server listens on a Unix socket in Linux's abstract namespace, named after its
address. Its event loop answers who connects there, so a loop that is stuck gives no answer. Such a
name belongs to the network namespace, as a port does, needs no directory that can be written, and
is gone when its process is. Anybody there may take it first: whoever is neither root nor the asking
user is not believed.
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
    """Tell whether the service of this machine that listens on `address` serves.

    Root is believed, and who runs as the user that asks: no other, who may have taken the name.

    Returns:
        None when nobody of this machine who is believed takes the question: the service may be
        another machine's or another user's, not of this program, not running, or have as many
        waiting for its answer as may.

    Raises:
        OSError: It runs, and its event loop gives no answer within `timeout_s` seconds, or it
            hangs up without one.
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
                raise ConnectionResetError(errno.ECONNRESET, "hung up without an answer")
            return answer == _SERVING
    return None


@asynccontextmanager
async def answering(address: Address, is_serving: Callable[[], bool]) -> AsyncGenerator[None]:
    """Answer `ask` while the block runs.

    Where the name cannot be taken this server does not answer. `ask` does not believe another user
    who has taken it, and who asks takes gRPC instead; root and the same user it does believe.

    Args:
        address: Where the server listens, its port known.
        is_serving: What to answer, asked on the event loop.
    """
    # Who only asks does not wait for this import.
    import asyncio

    async def answer(_: "asyncio.StreamReader", writer: "asyncio.StreamWriter") -> None:
        writer.write(_SERVING if is_serving() else _NOT_SERVING)
        writer.close()

    try:
        server = await asyncio.start_unix_server(answer, _name(address))
    except OSError as error:
        logger.warning(
            "this server answers health over gRPC alone: the name of its Unix socket is not to be"
            " had address=%s error=%s",
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
    """Return the user of the process that listened; one of another user namespace is `nobody`."""
    credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(credentials)
    return int(uid)


def _name(address: Address) -> str:
    host = ANY_HOST if is_unspecified(address.host) else address.host
    plain = "127.0.0.1" if host == "localhost" else host
    return f"\0ternmq.health/{Address(plain, address.port)}"
