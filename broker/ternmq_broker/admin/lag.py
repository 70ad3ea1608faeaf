"""Lag of groups in time, by the store times of the messages at their offsets.

Source: RocketMQ `ConsumeStats`, `OffsetWrapper`, `ConsumerLagCalculator`.
"""

from collections.abc import Sequence
from typing import Final

from ternmq_broker.storage.reader import StoreReader
from ternmq_model.clock import Clock
from ternmq_model.offsets import QueueOffset
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_store.message_store import MessageStore

_QUEUES_AT_A_TIME: Final = 256
"""Limit on the time that one search takes in the blocking pool."""


async def add_times(
    progress: Sequence[admin.GroupProgress], store: MessageStore, reader: StoreReader, clock: Clock
) -> None:
    """Add store times and lags to the progress of a group. Cancelling is safe.

    Raises:
        RefusedError: The disk cannot be read.
    """
    for first in range(0, len(progress), _QUEUES_AT_A_TIME):
        part = progress[first : first + _QUEUES_AT_A_TIME]
        queues = [(one.topic, one.queue_id, timed_offsets(one)) for one in part]
        found = await reader.run(store.searches.times_at(queues).run)
        now_ms = clock.wall_ms()
        for one, (_, _, offsets), times in zip(part, queues, found, strict=True):
            for offset, stored_at_ms in zip(offsets, times, strict=False):
                if offset < one.committed_offset:
                    one.consumed_stored_at_ms = stored_at_ms
                elif stored_at_ms:
                    one.lag_ms = max(0, now_ms - stored_at_ms)


def timed_offsets(progress: admin.GroupProgress) -> list[QueueOffset]:
    """Return the offsets of the last consumed and the next message, which determine the lag. Pure.

    Without an offset, or after the deletion of the next message, the next one is the first of the
    queue.
    """
    first, end = progress.min_offset, progress.max_offset
    return [
        QueueOffset(offset)
        for offset in (progress.committed_offset - 1, max(progress.committed_offset, first))
        if first <= offset < end
    ]
