"""Whether a service of this machine serves, asked without gRPC, whose import alone costs 90 ms.

Beside its port a server listens on a Unix socket in Linux's abstract namespace, named after its
address. Its event loop answers who connects there, so a loop that is stuck gives no answer. Such a
name belongs to the network namespace, as a port does, needs no directory that can be written, and
is gone when its process is.
"""

import logging
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from ternmq_model.address import ANY_HOST, Address, is_loopback, is_unspecified

if TYPE_CHECKING:
    import asyncio

logger = logging.getLogger(__name__)

_SERVING: Final = b"SERVING\n"
_NOT_SERVING: Final = b"NOT_SERVING\n"


def ask(address: Address, *, timeout_s: float) -> bool | None:
    """Tell whether the service of this machine that listens on `address` serves.

    Returns:
        None when none of this machine answers in this way: it may be another machine's, not of this
        program, or not running.

    Raises:
        OSError: It runs, and its event loop gives no answer within `timeout_s` seconds.
    """
    names = [_name(address)]
    if is_loopback(address.host):
        names.append(_name(Address(ANY_HOST, address.port)))
    for name in names:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(timeout_s)
            try:
                asking.connect(name)
            except (TimeoutError, BlockingIOError):  # more wait for an answer than may
                raise
            except OSError:
                continue
            return asking.recv(len(_NOT_SERVING)) == _SERVING
    return None


@asynccontextmanager
async def answering(address: Address, is_serving: Callable[[], bool]) -> AsyncGenerator[None]:
    """Answer `ask` while the block runs.

    Where the name cannot be taken nothing answers, and who asks takes gRPC instead.

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
        logger.warning("health is answered over gRPC alone address=%s error=%s", address, error)
        yield
        return
    try:
        yield
    finally:
        server.close()


def _name(address: Address) -> str:
    host = ANY_HOST if is_unspecified(address.host) else address.host
    plain = "127.0.0.1" if host == "localhost" else host
    return f"\0ternmq.health/{Address(plain, address.port)}"
