"""The RPCs of a NameServer for users and permissions."""

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress

from ternmq_model.address import ip_of, is_loopback
from ternmq_model.errors import RefusedError, UsageError, invalid, refusal
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import nameserver_pb2 as pb
from ternmq_remoting.converters import status_of
from ternmq_remoting.rpc import Call, Handler, unary
from ternmq_remoting.service_methods import GET_ACCESS, PUT_ACCESS
from ternmq_runtime.timers import Timers, Wait
from ternmq_security.access.access_table import access_table_from_json
from ternmq_security.access_store import AccessStore
from ternmq_security.access_sync import HOLD_MS_MAX


class AccessService:
    """Serves the table of users and permissions.

    Args:
        store: The table with its file.
        timers: Timers of held calls.
    """

    def __init__(self, store: AccessStore, timers: Timers) -> None:
        self._store = store
        self._timers = timers
        self._closing = asyncio.Event()

    def handlers(self) -> Sequence[Handler]:
        """Return the handlers."""
        return (unary(GET_ACCESS, self.get_access), unary(PUT_ACCESS, self.put_access))

    async def get_access(self, request: pb.GetAccessRequest, _call: Call) -> pb.GetAccessReply:
        """Return the table if it is newer than the caller's, else wait for another table first."""
        known = request.known_version, request.known_digest
        wait_s = min(max(request.wait_ms, 0), HOLD_MS_MAX) / 1000
        with suppress(TimeoutError):
            async with self._timers.timeout(wait_s, wait=Wait.IDLE):
                if not self._is_newer(known) and not self._closing.is_set():
                    await self._store.changed()
        table = self._store.table
        data = table.to_json() if self._is_newer(known) else b""
        return pb.GetAccessReply(version=table.version, table=data)

    async def put_access(self, request: pb.PutAccessRequest, call: Call) -> pb.PutAccessReply:
        """Replace the table; the reply comes when it is on disk."""
        if not self._store.table.users:
            _check_may_begin(call)
        try:
            table = access_table_from_json(request.table)
            await self._store.put(table, expected_version=request.expected_version)
        except (ValueError, UsageError) as error:
            raise invalid(str(error)) from error
        except RefusedError as error:
            if error.code != ResponseCode.ILLEGAL_OPERATION:
                raise
            return pb.PutAccessReply(status=status_of(error), version=self._store.table.version)
        return pb.PutAccessReply(version=table.version)

    def close(self) -> None:
        """Answer held calls now, and later ones at once."""
        self._closing.set()
        self._store.wake()

    def _is_newer(self, known: tuple[int, bytes]) -> bool:
        table = self._store.table
        return (table.version, table.digest) > known


def _check_may_begin(call: Call) -> None:
    """Refuse the first users of a stranger, to whom everything is allowed until they exist.

    Raises:
        PermissionRefused: The caller is on another machine, and has shown no certificate.
    """
    if call.certificate is None and not _is_of_this_machine(call.peer.host):
        remark = (
            "the first users and permissions come from the machine of the NameServer, or with a"
            " certificate"
        )
        raise refusal(ResponseCode.NO_PERMISSION, remark)


def _is_of_this_machine(host: str) -> bool:
    """Return whether an address is one of this machine."""
    if is_loopback(host):
        return True
    try:
        found = ip_of(host)
        family = socket.AF_INET if found.version == 4 else socket.AF_INET6
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            # Nothing is sent. The own address for the way to an own address is that address.
            probe.connect((str(found), 9))
            return bool(probe.getsockname()[0] == str(found))
    except (ValueError, OSError):
        return False
