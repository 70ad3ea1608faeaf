"""The follower of a master's log, which appends received bytes and acknowledges safe ones.

One job follows: it finds the master, agrees with it on the common offset of both logs, and appends
received bytes until the stream ends. Another job acknowledges: it wakes whenever more bytes are
safe, and at least every second, so that each side knows that the other one is alive.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Final

from ternmq_broker.replication.protocol import (
    HEARTBEAT_MS,
    SILENCE_MAX_MS,
    ProtocolBroken,
    epochs_from_pb,
    epochs_to_pb,
)
from ternmq_broker.replication.role.membership import Membership
from ternmq_broker.replication.slave.follow_rules import (
    check_master,
    check_probe,
    check_succession,
    cut_needed,
    cut_text,
)
from ternmq_broker.state.epochs import MemberLog
from ternmq_broker.state.replication_record import LogCut
from ternmq_broker.storage.loop import StoreLoop
from ternmq_model.errors import BrokerBusy, RefusedError, StoreFull, TernError
from ternmq_model.offsets import PhysicalOffset
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_remoting.converters import error_of
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc import ClientStream, Connection
from ternmq_remoting.service_methods import FOLLOW
from ternmq_runtime.service import Job, OwnedTasks
from ternmq_store.config import FlushMode
from ternmq_store.message_store import MessageStore

logger = logging.getLogger(__name__)

NEAR_BYTES: Final = 1 << 20
FAR_BYTES: Final = 16 << 20
"""Bytes that a slave lacks while it catches up; readers may then wait a little."""

_RETRY_PAUSE_S: Final = 0.5
_REFUSED_PAUSE_S: Final = 5.0
_SPACE_PAUSE_S: Final = 1.0
_BUSY_PAUSE_S: Final = 0.01
_SECOND_MS: Final = 1000

FollowStream = ClientStream[replication.FollowReply, replication.FollowRequest]


class LogFollower:
    """Follower of one master after the other. Owned by the broker's loop.

    A master's epochs are on the disk before its first byte is stored, and a byte is acknowledged
    when this slave's own flush mode has made it safe.

    Args:
        on_cut: Called with a cut that the log needs before the slave can follow, and with the
            master's epoch. The callee ends the term.
        is_term_over: Returns whether the given epoch of the master is later than the term's.

    Attributes:
        connection: Connection to the master, while the slave follows.
    """

    def __init__(
        self,
        member: Membership,
        env: Environment,
        store: MessageStore,
        store_loop: StoreLoop,
        *,
        flush_mode: FlushMode,
        on_cut: Callable[[LogCut, int], None],
        is_term_over: Callable[[int], bool],
    ) -> None:
        self._member = member
        self._env = env
        self._store = store
        self._store_loop = store_loop
        self._flush_mode = flush_mode
        self._on_cut = on_cut
        self._is_term_over = is_term_over
        self._task: asyncio.Task[None] | None = None
        self._is_leaving = False
        self._lasted = False
        self.connection: Connection | None = None
        self._stream: FollowStream | None = None
        """Stream to the master, after the handshake."""
        self._epoch = 0
        self._master = ""
        self._master_start: PhysicalOffset | None = None
        self._master_end = 0
        self._received_at_ms = 0
        self._behind_since_ms: int | None = None
        self._waits_for_space = False
        self._acknowledged = PhysicalOffset(-1)
        self._acknowledged_at_ms = 0
        self._confirmed_kept = PhysicalOffset(-1)
        self._problem = "its master was not found yet"
        self._acknowledging = Job(
            name="follow-acknowledge", interval_s=HEARTBEAT_MS / _SECOND_MS, step=self.acknowledge
        )
        store.cleaner.holders.append(lambda: self._master_start)

    def jobs(self) -> Sequence[Job]:
        """Return the jobs; callers call `leave` before the jobs end."""
        return (
            Job(name="follow", interval_s=_RETRY_PAUSE_S, step=self.step),
            self._acknowledging,
            Job(name="follow-confirmed", interval_s=1.0, step=self.keep_confirmed),
        )

    async def leave(self) -> None:
        """Leave the master: the steps under way end, and no other begins."""
        self._is_leaving = True
        if self._task is not None:
            self._task.cancel()
        if self._stream is not None:
            self._stream.cancel()

    async def step(self) -> bool:
        """Follow a master for as long as it can be followed: a step of a job, ended by `leave`.

        Returns:
            True when the slave followed for a while, so that it may try again at once.
        """
        if self._is_leaving:
            return False
        async with OwnedTasks() as tasks:
            self._task = tasks.spawn(self._follow_one(), "follow-one")
            try:
                await asyncio.wait({self._task})
            finally:
                self._task = None
        lasted, self._lasted = self._lasted, False
        return lasted and not self._is_leaving

    async def _follow_one(self) -> None:
        if self._store.failure is not None:
            self._note_problem(f"the store failed: {self._store.failure}")
            return
        begun_ms: int | None = None
        try:
            connection = await self._member.discovery.master(
                epoch_min=self._member.state.highest_epoch,
                own_id=self._member.identity.broker_id,
            )
            self._master = str(connection.address)
            try:
                stream: FollowStream = connection.open(FOLLOW)
                try:
                    if await self._agree(stream):
                        begun_ms = self._env.clock.monotonic_ms()
                        self._begin(stream, connection)
                        await self._take_pieces(stream)
                finally:
                    self._stream = self.connection = None
                    stream.cancel()
            finally:
                await connection.close()
        except RefusedError as error:
            self._note_problem(str(error))
            if begun_ms is None and not error.retryable:  # an operator has to change something
                await asyncio.sleep(_REFUSED_PAUSE_S)
        except TernError as error:
            self._note_problem(str(error))
        if begun_ms is not None:
            self._lasted = self._env.clock.monotonic_ms() - begun_ms > _SECOND_MS

    def _note_problem(self, problem: str) -> None:
        """Record why the slave does not follow; a new reason is logged."""
        if problem != self._problem and not self._is_leaving:
            logger.warning(
                "master not followed broker=%s broker_id=%s master=%s reason=%s",
                self._member.identity.name,
                self._member.identity.broker_id,
                self._master or "unknown",
                problem,
            )
        self._problem = problem

    def _log(self) -> MemberLog:
        store, state = self._store, self._member.state
        start, end = store.min_physical, store.max_physical
        if start == end:
            # An empty log belongs to no store and no epoch.
            return MemberLog((), start, end)
        return MemberLog(state.epochs, start, end, state.store_id)

    async def _agree(self, stream: FollowStream) -> bool:
        """Make the handshake with the master; return whether the slave can follow.

        Raises:
            RefusedError: The master refuses this slave.
            ProtocolBroken: The master sends an impossible message.
            TransportError: The connection to the master is lost.
            StoreError: The disk refused to store the epochs.
        """
        log, identity = self._log(), self._member.identity
        hello = replication.FollowHello(
            cluster=identity.cluster,
            broker_name=identity.name,
            broker_id=identity.broker_id,
            incarnation=self._member.incarnation,
            store_id=log.store_id,
            epochs=epochs_to_pb(log.epochs),
            log_start=log.start,
            log_end=log.end,
            log_file_bytes=0 if log.is_empty else self._store.log_file_bytes,
            highest_epoch=self._member.state.highest_epoch,
            flush_mode=self._flush_mode.value,
        )
        await stream.write(replication.FollowRequest(hello=hello))
        while True:
            reply = await self._read(stream)
            if reply.HasField("accepted"):
                return await self._accept(reply.accepted, log)
            if not reply.HasField("probe"):
                raise ProtocolBroken("bytes came before the master had accepted")
            probe = reply.probe
            check_probe(probe, log)
            task = self._store.feed.checksum(PhysicalOffset(probe.start), PhysicalOffset(probe.end))
            try:
                crc = await self._env.blocking.run(task.run)
            except OSError as error:
                raise ProtocolBroken(f"bytes of its probe cannot be read: {error}") from error
            probed = replication.FollowProbed(end=probe.end, crc=crc)
            await stream.write(replication.FollowRequest(probed=probed))

    async def _read(self, stream: FollowStream) -> replication.FollowReply:
        try:
            async with asyncio.timeout(SILENCE_MAX_MS / _SECOND_MS):
                reply = await stream.read()
        except TimeoutError:
            raise ProtocolBroken("it did not answer") from None
        if reply is None:
            raise ProtocolBroken("it ended the stream")
        return reply

    async def _accept(self, accepted: replication.FollowAccepted, log: MemberLog) -> bool:
        state = self._member.state
        if accepted.status.code:
            raise error_of(accepted.status, self._master)
        epochs = epochs_from_pb(accepted.epochs)
        self._epoch = check_master(epochs, highest_epoch=state.highest_epoch)
        cut = cut_needed(accepted, log, file_bytes=self._store.log_file_bytes)
        if not accepted.store_id:
            raise ProtocolBroken("it sends no store id")
        if cut is not None:
            self._note_problem(cut_text(cut))
            self._is_leaving = True
            self._on_cut(cut, self._epoch)
            return False
        await state.adopt(
            store_id=accepted.store_id,
            epochs=epochs,
            highest_epoch=self._epoch,
            master_role=accepted.master_role,
            in_sync_replicas=accepted.in_sync_replicas,
        )
        self._is_leaving |= self._is_term_over(self._epoch)
        return not self._is_leaving

    def _begin(self, stream: FollowStream, connection: Connection) -> None:
        self._stream, self.connection = stream, connection
        self._received_at_ms = self._env.clock.monotonic_ms()
        self._acknowledged = PhysicalOffset(-1)
        self._problem = ""
        logger.info(
            "master followed broker=%s broker_id=%s master=%s epoch=%s log_offset=%s",
            self._member.identity.name,
            self._member.identity.broker_id,
            self._master,
            self._epoch,
            self._store.max_physical,
        )
        self._acknowledging.wake()

    async def _take_pieces(self, stream: FollowStream) -> None:
        clock, store, state = self._env.clock, self._store, self._member.state
        while (reply := await stream.read()) is not None:
            self._received_at_ms = clock.monotonic_ms()
            piece = reply.piece
            check_succession(
                piece,
                epoch=self._epoch,
                highest_epoch=state.highest_epoch,
                log_end=store.max_physical,
            )
            self._note_master(piece)
            confirmed = PhysicalOffset(piece.confirm_offset)
            if store.confirm_limit is not None:
                # Before the append: an earlier master may have confirmed more bytes of another log.
                store.confirm_limit = min(store.confirm_limit, confirmed)
            if piece.data:
                await self._append(piece)
                self._note_behind()
            store.confirm_limit = confirmed
            self._store_loop.appended()
        raise ProtocolBroken("it ended the stream")

    async def _append(self, piece: replication.LogPiece) -> None:
        """Store a piece; wait for space as long as it takes.

        Raises:
            StoreError: The bytes do not continue the log, or the disk failed.
        """
        is_logged = False
        while True:
            try:
                self._store.append_replicated(
                    piece.data,
                    PhysicalOffset(piece.start),
                    is_checksummed=piece.is_checksummed,
                    damage=piece.damage,
                )
            except BrokerBusy:
                pause = self._busy_pause()
            except StoreFull as error:
                is_logged = is_logged or self._log_full(error)
                pause = asyncio.sleep(_SPACE_PAUSE_S)
            else:
                break
            self._waits_for_space = True
            try:
                await pause
            finally:
                self._waits_for_space = False
                self._received_at_ms = self._env.clock.monotonic_ms()
        if is_logged:
            logger.info("slave has space again broker=%s", self._member.identity.name)
            self._problem = ""

    async def _busy_pause(self) -> None:
        """Wait for a new file or for notes that are being written."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SPACE_PAUSE_S):
                if not await self._store_loop.space_made():
                    await asyncio.sleep(_BUSY_PAUSE_S)

    def _log_full(self, error: StoreFull) -> bool:
        logger.error("slave has no space broker=%s err=%s", self._member.identity.name, error)
        self._problem = str(error)
        return True

    def _note_master(self, piece: replication.LogPiece) -> None:
        self._master_start = PhysicalOffset(piece.log_start)
        self._master_end = piece.log_end
        self._note_behind()

    def _note_behind(self) -> None:
        if self._store.max_physical >= self._master_end:
            self._behind_since_ms = None
        elif self._behind_since_ms is None:
            self._behind_since_ms = self._received_at_ms

    async def acknowledge(self) -> bool:
        """Acknowledge the safe offset to the master, if it has moved or a second has passed.

        The step of a job. It ends the stream of a silent or deposed master, and when the disk
        failed.
        """
        stream = self._stream
        if stream is None or self._is_leaving:
            return False
        store, now_ms = self._store, self._env.clock.monotonic_ms()
        is_silent = now_ms - self._received_at_ms > SILENCE_MAX_MS and not self._waits_for_space
        if is_silent or store.failure or self._member.state.highest_epoch > self._epoch:
            logger.warning("stream to master ended master=%s silent=%s", self._master, is_silent)
            stream.cancel()
            return False
        safe = store.safe_offset
        if safe == self._acknowledged and now_ms - self._acknowledged_at_ms < HEARTBEAT_MS:
            return False
        self._acknowledged, self._acknowledged_at_ms = safe, now_ms
        ack = replication.FollowAck(
            epoch=self._epoch,
            safe_offset=safe,
            appended_offset=store.max_physical,
            dispatched_offset=store.dispatched_offset,
        )
        try:
            async with asyncio.timeout(SILENCE_MAX_MS / _SECOND_MS):
                await stream.write(replication.FollowRequest(ack=ack))
        except (TernError, TimeoutError):
            stream.cancel()  # the reader of the stream logs the reason
            return False
        return store.safe_offset != safe

    def safe_moved(self) -> None:
        """Acknowledge a new safe offset at once, or by the MiB when far behind."""
        moved = self._store.safe_offset - self._acknowledged
        if self._stream is not None and (moved >= NEAR_BYTES or not self.is_far_behind()):
            self._acknowledging.wake()

    async def keep_confirmed(self) -> bool:
        """Save the confirm offset. The step of a job, and the last act of a term."""
        confirmed = self._store.confirm_offset
        if confirmed > self._confirmed_kept:
            try:
                await self._member.state.keep_confirmed(confirmed)
            except TernError as error:
                logger.error("confirm offset not saved err=%s", error)
                return False
            self._confirmed_kept = confirmed
        return False

    def is_far_behind(self) -> bool:
        """Return whether the slave follows and lacks more bytes than usual."""
        if self._stream is None:
            return False
        return self._master_end - self._store.max_physical > FAR_BYTES

    def status(self) -> replication.FollowingStatus:
        """Return the progress of the follower, without the age of the tables."""
        behind_ms = 0
        if self._behind_since_ms is not None:
            behind_ms = self._env.clock.monotonic_ms() - self._behind_since_ms
        return replication.FollowingStatus(
            is_connected=self._stream is not None,
            master=self._master,
            epoch=self._epoch,
            master_end=self._master_end,
            lag_bytes=max(0, self._master_end - self._store.max_physical),
            lag_ms=behind_ms,
            problem=self._problem,
        )
