"""The reader of another member's tables, on one stream."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ternmq_broker.replication.protocol import ProtocolBroken
from ternmq_model.json_checksum import as_object
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_remoting.converters import error_of
from ternmq_remoting.environment import Blocking
from ternmq_remoting.rpc import ClientStream, Connection
from ternmq_remoting.service_methods import METADATA

TABLE_BYTES_MAX: Final = 256 << 20
_SILENCE_MAX_S: Final = 15.0
_NUMBER_MAX: Final = (1 << 62) - 1

Stream = ClientStream[replication.MetadataReply, replication.MetadataRequest]


class TableUpdate(NamedTuple):
    """One table, or its changed rows."""

    table: str
    revision: str
    log_end: int
    content: Mapping[str, Any]


class TableReader:
    """Reader of one member's tables, one round at a time."""

    def __init__(self, connection: Connection, blocking: Blocking) -> None:
        self._stream: Stream = connection.open(METADATA)
        self._blocking = blocking
        self._peer = str(connection.address)

    def cancel(self) -> None:
        """Cancel the stream; a pending read fails. Safe to repeat."""
        self._stream.cancel()

    async def read_changed(
        self,
        revisions: Mapping[str, str],
        take: Callable[[TableUpdate], Awaitable[None]],
        *,
        wait_ms: int = 0,
        tables: Sequence[str] = (),
    ) -> None:
        """Call `take` with each table that changed since `revisions`, in the order to apply them.

        Args:
            revisions: Revisions of the reader's tables.
            take: Applies a table; its errors are raised.
            wait_ms: Longest wait for a change.
            tables: Names of the requested tables; none = all tables.

        Raises:
            TransportError: The member is gone, or sends an impossible message.
            RefusedError: The member refuses.
        """
        request = replication.MetadataRequest(revisions=revisions, wait_ms=wait_ms, tables=tables)
        await self._stream.write(request)
        pieces: list[bytes] = []
        size = 0
        while not (reply := await self._read()).is_end:
            pieces.append(reply.piece)
            size += len(reply.piece)
            if size > TABLE_BYTES_MAX:
                raise ProtocolBroken(f"its table {reply.table!r} is over {TABLE_BYTES_MAX} bytes")
            if reply.is_last_piece:
                content = await self._parse(reply.table, pieces)
                await take(TableUpdate(reply.table, reply.revision, reply.log_end, content))
                pieces, size = [], 0

    async def _read(self) -> replication.MetadataReply:
        try:
            async with asyncio.timeout(_SILENCE_MAX_S):
                reply = await self._stream.read()
        except TimeoutError:
            raise ProtocolBroken("it sends no tables") from None
        if reply is None:
            raise ProtocolBroken("it ended the stream of its tables")
        if reply.status.code:
            raise error_of(reply.status, self._peer)
        return reply

    async def _parse(self, table: str, pieces: Sequence[bytes]) -> Mapping[str, Any]:
        try:
            return as_object(await self._blocking.run(_from_text, pieces), table)
        except (ValueError, RecursionError) as error:
            raise ProtocolBroken(f"its table {table!r} is no JSON: {error}") from error


def _from_text(pieces: Sequence[bytes]) -> object:
    return json.loads(b"".join(pieces), parse_int=_number)


def _number(text: str) -> int:
    """Return a number of at most 64 bits.

    Raises:
        ValueError: The number is larger.
    """
    number = int(text)
    if not -_NUMBER_MAX <= number <= _NUMBER_MAX:
        raise ValueError(f"{text[:40]} is no number of 64 bits")
    return number
