"""Delivery of scheduled messages: each is stored in its own queue when it is due.

Source: RocketMQ `ScheduleMessageService.messageTimeUp`, `TimerMessageStore.convertMessage`.
"""

import logging
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from ternmq_broker.storage.internal_append import InternalWriter
from ternmq_broker.storage.internal_record import InternalRecord, internal_record_of, with_source
from ternmq_model.errors import IllegalMessage, IllegalName, MessageRefused, RefusedError
from ternmq_model.names import is_send_forbidden
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.properties import REAL_QUEUE_ID, REAL_TOPIC
from ternmq_model.record.format import Record
from ternmq_model.route import TopicConfig
from ternmq_store.message_store import AppendResult

logger = logging.getLogger(__name__)


class Undeliverable(Exception):
    """Failure of a record that no queue can store; the text is the reason."""


class DeliveryResult(NamedTuple):
    """Result of one delivery."""

    end: PhysicalOffset
    """End of the delivered records in the log; 0 when none was stored."""

    stored_at_ms: int
    """Store time of the last record; 0 when none was stored."""


FindTopic: TypeAlias = Callable[[str, int, PhysicalOffset], TopicConfig | None]
"""Returns the topic of a record, given its name and queue and the log offset at which the record
waited; None when the topic was deleted."""


@dataclass(slots=True)
class Deliverer:
    """Writer of due records to their own queues. Owned by the broker's loop."""

    writer: InternalWriter
    find: FindTopic
    delivered: int = field(default=0, init=False)
    """Number of delivered records since the start."""

    dropped: int = field(default=0, init=False)
    """Number of records since the start that no queue can store, or that are damaged."""

    async def deliver(self, records: Sequence[Record]) -> DeliveryResult:
        """Store records in their own queues, in order, and wait until they count as stored.

        Records that no queue can store are dropped, and logged by reason, so that no record waits
        behind them. After an error, some may be stored; call it again with the same records.

        Raises:
            TernError: The store accepts no message now, or failed.
        """
        good: list[InternalRecord] = []
        reasons: Counter[str] = Counter()
        for record in records:
            try:
                at = record.header.physical_offset
                due = restore_topic(internal_record_of(record), self.find, at)
                good.append(with_source(due, record))
            except Undeliverable as error:
                reasons[str(error)] += 1
        appended = await self._put(good, reasons) if good else None
        for reason, count in reasons.items():
            logger.warning("waiting messages dropped count=%d reason=%s", count, reason)
        self.delivered += len(records) - reasons.total()
        self.dropped += reasons.total()
        if appended is None:
            return DeliveryResult(PhysicalOffset(0), 0)
        return DeliveryResult(appended.end, appended.stored_at_ms)

    async def _put(
        self, records: Sequence[InternalRecord], reasons: Counter[str]
    ) -> AppendResult | None:
        try:
            return await self.writer.put(records, timeout_s=math.inf)
        except (IllegalMessage, IllegalName, MessageRefused) as error:
            if len(records) == 1:
                reasons[f"the log cannot hold it: {error}"] += 1
                return None
        # One record can never be stored: halve the batch to find it.
        half = len(records) // 2
        first = await self._put(records[:half], reasons)
        return await self._put(records[half:], reasons) or first


def restore_topic(record: InternalRecord, find: FindTopic, at: PhysicalOffset) -> InternalRecord:
    """Return the record for its own queue, with all its properties.

    If the topic has fewer queues by now, the record goes to one of those.

    Args:
        record: Record that waited.
        find: Returns the topic of the record.
        at: Log offset at which the record waited.

    Raises:
        Undeliverable: The record names no queue; or its topic was deleted, or belongs to the
            broker.
    """
    topic, number = record.properties.get(REAL_TOPIC, ""), record.properties.get(REAL_QUEUE_ID, "")
    if not topic or not number.isascii() or not number.isdigit() or len(number) > 9:
        raise Undeliverable(f"its properties name no queue: {topic[:140]!r} {number[:20]!r}")
    if is_send_forbidden(topic):
        raise Undeliverable(f"topic {topic!r} belongs to the broker")
    queue_id = int(number)
    try:
        config = find(topic, queue_id, at)
    except (IllegalName, RefusedError) as error:
        raise Undeliverable(f"topic {topic[:140]!r} is impossible: {error}") from None
    queues = 0 if config is None else max(config.read_queues, config.write_queues)
    if not queues:
        raise Undeliverable(f"topic {topic[:140]!r} was deleted")
    return replace(
        record, topic=topic, queue_id=queue_id if queue_id < queues else queue_id % queues
    )
