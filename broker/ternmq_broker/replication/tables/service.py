"""The service of Metadata, which sends changed tables to the other members of the name."""

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ternmq_broker.replication.tables.snapshots import TableSnapshot, TableSnapshots
from ternmq_broker.state.tables import Tables
from ternmq_broker.storage.admission import Admission
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc import Call, Handler, ServerStream, stream
from ternmq_remoting.service_methods import METADATA
from ternmq_store.message_store import MessageStore

PIECE_BYTES_MAX: Final = 256 << 10
WAIT_MAX_MS: Final = 30_000
_POLL_PAUSE_S: Final = 0.1

MetadataStream = ServerStream[replication.MetadataRequest, replication.MetadataReply]


class MetadataService:
    """Service that sends this broker's tables to other members. Owns its readers.

    Args:
        incarnation: Random text that names the term.
        admission: Ends the waits of readers when it closes.
    """

    def __init__(
        self,
        tables: Tables,
        store: MessageStore,
        env: Environment,
        *,
        incarnation: str,
        admission: Admission,
    ) -> None:
        self._snapshots = TableSnapshots(tables, lambda: store.deletions, incarnation)
        self._store = store
        self._clock = env.clock
        self._blocking = env.blocking
        self._admission = admission
        self._readers: set[MetadataStream] = set()
        self._behind: set[MetadataStream] = set()
        """Readers that may lack the tables of the moment at which `settle` began."""
        self._caught_up = asyncio.Event()

    def handlers(self) -> Sequence[Handler]:
        """Return the handler of Metadata."""
        return (stream(METADATA, self.metadata),)

    async def metadata(self, stream: MetadataStream, call: Call) -> None:
        """Send changed tables, request by request."""
        self._readers.add(stream)
        try:
            await self._serve(stream)
        finally:
            self._readers.discard(stream)
            self._note_caught_up(stream)

    async def settle(self, timeout_s: float) -> None:
        """Wait until every reader has the present tables. Cancelling is safe."""
        self._behind = set(self._readers)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._behind:
                    self._caught_up.clear()
                    await self._caught_up.wait()

    def _note_caught_up(self, stream: MetadataStream) -> None:
        self._behind.discard(stream)
        self._caught_up.set()

    async def _serve(self, stream: MetadataStream) -> None:
        while (request := await stream.read()) is not None:
            wait_ms = min(max(0, request.wait_ms), WAIT_MAX_MS)
            until_ms = self._clock.monotonic_ms() + wait_ms
            revisions, tables = dict(request.revisions), frozenset(request.tables)
            while not await self._send_changed(stream, revisions, tables):
                self._note_caught_up(stream)
                if self._clock.monotonic_ms() >= until_ms or self._admission.is_closing:
                    break
                await asyncio.sleep(_POLL_PAUSE_S)
            await stream.write(replication.MetadataReply(is_end=True))

    async def _send_changed(
        self, stream: MetadataStream, revisions: Mapping[str, str], tables: frozenset[str]
    ) -> bool:
        """Send every changed table; return whether there was one."""
        log_end = self._store.max_physical
        snapshots = self._snapshots.changed(revisions, tables)
        for snapshot in snapshots:
            await self._send(stream, snapshot, log_end)
        last = snapshots[-1:]
        while last and last[0].more:  # the offsets, which come last, in several snapshots
            last = self._snapshots.offsets(last[0].revision)
            for snapshot in last:
                await self._send(stream, snapshot, log_end)
        return bool(snapshots)

    async def _send(self, stream: MetadataStream, snapshot: TableSnapshot, log_end: int) -> None:
        data = await self._blocking.run(_to_text, snapshot.content)
        for start in range(0, len(data), PIECE_BYTES_MAX):
            piece = data[start : start + PIECE_BYTES_MAX]
            await stream.write(
                replication.MetadataReply(
                    table=snapshot.table,
                    revision=snapshot.revision,
                    piece=piece,
                    is_last_piece=start + len(piece) == len(data),
                    log_end=log_end,
                )
            )


def _to_text(content: Callable[[], Mapping[str, Any]]) -> bytes:
    return json.dumps(content(), separators=(",", ":"), ensure_ascii=False).encode()
