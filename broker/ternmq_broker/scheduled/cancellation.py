"""Cancellation of timed messages by messages of one topic that are due at the same tick. Pure.

Source: RocketMQ `TimerMessageStore.TimerDequeueGetMessageService`.
"""

from collections.abc import Sequence

import numpy as np

from ternmq_broker.scheduled.timer_wheel import DueMessages
from ternmq_model.delay import cancel_key
from ternmq_model.properties import REAL_TOPIC, TIMER_CANCEL, UNIQUE_KEY, decode_properties
from ternmq_model.record.format import Record


class Cancellations:
    """Cancelled keys of the ticks that are being delivered. Owned by `TimedMessages`."""

    def __init__(self) -> None:
        self._keys: dict[int, dict[str, int]] = {}

    @property
    def first_offset(self) -> int | None:
        """Lowest queue offset of the retained cancelling messages; None without any."""
        return min(
            (offset for keys in self._keys.values() for offset in keys.values()), default=None
        )

    def without_cancelled(self, records: Sequence[Record | None], due: DueMessages) -> list[Record]:
        """Return the records of a batch that are to be delivered; a repeated call changes nothing.

        Args:
            records: Records of the first messages of `due`; None for a missing one.
            due: Due messages; within each tick, cancelling ones come first.
        """
        remaining: list[Record] = []
        columns = [column[: len(records)].tolist() for column in due]
        rows = zip(records, *columns, strict=True)
        for record, offset, due_ms, cancels in rows:
            if record is None:
                continue
            if not cancels and due_ms not in self._keys:
                remaining.append(record)
                continue
            properties = decode_properties(record.properties)
            topic = properties.get(REAL_TOPIC, "")
            if cancels:
                key = cancel_key(topic, properties.get(TIMER_CANCEL, ""))
                self._keys.setdefault(due_ms, {}).setdefault(key, offset)
            elif cancel_key(topic, properties.get(UNIQUE_KEY, "")) not in self._keys[due_ms]:
                remaining.append(record)
        return remaining

    def waiting(self) -> DueMessages:
        """Return the retained cancelling messages."""
        rows = [(offset, due_ms) for due_ms, keys in self._keys.items() for offset in keys.values()]
        offsets, dues_ms = np.array(rows, dtype=np.int64).reshape(-1, 2).T
        return DueMessages(offsets, dues_ms, np.ones_like(offsets))

    def forget(self, read_ms: int) -> None:
        """Drop the cancelling messages of ticks up to `read_ms`, which are over."""
        for due_ms in [due_ms for due_ms in self._keys if due_ms <= read_ms]:
            del self._keys[due_ms]
