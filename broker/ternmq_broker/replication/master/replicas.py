"""The slaves of one master: who follows, and what that lets the master confirm."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final, Protocol

from ternmq_broker.replication.master.in_sync import FollowerProgress, InSync
from ternmq_broker.replication.master.leadership import Leadership
from ternmq_broker.storage.confirmations import Confirmations
from ternmq_model.clock import Clock
from ternmq_model.errors import refusal
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.response_code import ResponseCode
from ternmq_store.message_store import MessageStore

logger = logging.getLogger(__name__)

LOOK_INTERVAL_S: Final = 0.25
"""Interval between looks for slaves that fell silent."""


class ReplicaStream(Protocol):
    """A slave's stream, as others than itself see it."""

    follower: FollowerProgress
    incarnation: str
    peer: str
    flush_mode: str
    connected_at_ms: int
    heard_at_ms: int
    appended: PhysicalOffset
    dispatched: PhysicalOffset
    told: PhysicalOffset

    def wake(self) -> None:
        """Look whether there is something to send."""
        ...

    def displace(self) -> None:
        """End: the slave has another stream."""
        ...

    async def heard(self) -> bool:
        """Wait for the slave's next word; return False when there will be none."""
        ...


class Replicas:
    """Keeps `InSync`, the store's confirm offset and the senders' waiting in step.

    Owns who follows, on the broker's loop. A master whom nobody follows and that needs nobody pays
    one look per append.

    Args:
        store: The master's.
        confirmations: Told what slaves have.
        clock: For silence.
        leadership: The master's epoch and role.
        slave_timeout_ms: After so long a silent slave is no longer waited for.
    """

    def __init__(
        self,
        store: MessageStore,
        confirmations: Confirmations,
        clock: Clock,
        leadership: Leadership,
        *,
        slave_timeout_ms: int,
    ) -> None:
        self.leadership: Final = leadership
        self._store = store
        self._confirmations = confirmations
        self._clock = clock
        self._in_sync = InSync(needed=leadership.slaves_needed, slave_timeout_ms=slave_timeout_ms)
        self._streams: dict[int, ReplicaStream] = {}
        self._left = asyncio.Event()
        self._fenced_by = 0
        self._is_needed = leadership.slaves_needed > 0
        self._was_enough = True
        self._on_confirmed = _nothing
        store.cleaner.holders.append(self._needed_from)
        if self._is_needed:
            self.appended()

    @property
    def in_sync(self) -> InSync:
        """The in-sync set. To be read only."""
        return self._in_sync

    @property
    def is_fenced(self) -> bool:
        """A higher epoch is known."""
        return self._fenced_by > 0

    def tell(self, on_confirmed: Callable[[], None]) -> None:
        """Call `on_confirmed` whenever slaves may have moved the confirm offset."""
        self._on_confirmed = on_confirmed

    def streams(self) -> list[ReplicaStream]:
        """Return the streams of all who follow, by id."""
        return [self._streams[broker_id] for broker_id in sorted(self._streams)]

    def appended(self) -> None:
        """Take note that the log may have grown, or more of it may be safe here.

        Comes before the store's confirm offset is looked at.
        """
        if self._is_needed:
            self._confirm()
        for stream in self._streams.values():
            stream.wake()

    async def admit(self, broker_id: int, incarnation: str) -> None:
        """Make place for a stream of a slave that may have one already.

        Raises:
            RefusedError: Another process of that id follows, and is not silent.
        """
        while (old := self._streams.get(broker_id)) is not None:
            silent_ms = self._clock.monotonic_ms() - old.heard_at_ms
            if old.incarnation != incarnation and silent_ms < self._in_sync.slave_timeout_ms:
                remark = f"another slave with id {broker_id} follows"
                raise refusal(ResponseCode.SERVICE_NOT_AVAILABLE, remark)
            old.displace()
            await self._left.wait()

    def join(self, broker_id: int, start: PhysicalOffset) -> FollowerProgress:
        """Take in a slave that is given the log from `start` on.

        Raises:
            InvalidParameter: One of that id follows already.
        """
        return self._in_sync.join(broker_id, start)

    def opened(self, stream: ReplicaStream) -> None:
        """Take note of the stream of a slave that has joined."""
        self._streams[stream.follower.broker_id] = stream

    def left(self, stream: ReplicaStream) -> None:
        """Forget a slave: its stream is over."""
        del self._streams[stream.follower.broker_id]
        self._in_sync.leave(stream.follower)
        self._left.set()
        self._left = asyncio.Event()
        self._moved()

    def sent(self, follower: FollowerProgress, to: PhysicalOffset) -> None:
        """Take note that everything before `to` goes to the slave now."""
        self._in_sync.sent(follower, to, now_ms=self._clock.monotonic_ms())

    def acknowledged(self, follower: FollowerProgress, offset: PhysicalOffset) -> None:
        """Take note that everything before `offset` is safe at a slave.

        Raises:
            InvalidParameter: That cannot be. Nothing has changed.
        """
        end, now_ms = self._store.max_physical, self._clock.monotonic_ms()
        if self._in_sync.acknowledge(follower, offset, end=end, now_ms=now_ms):
            logger.info(
                "slave counts broker_id=%s acknowledged=%s from=%s",
                *(follower.broker_id, offset, end),
            )
        self._moved()

    async def settle(self, timeout_s: float) -> None:
        """Wait until who counts has the whole log, and knows what of it is confirmed.

        What is appended meanwhile counts too. Cancelling is safe.

        Args:
            timeout_s: After so long it is given up.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                for stream in self.streams():
                    await self._settled(stream)

    async def _settled(self, stream: ReplicaStream) -> None:
        while stream.follower.counts and not (
            stream.follower.acknowledged == self._store.max_physical
            and stream.told == self._store.confirm_offset
        ):
            if not await stream.heard():
                return

    def look(self) -> None:
        """Wait no longer for slaves that fell silent or far behind."""
        end = self._store.max_physical
        ceased = self._in_sync.look(end=end, now_ms=self._clock.monotonic_ms())
        for follower in ceased:
            logger.warning(
                "slave counts no more broker_id=%s acknowledged=%s end=%s",
                *(follower.broker_id, follower.acknowledged, end),
            )
        if ceased:
            self._moved()

    def fence(self, epoch: int, whence: str) -> None:
        """Acknowledge nothing from this instant: there is a higher epoch than this leadership's.

        Safe to repeat; what is no higher changes nothing.

        Args:
            epoch: Its number.
            whence: Who knows of it.
        """
        if epoch <= max(self.leadership.number, self._fenced_by):
            return
        self._fenced_by = epoch
        self._confirmations.fence(
            f"epoch {epoch} has begun, this master's is {self.leadership.number}: there is another"
            " one"
        )
        self._store.confirm_limit = self._store.confirm_offset
        logger.error(
            "master deposed epoch=%s higher=%s known_from=%s", self.leadership.number, epoch, whence
        )
        self.leadership.on_deposed(epoch, whence)

    def _moved(self) -> None:
        if self._is_needed:
            self._confirm()
            self._on_confirmed()
            for stream in self._streams.values():
                stream.wake()

    def _confirm(self) -> None:
        if self._fenced_by:
            return
        store, in_sync = self._store, self._in_sync
        safe = store.safe_offset
        store.confirm_limit = in_sync.confirm(safe)
        self._confirmations.replicated(in_sync.replicated_to, local=safe)
        is_enough = in_sync.is_enough
        self._confirmations.are_replicas_enough = is_enough
        if is_enough is not self._was_enough:
            self._was_enough = is_enough
            say = logger.info if is_enough else logger.warning
            say("slaves counting=%s needed=%s", in_sync.counting, in_sync.needed)

    def _needed_from(self) -> PhysicalOffset | None:
        """Return from where on the log is kept for those who follow; None = as it likes."""
        followers = self._in_sync.followers
        return min((max(each.acknowledged, each.start) for each in followers), default=None)


def _nothing() -> None:
    """Do nothing, before somebody is to be told."""
