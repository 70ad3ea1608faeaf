"""The sender of the log to one slave: pieces of the log down, acknowledgements up."""

import asyncio
from collections.abc import Awaitable
from typing import Final

from ternmq_broker.replication.master.handshake import FollowServerStream
from ternmq_broker.replication.master.in_sync import FollowerProgress
from ternmq_broker.replication.master.replicas import LOOK_INTERVAL_S, Replicas
from ternmq_broker.replication.protocol import HEARTBEAT_MS, SILENCE_MAX_MS
from ternmq_model.clock import Clock
from ternmq_model.errors import ConnectionLost, InvalidParameter, TernError, refusal
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_remoting.environment import Blocking
from ternmq_runtime.service import OwnedTasks
from ternmq_store.message_store import MessageStore
from ternmq_store.replication.log_feed import ColdSlice
from ternmq_store.replication.log_slice import LogSlice

PIECE_BYTES_MAX: Final = 256 << 10
WINDOW_BYTES: Final = 16 << 20
"""Limit on bytes under way that the slave has not made safe yet."""

_YIELD_AFTER_MS: Final = 5


class LogSender:
    """Gives one slave the log from where it is on. Owned by the handler of its stream.

    Three tasks: one reads what the slave says, one writes pieces, one looks after the time. The
    first that finds an end ends all.

    Args:
        replicas: Told what the slave has.
        follower: The slave, as they know it.
        hello: What it said of itself.
        peer: Where it connects from.
        stream: Its own.
        store: Whose log it gets.
        clock: For silence.
        blocking: Where what is not in memory is read.
    """

    def __init__(
        self,
        replicas: Replicas,
        follower: FollowerProgress,
        hello: replication.FollowHello,
        peer: str,
        stream: FollowServerStream,
        *,
        store: MessageStore,
        clock: Clock,
        blocking: Blocking,
    ) -> None:
        self.follower = follower
        self.incarnation = hello.incarnation
        self.heard_at_ms = clock.monotonic_ms()
        self.connected_at_ms = clock.wall_ms()
        self.flush_mode = hello.flush_mode
        self.peer = peer
        self.appended = follower.sent
        """Everything before it is in the slave's log, as it says."""
        self.dispatched = PhysicalOffset(0)
        """Everything before it can be read at the slave, as it says."""
        self.told = PhysicalOffset(-1)
        """Confirm offset that the slave was told last."""
        self._replicas = replicas
        self._stream = stream
        self._store = store
        self._clock = clock
        self._blocking = blocking
        self._written_at_ms = self.heard_at_ms
        self._changed = asyncio.Event()
        self._heard = asyncio.Event()
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Serve until the slave has finished.

        Raises:
            TernError: The slave is silent, or says what cannot be, or the log cannot be read.
        """
        async with OwnedTasks() as tasks:
            tasks.spawn(self._ending(self._read()), "follow-read")
            tasks.spawn(self._ending(self._feed()), "follow-feed")
            tasks.spawn(self._ending(self._watch()), "follow-watch")
            await self._over

    def wake(self) -> None:
        """Look whether there is something to send."""
        self._changed.set()

    def displace(self) -> None:
        """End: the slave has another stream."""
        self._end(ConnectionLost("the slave has another stream"))

    async def heard(self) -> bool:
        """Wait for the slave's next word; return False when there will be none."""
        if not self._over.done():
            await self._heard.wait()
        return not self._over.done()

    def _end(self, error: TernError | None = None) -> None:
        if self._over.done():
            return
        self._heard.set()
        if error is None:
            self._over.set_result(None)
        else:
            self._over.set_exception(error)
            self._over.exception()  # when the handler is cancelled first, nobody else asks

    async def _ending(self, work: Awaitable[None]) -> None:
        """Do `work`, with whose end the stream ends."""
        try:
            await work
        except TernError as error:
            self._end(error)
        else:
            self._end()

    async def _read(self) -> None:
        while (request := await self._stream.read()) is not None:
            self._take(request)

    def _take(self, request: replication.FollowRequest) -> None:
        """Believe an acknowledgement, if it can be.

        Raises:
            InvalidParameter: It cannot be. Nothing has changed.
        """
        if request.WhichOneof("request") != "ack":
            raise _invalid(f"slave {self.follower.broker_id} is to acknowledge, and nothing else")
        ack = request.ack
        if ack.epoch != self._replicas.leadership.number:
            raise _invalid(
                f"slave {self.follower.broker_id} acknowledges epoch {ack.epoch}, this is"
                f" {self._replicas.leadership.number}"
            )
        if not ack.safe_offset <= ack.appended_offset <= self.follower.sent:
            raise _invalid(
                f"slave {self.follower.broker_id} has {ack.appended_offset} bytes of log and"
                f" acknowledges {ack.safe_offset}, but was sent the log only to"
                f" {self.follower.sent}"
            )
        self._replicas.acknowledged(self.follower, PhysicalOffset(ack.safe_offset))
        self.heard_at_ms = self._clock.monotonic_ms()
        self.appended = PhysicalOffset(ack.appended_offset)
        self.dispatched = PhysicalOffset(ack.dispatched_offset)
        self._changed.set()
        self._heard.set()
        self._heard = asyncio.Event()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_INTERVAL_S)
            self._replicas.look()
            silent_ms = self._clock.monotonic_ms() - self.heard_at_ms
            if silent_ms >= SILENCE_MAX_MS:
                raise ConnectionLost(f"slave {self.follower.broker_id} is silent")
            if self._is_due():
                self._changed.set()

    async def _feed(self) -> None:
        yielded_ms = self._clock.monotonic_ms()
        while True:
            piece = await self._next_piece()
            if piece is None and self.told == self._store.confirm_offset and not self._is_due():
                await self._changed.wait()
                self._changed.clear()
                yielded_ms = self._clock.monotonic_ms()
                continue
            await self._write(piece)
            if self._clock.monotonic_ms() - yielded_ms >= _YIELD_AFTER_MS:
                await asyncio.sleep(0)
                yielded_ms = self._clock.monotonic_ms()

    def _is_due(self) -> bool:
        """Tell whether it is time for a heartbeat."""
        return self._clock.monotonic_ms() - self._written_at_ms >= HEARTBEAT_MS

    async def _next_piece(self) -> LogSlice | None:
        """Return what comes next, if the slave may have it by now.

        Raises:
            InvalidParameter: The log begins behind that: it was deleted.
            RefusedError: The disk failed.
        """
        store, start = self._store, self.follower.sent
        if start == store.feed.end or start - self._safe >= WINDOW_BYTES:
            return None
        found = store.feed.slice(start, PIECE_BYTES_MAX)
        if not isinstance(found, ColdSlice):
            return found
        try:
            await self._blocking.run(found.run)
        except OSError as error:
            remark = f"the log cannot be read: {error}"
            raise refusal(ResponseCode.SYSTEM_ERROR, remark) from error
        return store.feed.finish(found)

    @property
    def _safe(self) -> PhysicalOffset:
        return max(self.follower.acknowledged, self.follower.start)

    async def _write(self, piece: LogSlice | None) -> None:
        """Send a piece, or none: how things stand."""
        store = self._store
        self.told = store.confirm_offset
        message = replication.LogPiece(
            epoch=self._replicas.leadership.number,
            start=self.follower.sent,
            confirm_offset=self.told,
            log_start=store.min_physical,
            log_end=store.max_physical,
            stored_at_ms=store.last_stored_at_ms,
        )
        if piece is not None:
            message.data = piece.data
            message.is_checksummed = piece.is_checksummed
            message.damage = piece.damage
            self._replicas.sent(self.follower, piece.end)
        self._written_at_ms = self._clock.monotonic_ms()
        await self._stream.write(replication.FollowReply(piece=message))


def _invalid(remark: str) -> InvalidParameter:
    return InvalidParameter(ResponseCode.INVALID_PARAMETER, remark)
