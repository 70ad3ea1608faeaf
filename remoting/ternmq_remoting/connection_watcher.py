"""Watcher of a port's connections, which gRPC keeps to itself.

gRPC asks nobody when it accepts a connection. So the watcher looks through the open files of its
process, finds the connections of its port, and ends those that exceed a limit by a shutdown of
their sockets, which for gRPC is the peer's farewell. Linux only, for `/proc` and `TCP_INFO`.
"""

import asyncio
import contextlib
import logging
import os
import socket
import stat
import struct
import sys
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Mapping
from pathlib import Path
from typing import Final

from ternmq_model.address import Address, is_unspecified
from ternmq_remoting.connection_limits import (
    LOOK_S,
    ConnectionCalls,
    PortConnection,
    PortLimit,
    is_failed_handshake,
    to_close,
)
from ternmq_remoting.network_config import NetworkConfig
from ternmq_remoting.port_calls import PortCalls, plain_address
from ternmq_runtime.service import Job

logger = logging.getLogger(__name__)

SOON_S: Final = 0.1
"""Time from a refused call to a look, s: its connection may exceed the limit of bytes by then."""

LOG_INTERVAL_S: Final = 60.0

_FILES: Final = Path("/proc/self/fd")

_AT_ONCE: Final = 100
"""Open files that a look takes without giving way to calls: 0.2 ms, and 2 ms if all are new. A look
at 1,000 connections takes 2 ms in all."""

_SOCKETS_PER_LOOK_S: Final = 10_000

_RECEIVED: Final = slice(128, 136)
"""Position of `tcpi_bytes_received` in Linux's `struct tcp_info`."""

_RESET: Final = struct.pack("ii", 1, 0)
"""Linux's `struct linger` of a socket whose close resets the connection."""

_Key = tuple[int, int]
"""Number of an open file, and its inode: another file with that number has another inode."""


class ConnectionWatcher:
    """Watcher of the connections of one port.

    Args:
        ports: Addresses of the port.
        calls: Calls of the port. The watcher counts there what it closes.
        limits: Settings of the port.
    """

    def __init__(self, ports: Collection[Address], calls: PortCalls, limits: NetworkConfig) -> None:
        self._ports, self._calls, self._limits = ports, calls, limits
        self._seen: dict[_Key, PortConnection | None] = {}
        """Sockets of the process, the oldest first; None = not a connection of the port."""
        self._logged = Counter[PortLimit]()
        self._log_at_s = 0.0
        self._is_due = False
        self._job = Job(name="connections", interval_s=self._pause_s, step=self._step)

    def jobs(self) -> list[Job]:
        """Return the job of the watcher; none on a system where it cannot look."""
        if not hasattr(socket, "TCP_INFO") or not os.access(_FILES, os.R_OK | os.X_OK):
            return []
        self._calls.is_watched = True
        self._calls.on_doubt = self._look_soon
        return [self._job]

    def _pause_s(self) -> float:
        """Return the time to the next look, s. More sockets take no greater share of the time."""
        return LOOK_S * (1 + len(self._seen) // _SOCKETS_PER_LOOK_S)

    async def _step(self) -> bool:
        self._is_due = False
        now_s = asyncio.get_running_loop().time()
        await self.look(now_s=now_s)
        counts = self._calls.counts
        if counts != self._logged and now_s >= self._log_at_s:
            told = " ".join(f"{limit.value}={count}" for limit, count in counts.items())
            logger.warning(
                "limits of the port have closed connections or refused calls limits=%r", told
            )
            self._logged, self._log_at_s = counts.copy(), now_s + LOG_INTERVAL_S
        return False

    def _look_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_later(SOON_S, self._job.wake)

    async def look(self, *, now_s: float) -> None:
        """Look at every connection of the port, and close those that exceed a limit."""
        # Taken first: a connection that has called by now is found below, unless it is gone.
        called = self._calls.called()
        by_peer = {each.peer: each for each in called.values()}
        found: set[_Key] = set()
        for at, fd in enumerate(_open_files(1 + max((fd for fd, _ in self._seen), default=-1))):
            if at % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
            if (key := _key_of(fd)) is not None:
                found.add(key)
                self._look_at(key, by_peer, now_s)
        for key in self._seen.keys() - found:
            self._forget(self._seen.pop(key), now_s=now_s)
        connections = {each: key for key, each in self._seen.items() if each is not None}
        present = {each.calls for each in connections}
        for name, calls in called.items():
            if calls not in present:
                self._calls.forget(name)
        for each, limit in to_close(connections, self._limits, now_s=now_s):
            key = connections[each]
            if _close(key):
                self._seen[key] = None
                self._calls.counts[limit] += 1

    def _look_at(self, key: _Key, by_peer: Mapping[Address, ConnectionCalls], now_s: float) -> None:
        if key not in self._seen:
            self._seen[key] = self._opened(key, now_s)
        if (each := self._seen[key]) is None:
            return
        if each.calls is None:
            each.calls = by_peer.get(each.peer)
        if not each.is_settled:
            with contextlib.suppress(OSError), _socket_of(key) as seen:
                each.note_received(_received_bytes(seen), now_s=now_s)

    def _opened(self, key: _Key, now_s: float) -> PortConnection | None:
        """Return a new connection of the port; None = the socket is something else."""
        with contextlib.suppress(OSError), _socket_of(key) as seen:
            if seen.family in (socket.AF_INET, socket.AF_INET6):
                local, peer = (
                    plain_address(Address(*name[:2]))
                    for name in (seen.getsockname(), seen.getpeername())
                )
                if any(_is_at(local, port) for port in self._ports):
                    return PortConnection(peer, now_s)
        return None

    def _forget(self, gone: PortConnection | None, *, now_s: float) -> None:
        if gone is not None and is_failed_handshake(gone, self._limits, now_s=now_s):
            self._calls.counts[PortLimit.HANDSHAKE] += 1


def _is_at(local: Address, port: Address) -> bool:
    """Return whether the own address of a connection is that of a port."""
    is_name = not port.host.replace(".", "").isdecimal() and ":" not in port.host
    return local.port == port.port and (
        is_name or is_unspecified(port.host) or plain_address(port).host == local.host
    )


def _open_files(known_end: int) -> Iterable[int]:
    """Return the numbers of the open files; some may be closed.

    Args:
        known_end: End of the known numbers.
    """
    try:
        return map(int, os.listdir(_FILES))
    except OSError:
        # No number is left, not even for this, and so none above the known ones is new.
        return range(known_end)


def _key_of(fd: int) -> _Key | None:
    """Return the key of an open socket; None = no socket, or closed meanwhile."""
    try:
        status = os.fstat(fd)
    except OSError:
        return None
    return (fd, status.st_ino) if stat.S_ISSOCK(status.st_mode) else None


@contextlib.contextmanager
def _socket_of(key: _Key) -> Generator[socket.socket]:
    """Yield the socket of `key`, which stays gRPC's.

    No duplicate is made: there may be no number for it, and gRPC's poller would see a second owner.
    gRPC may close the socket meanwhile, and another one may have its number for some microseconds.

    Raises:
        OSError: The socket was closed.
    """
    fd, _ = key
    if _key_of(fd) != key:
        raise OSError("another file has this number by now")
    seen = socket.socket(fileno=fd)
    try:
        yield seen
    finally:
        seen.detach()


def _received_bytes(connected: socket.socket) -> int:
    info = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RECEIVED.stop)
    return int.from_bytes(info[_RECEIVED], sys.byteorder)


def _close(key: _Key) -> bool:
    """End a connection; return whether it was still open."""
    with contextlib.suppress(OSError), _socket_of(key) as connected:
        # With a reset instead of a farewell: a peer in the middle of a write would wait.
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        connected.shutdown(socket.SHUT_RDWR)
        return True
    return False
