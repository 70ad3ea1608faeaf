"""Lag of groups in time, by the store times of the messages at their offsets.

Source: RocketMQ `ConsumeStats`, `OffsetWrapper`, `ConsumerLagCalculator`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ternmq_model.clock import Clock
from ternmq_model.errors import refusal
from ternmq_model.offsets import QueueOffset
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting.environment import Blocking
from ternmq_store.message_store import MessageStore

_QUEUES_AT_A_TIME: Final = 256
"""A bound on how long one of the pool's threads is taken."""


@dataclass(frozen=True, slots=True)
class GroupLag:
    """Looks store times up, off the loop. Owns nothing."""

    store: MessageStore
    clock: Clock
    blocking: Blocking

    async def tell(self, progress: Sequence[admin.GroupProgress]) -> None:
        """Complete what is told of a group's queues by times. Cancelling is safe.

        Raises:
            RefusedError: The disk cannot be read.
        """
        for first in range(0, len(progress), _QUEUES_AT_A_TIME):
            await self._tell(progress[first : first + _QUEUES_AT_A_TIME])

    async def _tell(self, progress: Sequence[admin.GroupProgress]) -> None:
        wanted = [(one.topic, one.queue_id, wanted_offsets(one)) for one in progress]
        search = self.store.searches.times_at(wanted)
        try:
            found = await self.blocking.run(search.run)
        except OSError as error:
            remark = f"the disk cannot be read: {error}"
            raise refusal(ResponseCode.SYSTEM_ERROR, remark) from error
        now_ms = self.clock.wall_ms()
        for one, (_, _, offsets), times in zip(progress, wanted, found, strict=True):
            for offset, stored_at_ms in zip(offsets, times, strict=False):
                if offset < one.committed_offset:
                    one.consumed_stored_at_ms = stored_at_ms
                elif stored_at_ms:
                    one.lag_ms = max(0, now_ms - stored_at_ms)


def wanted_offsets(progress: admin.GroupProgress) -> list[QueueOffset]:
    """Return which messages' times tell how far a group is: the last consumed, and the next. Pure.

    A group that never consumed the queue, or whose next message is no longer kept, goes on with the
    first one there is.
    """
    first, end = progress.min_offset, progress.max_offset
    return [
        QueueOffset(offset)
        for offset in (progress.committed_offset - 1, max(progress.committed_offset, first))
        if first <= offset < end
    ]
