"""The handover of timed messages from RocketMQ and back, beside their queue."""

import logging
from typing import Final

import numpy as np

from ternmq_broker.scheduled.timer_wheel import DueMessages
from ternmq_broker.state.timer_checkpoint import TimerCheckpoint
from ternmq_broker.state.timer_files import TimerFiles
from ternmq_broker.state.timer_log import log_units
from ternmq_model.arrays import Ints
from ternmq_model.clock import Clock
from ternmq_model.names import WHEEL_TOPIC
from ternmq_model.offsets import QueueOffset
from ternmq_store.message_store import MessageStore
from ternmq_store.queues.units import Units

logger = logging.getLogger(__name__)

_AGAIN_MS: Final = 60_000
_UNITS: Final = 65_536


class TimerHandover:
    """Handover of timed messages from and to RocketMQ. Owned by `TimedMessages`.

    Args:
        store: Store of the messages.
        files: Files in which RocketMQ records waiting messages.
        clock: Clock of the retries.
    """

    def __init__(self, store: MessageStore, files: TimerFiles, clock: Clock) -> None:
        self._store, self._files, self._clock = store, files, clock
        self._is_done = False
        self._again_at_ms = clock.monotonic_ms()

    async def take_over(self) -> float | None:
        """Retire RocketMQ's wheel; return the seconds until a retry, None without one.

        A refusal of the disk is logged: deliveries go on, and RocketMQ may repeat them.
        """
        if self._is_done:
            return None
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._again_at_ms:
            try:
                await self._files.retire()
            except OSError as error:
                self._again_at_ms = now_ms + _AGAIN_MS
                logger.error("timer files not retired, retry in a minute err=%s", error)
            else:
                self._is_done = True
                return None
        return (self._again_at_ms - now_ms) / 1000

    async def leave(self, waits: DueMessages, checkpoint: TimerCheckpoint) -> None:
        """Write a timer log for RocketMQ if messages wait. A refusal of the disk is logged.

        Args:
            waits: All waiting messages, by queue offset.
            checkpoint: Checkpoint of the deliveries, which is saved next.
        """
        first, _ = self._store.queue_range(WHEEL_TOPIC, 0)
        waits = waits.rows(waits.offsets >= first)
        if not (self._is_done and len(waits) and checkpoint.read_ms):
            return
        last = QueueOffset(checkpoint.next_offset - 1)
        is_last = waits.offsets[-1] == last
        units = self._units_of(waits.offsets)
        newest = self._store.searches.units_at(WHEEL_TOPIC, 0, last, 0 if is_last else 1)
        log = log_units(waits.due_ms, waits.cancels, units, checkpoint.read_ms, last=newest)
        try:
            await self._files.leave(log)
        except OSError as error:
            logger.warning("timer log for RocketMQ not written err=%s", error)

    def _units_of(self, offsets: Ints) -> Units:
        """Return the units of messages by their queue offsets."""
        at, end = int(offsets[0]), int(offsets[-1])
        parts: list[Units] = []
        while at <= end:
            units = self._store.searches.units_at(WHEEL_TOPIC, 0, QueueOffset(at), _UNITS)
            rows = slice(*np.searchsorted(offsets, (at, at + len(units))))
            parts.append(units[offsets[rows] - at])
            at += len(units)
        return np.concatenate(parts)
