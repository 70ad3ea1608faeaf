"""Stores what has waited in its own queue, and says when that can be relied on."""

import logging
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from ternmq_broker.scheduled.delivery_target import Undeliverable, at_real_place
from ternmq_broker.storage.internal_append import InternalWriter
from ternmq_broker.storage.internal_record import InternalRecord, internal_record_of, with_source
from ternmq_model.errors import IllegalMessage, IllegalName, MessageRefused
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.format import Record
from ternmq_model.route import TopicConfig
from ternmq_store.message_store import Appended

logger = logging.getLogger(__name__)


class Delivered(NamedTuple):
    """What became of some records."""

    end: PhysicalOffset
    """Where they end in the log; 0 when none was stored."""

    stored_at_ms: int
    """Of the last one; 0 when none was stored."""

    dropped: int
    """How many there is no place for."""


@dataclass(slots=True)
class Deliverer:
    """Writes records to where they belong. Owned by the broker's loop.

    Args:
        writer: Stores them.
        find: Returns the topic of a record, given its queue and where the record waited; None when
            there is none.
    """

    writer: InternalWriter
    find: Callable[[str, int, PhysicalOffset], TopicConfig | None]

    async def deliver(self, records: Sequence[Record]) -> Delivered:
        """Store records in their own queues, in order, and wait until they count.

        What can never be delivered is dropped, and logged by reason: nothing behind it must wait
        for it. When it raises, some may be stored; it is to be called again with the same.

        Raises:
            TernError: The store takes nothing now, or failed.
        """
        good: list[InternalRecord] = []
        reasons: Counter[str] = Counter()
        for record in records:
            try:
                find = partial(self._find, record.header.physical_offset)
                inner = at_real_place(internal_record_of(record), find)
                good.append(with_source(inner, record))
            except Undeliverable as error:
                reasons[str(error)] += 1
        appended = await self._put(good, reasons) if good else None
        for reason, count in reasons.items():
            logger.warning("messages that waited dropped count=%d reason=%s", count, reason)
        if appended is None:
            return Delivered(PhysicalOffset(0), 0, reasons.total())
        return Delivered(appended.end, appended.stored_at_ms, reasons.total())

    def _find(self, at: PhysicalOffset, topic: str, queue_id: int) -> TopicConfig | None:
        return self.find(topic, queue_id, at)

    async def _put(
        self, records: Sequence[InternalRecord], reasons: Counter[str]
    ) -> Appended | None:
        try:
            return await self.writer.put(records, timeout_s=math.inf)
        except (IllegalMessage, IllegalName, MessageRefused) as error:
            if len(records) == 1:
                reasons[f"the log cannot hold it: {error}"] += 1
                return None
        # One of them can never be stored: find it.
        half = len(records) // 2
        first = await self._put(records[:half], reasons)
        return await self._put(records[half:], reasons) or first
