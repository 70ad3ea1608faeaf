"""The slaves of one master: the stream to each, and the confirm offset that they allow."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from ternmq_broker.replication.master.in_sync import FollowerProgress, InSync
from ternmq_broker.replication.protocol import HEARTBEAT_MS, SILENCE_MAX_MS
from ternmq_broker.replication.role.membership import EndReason, Membership
from ternmq_broker.state.epochs import newest
from ternmq_broker.storage.confirmations import Confirmations
from ternmq_model.clock import Clock
from ternmq_model.errors import ConnectionLost, TernError, invalid, refusal
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_remoting.environment import Blocking
from ternmq_remoting.rpc import ServerStream
from ternmq_runtime.service import OwnedTasks
from ternmq_store.message_store import MessageStore
from ternmq_store.replication.log_feed import ColdSlice
from ternmq_store.replication.log_slice import LogSlice

logger = logging.getLogger(__name__)

FollowServerStream = ServerStream[replication.FollowRequest, replication.FollowReply]

EXPIRY_INTERVAL_S: Final = 0.25
"""Interval between checks for silent slaves."""

PIECE_BYTES_MAX: Final = 256 << 10
WINDOW_BYTES: Final = 16 << 20
"""Limit on bytes that were sent to a slave and that the slave has not made safe yet."""

_YIELD_AFTER_MS: Final = 5


class Replicas:
    """Slaves of one master. Owned by the broker's loop.

    Keeps `InSync`, the store's confirm offset and the waiting senders in step. A master without
    slaves that needs none pays one check per append.

    Args:
        confirmations: Waiting senders.
        slave_timeout_ms: Silence after which a slave does not count any more.

    Attributes:
        epoch: The master's epoch.
        on_confirmed: Called whenever slaves may have moved the confirm offset.
    """

    def __init__(
        self,
        member: Membership,
        store: MessageStore,
        confirmations: Confirmations,
        clock: Clock,
        *,
        slave_timeout_ms: int,
    ) -> None:
        self.member: Final = member
        self.epoch: Final = newest(member.state.epochs)
        self.store: Final = store
        self.clock: Final = clock
        self.on_confirmed: Callable[[], None] = lambda: None
        self._confirmations = confirmations
        self._in_sync = InSync(needed=member.slaves_needed, slave_timeout_ms=slave_timeout_ms)
        self._senders: dict[int, LogSender] = {}
        self._left: dict[int, PhysicalOffset] = {}
        """Last safe offset of each slave whose stream is over."""
        self._disconnection = asyncio.Event()
        self._fenced_by = 0
        self._is_needed = member.slaves_needed > 0
        self._was_enough = True
        store.cleaner.holders.append(self._needed_from)
        if self._is_needed:
            self.appended()

    @property
    def in_sync(self) -> InSync:
        """The in-sync set, read-only."""
        return self._in_sync

    @property
    def is_fenced(self) -> bool:
        """True when a higher epoch is known."""
        return self._fenced_by > 0

    def ids(self) -> Sequence[int]:
        """Return the ids of all slaves, sorted."""
        return sorted(self._senders)

    def senders(self) -> "list[LogSender]":
        """Return the log senders of all slaves, by id."""
        return [self._senders[broker_id] for broker_id in self.ids()]

    def behind(self) -> Sequence[tuple[int, int]]:
        """Return the id of each slave, and the bytes of the log that it has not made safe.

        A slave whose stream is over is listed until it returns, or the term is over.
        """
        safe = self._left | {
            each.follower.broker_id: each.follower.safe_offset for each in self.senders()
        }
        return [(broker_id, self.store.max_physical - at) for broker_id, at in safe.items()]

    def appended(self) -> None:
        """Record that the log may have grown, or that more of it may be safe at the master.

        Callers call this before they read the store's confirm offset.
        """
        if self._is_needed:
            self._confirm()
        for sender in self._senders.values():
            sender.wake()

    async def admit(self, broker_id: int, incarnation: str) -> None:
        """End an older stream of the slave that opens a new one.

        Raises:
            RefusedError: Another process with that id follows, and is not silent.
        """
        while (old := self._senders.get(broker_id)) is not None:
            silent_ms = self.clock.monotonic_ms() - old.received_at_ms
            if old.incarnation != incarnation and silent_ms < self._in_sync.slave_timeout_ms:
                remark = f"another slave with id {broker_id} follows"
                raise refusal(ResponseCode.SERVICE_NOT_AVAILABLE, remark)
            old.end(ConnectionLost("the slave has another stream"))
            await self._disconnection.wait()

    def join(
        self,
        hello: replication.FollowHello,
        start: PhysicalOffset,
        peer: str,
        stream: FollowServerStream,
        blocking: Blocking,
    ) -> "LogSender":
        """Add a slave that receives the log from `start` on; return its log sender.

        Raises:
            InvalidParameter: A slave with the same id follows already.
        """
        follower = self._in_sync.join(hello.broker_id, start)
        sender = LogSender(self, follower, hello, peer, stream, blocking)
        self._senders[hello.broker_id] = sender
        self._left.pop(hello.broker_id, None)
        return sender

    def disconnected(self, sender: "LogSender") -> None:
        """Remove a slave whose stream is over."""
        del self._senders[sender.follower.broker_id]
        self._left[sender.follower.broker_id] = sender.follower.safe_offset
        self._in_sync.leave(sender.follower)
        self._disconnection.set()
        self._disconnection = asyncio.Event()
        self._moved()

    def sent(self, follower: FollowerProgress, to: PhysicalOffset) -> None:
        """Record that all bytes before `to` are sent to the slave now."""
        self._in_sync.sent(follower, to, now_ms=self.clock.monotonic_ms())

    def acknowledged(self, follower: FollowerProgress, offset: PhysicalOffset) -> None:
        """Record that all bytes before `offset` are safe at a slave.

        Raises:
            InvalidParameter: The offset is impossible. Nothing has changed.
        """
        end, now_ms = self.store.max_physical, self.clock.monotonic_ms()
        if self._in_sync.acknowledge(follower, offset, end=end, now_ms=now_ms):
            logger.info(
                "slave is in sync broker_id=%s acknowledged=%s log_end=%s",
                follower.broker_id,
                offset,
                end,
            )
        self._moved()

    async def settle(self, timeout_s: float) -> None:
        """Wait until each slave that counts has the whole log and its confirm offset.

        Messages that are appended meanwhile count too. Cancelling is safe.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                for sender in self.senders():
                    await self._settled(sender)

    async def _settled(self, sender: "LogSender") -> None:
        while sender.follower.counts and not (
            sender.follower.acknowledged == self.store.max_physical
            and sender.sent_confirm_offset == self.store.confirm_offset
        ):
            if not await sender.ack_received():
                return

    def expire_silent(self) -> None:
        """Stop waiting for slaves that are silent or far behind."""
        end = self.store.max_physical
        ceased = self._in_sync.expire_silent(end=end, now_ms=self.clock.monotonic_ms())
        for follower in ceased:
            logger.warning(
                "slave is no longer in sync broker_id=%s acknowledged=%s log_end=%s",
                follower.broker_id,
                follower.acknowledged,
                end,
            )
        if ceased:
            self._moved()

    def fence(self, epoch: int, source: str) -> None:
        """Acknowledge nothing from now on and end the term, if `epoch` is above the master's.

        Safe to repeat.

        Args:
            epoch: Number of an epoch that has begun.
            source: Name of the process that reported the epoch.
        """
        if epoch <= max(self.epoch, self._fenced_by):
            return
        self._fenced_by = epoch
        self._confirmations.fence(
            f"epoch {epoch} has begun, this master's is {self.epoch}: there is another one"
        )
        self.store.confirm_limit = self.store.confirm_offset
        logger.error("master deposed epoch=%s higher=%s known_from=%s", self.epoch, epoch, source)
        self.member.state.note_epoch(epoch)
        self.member.end(EndReason.FENCED)

    def _moved(self) -> None:
        if not self._is_needed:
            return
        self._confirm()
        self.on_confirmed()
        for sender in self._senders.values():
            sender.wake()

    def _confirm(self) -> None:
        if self._fenced_by:
            return
        store, in_sync = self.store, self._in_sync
        safe = store.safe_offset
        store.confirm_limit = in_sync.confirm(safe)
        self._confirmations.replicated(in_sync.replicated_to, local=safe)
        is_enough = in_sync.is_enough
        self._confirmations.are_replicas_enough = is_enough
        if is_enough is not self._was_enough:
            self._was_enough = is_enough
            level = logging.INFO if is_enough else logging.WARNING
            logger.log(level, "slaves counting=%s needed=%s", in_sync.counting, in_sync.needed)

    def _needed_from(self) -> PhysicalOffset | None:
        """Return the first byte of the log that a slave still needs; None without slaves."""
        followers = self._in_sync.followers
        return min((each.safe_offset for each in followers), default=None)


class LogSender:
    """Sender of the log to one slave. Owned by the handler of the slave's stream.

    Three tasks read acknowledgements, write pieces of the log, and watch the time. The first task
    that ends ends the stream.

    Attributes:
        appended: End of the slave's log, as the slave reports it.
        dispatched: Readable end of the slave's log, as the slave reports it.
        sent_confirm_offset: Confirm offset that was sent to the slave last.
    """

    def __init__(
        self,
        replicas: Replicas,
        follower: FollowerProgress,
        hello: replication.FollowHello,
        peer: str,
        stream: FollowServerStream,
        blocking: Blocking,
    ) -> None:
        clock = replicas.clock
        self.follower = follower
        self.incarnation = hello.incarnation
        self.received_at_ms = clock.monotonic_ms()
        self.connected_at_ms = clock.wall_ms()
        self.flush_mode = hello.flush_mode
        self.peer = peer
        self.appended = follower.sent
        self.dispatched = PhysicalOffset(0)
        self.sent_confirm_offset = PhysicalOffset(-1)
        self._replicas = replicas
        self._stream = stream
        self._store = replicas.store
        self._clock = clock
        self._blocking = blocking
        self._written_at_ms = self.received_at_ms
        self._changed = asyncio.Event()
        self._ack = asyncio.Event()
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Serve the slave until it has finished.

        Raises:
            TernError: The slave is silent or sends an impossible message, or the log is unreadable.
        """
        async with OwnedTasks() as tasks:
            tasks.spawn(self._ending(self._read()), "follow-read")
            tasks.spawn(self._ending(self._feed()), "follow-feed")
            tasks.spawn(self._ending(self._watch()), "follow-watch")
            await self._over

    def wake(self) -> None:
        """Check soon whether there is something to send."""
        self._changed.set()

    async def ack_received(self) -> bool:
        """Wait for the slave's next acknowledgement; return False when the stream has ended."""
        if not self._over.done():
            await self._ack.wait()
        return not self._over.done()

    def end(self, error: TernError | None = None) -> None:
        """End the stream; safe to repeat."""
        if self._over.done():
            return
        self._ack.set()
        if error is None:
            self._over.set_result(None)
        else:
            self._over.set_exception(error)
            self._over.exception()  # when the handler is cancelled first, no other task asks

    async def _ending(self, work: Awaitable[None]) -> None:
        try:
            await work
        except TernError as error:
            self.end(error)
        else:
            self.end()

    async def _read(self) -> None:
        while (request := await self._stream.read()) is not None:
            self._acknowledge(request)

    def _acknowledge(self, request: replication.FollowRequest) -> None:
        """Record an acknowledgement.

        Raises:
            InvalidParameter: The acknowledgement is impossible. Nothing has changed.
        """
        follower, epoch = self.follower, self._replicas.epoch
        if request.WhichOneof("request") != "ack":
            raise invalid(f"slave {follower.broker_id} may send acknowledgements only")
        ack = request.ack
        if ack.epoch != epoch:
            raise invalid(
                f"slave {follower.broker_id} acknowledges epoch {ack.epoch}, this is {epoch}"
            )
        if not ack.safe_offset <= ack.appended_offset <= follower.sent:
            raise invalid(
                f"slave {follower.broker_id} has {ack.appended_offset} bytes of log and"
                f" acknowledges {ack.safe_offset}, but was sent the log only to {follower.sent}"
            )
        self._replicas.acknowledged(follower, PhysicalOffset(ack.safe_offset))
        self.received_at_ms = self._clock.monotonic_ms()
        self.appended = PhysicalOffset(ack.appended_offset)
        self.dispatched = PhysicalOffset(ack.dispatched_offset)
        self._changed.set()
        self._ack.set()
        self._ack = asyncio.Event()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(EXPIRY_INTERVAL_S)
            self._replicas.expire_silent()
            if self._clock.monotonic_ms() - self.received_at_ms >= SILENCE_MAX_MS:
                raise ConnectionLost(f"slave {self.follower.broker_id} is silent")
            if self._is_heartbeat_due():
                self._changed.set()

    async def _feed(self) -> None:
        yielded_ms = self._clock.monotonic_ms()
        while True:
            piece = await self._next_piece()
            if (
                piece is None
                and self.sent_confirm_offset == self._store.confirm_offset
                and not self._is_heartbeat_due()
            ):
                await self._changed.wait()
                self._changed.clear()
                yielded_ms = self._clock.monotonic_ms()
                continue
            await self._write(piece)
            if self._clock.monotonic_ms() - yielded_ms >= _YIELD_AFTER_MS:
                await asyncio.sleep(0)
                yielded_ms = self._clock.monotonic_ms()

    def _is_heartbeat_due(self) -> bool:
        return self._clock.monotonic_ms() - self._written_at_ms >= HEARTBEAT_MS

    async def _next_piece(self) -> LogSlice | None:
        """Return the next piece of the log, if the slave's window has space for it.

        Raises:
            InvalidParameter: The piece was deleted from the log.
            RefusedError: The disk failed.
        """
        store, start = self._store, self.follower.sent
        if start == store.feed.end or start - self.follower.safe_offset >= WINDOW_BYTES:
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

    async def _write(self, piece: LogSlice | None) -> None:
        """Send a piece of the log, or a heartbeat without bytes."""
        store = self._store
        self.sent_confirm_offset = store.confirm_offset
        message = replication.LogPiece(
            epoch=self._replicas.epoch,
            start=self.follower.sent,
            confirm_offset=self.sent_confirm_offset,
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
