"""The background verification of a store, driven by the broker's loop.

A damaged unit may have hidden its message from groups that read past it. Such messages are listed;
they are not delivered again.
"""

import logging
from collections import deque
from functools import partial
from typing import Final, NamedTuple

from ternmq_broker.state.offsets import OffsetTable
from ternmq_model.clock import Clock
from ternmq_model.offsets import QueueOffset
from ternmq_remoting.environment import Blocking
from ternmq_runtime.service import Job
from ternmq_runtime.shielded_call import run_shielded
from ternmq_store.message_store import MessageStore
from ternmq_store.queues.consume_queue import ConsumeQueue
from ternmq_store.queues.units import Unit, UnitRepair
from ternmq_store.verification.verification import PIECE_BYTES, UnitsCheck

logger = logging.getLogger(__name__)


_IDLE_S: Final = 60.0
"""Longest delay of a new round that is due, and of a setting that changed."""

_PASSED_MAX: Final = 1_000


class MissedMessage(NamedTuple):
    """A message whose unit was damaged, and groups that may have missed it."""

    topic: str
    queue_id: int
    offset: QueueOffset
    reason: str
    """The parts of the unit that were wrong."""

    groups: tuple[str, ...]
    """Names of the groups that had committed a later offset, sorted."""

    mended_at_ms: int


class StoreVerification:
    """Drives the verification of one store. Owned by the broker's loop.

    Args:
        store: An open store.
        offsets: Committed offsets of groups.
        clock: Clock for the times in the list.
        blocking: Pool in which tasks run.

    Attributes:
        passed: Newest thousand messages that groups had passed when the unit was mended.
    """

    def __init__(
        self, store: MessageStore, offsets: OffsetTable, clock: Clock, blocking: Blocking
    ) -> None:
        self._store = store
        self._offsets = offsets
        self._clock = clock
        self._blocking = blocking
        self._pause_s = _IDLE_S
        self.passed: deque[MissedMessage] = deque(maxlen=_PASSED_MAX)
        store.reads.repair.on_repair = self.mended

    @property
    def bytes_per_s(self) -> int:
        """Configured rate of the verification; 0 = off."""
        return self._store.reads.config.verify_rate_bytes

    def job(self) -> Job:
        """Return the job of the verification."""
        return Job(name="store-verify", interval_s=lambda: self._pause_s, step=self.step)

    async def step(self) -> bool:
        """Verify one chunk, if it is due: one step of a job."""
        verification, rate = self._store.verification, self.bytes_per_s
        piece = verification.chunk_due(min(PIECE_BYTES, rate)) if rate else None
        if piece is None:
            self._pause_s = _IDLE_S
            return False
        checks = list[UnitsCheck | None]()
        await run_shielded(
            self._blocking.run,
            piece.run,
            lambda error: checks.append(verification.chunk_done(piece, error)),
        )
        for check in filter(None, checks):
            await run_shielded(
                self._blocking.run, check.run, partial(verification.units_done, check)
            )
        self._pause_s = piece.checked_bytes / rate
        return False

    def mended(self, queue: ConsumeQueue, repair: UnitRepair) -> None:
        """List the message of a mended unit, if groups had passed it."""
        topic, queue_id = queue.topic, queue.queue_id
        groups = self._offsets.groups_beyond(topic, queue_id, repair.offset)
        if not groups:
            return
        pairs = zip(Unit._fields, repair.was, repair.unit, strict=True)
        reason = "unit's " + ", ".join(name for name, was, is_now in pairs if was != is_now)
        logger.warning(
            "message was passed while its unit was damaged topic=%s queue=%d offset=%d reason=%r"
            " groups=%s",
            topic,
            queue_id,
            repair.offset,
            reason,
            ",".join(groups),
        )
        now_ms = self._clock.wall_ms()
        self.passed.append(
            MissedMessage(topic, queue_id, repair.offset, reason, tuple(groups), now_ms)
        )
