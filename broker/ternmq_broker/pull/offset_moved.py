"""Events of corrected offsets, stored as messages of a topic.

Source: RocketMQ `PullMessageProcessor.generateOffsetMovedEvent`, `OffsetMovedEvent`.
"""

import json
import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ternmq_broker.state.topics import TopicTable
from ternmq_broker.storage.internal_append import InternalWriter
from ternmq_broker.storage.internal_record import InternalRecord
from ternmq_model.clock import Clock
from ternmq_model.errors import BrokerBusy, TernError
from ternmq_model.names import OFFSET_MOVED_TOPIC
from ternmq_model.properties import KEYS, TAGS
from ternmq_runtime.service import Job

logger = logging.getLogger(__name__)

REPEAT_MS: Final = 60_000
"""Time in which the same correction is stored once: a reader may ask again at once."""

_KNOWN_MAX: Final = 10_000
_WAITING_MAX: Final = 1_000
_BATCH: Final = 100
_PAUSE_S: Final = 1.0


class OffsetMovedEvent(NamedTuple):
    """Correction of one offset of a group."""

    group: str
    topic: str
    queue_id: int
    requested: int
    corrected: int

    def body(self, broker_name: str) -> bytes:
        """Return the body of the message: JSON in RocketMQ's form."""
        event = {
            "consumerGroup": self.group,
            "messageQueue": {
                "brokerName": broker_name,
                "queueId": self.queue_id,
                "topic": self.topic,
            },
            "offsetNew": self.corrected,
            "offsetRequest": self.requested,
        }
        return json.dumps(event, separators=(",", ":")).encode()


@dataclass(slots=True, eq=False)
class OffsetMovedPublisher:
    """Publisher of corrections: stores them in their topic. Owned by the broker's loop.

    A pull that is corrected does not wait for its event. Events that come faster than they can be
    stored are dropped, and counted in the log.
    """

    writer: InternalWriter
    topics: TopicTable
    """Topics of the broker; the first event creates the topic of the events."""

    clock: Clock
    broker_name: str
    on_created: Callable[[], None]
    """Called when the topic of the events was created."""

    _queued_at_ms: OrderedDict[OffsetMovedEvent, int] = field(
        default_factory=OrderedDict[OffsetMovedEvent, int], init=False
    )
    _waiting: deque[OffsetMovedEvent] = field(default_factory=deque[OffsetMovedEvent], init=False)
    _dropped: int = field(default=0, init=False)

    def add(self, event: OffsetMovedEvent) -> None:
        """Queue an event, unless the same one was queued during the last minute."""
        now_ms = self.clock.monotonic_ms()
        queued_at_ms = self._queued_at_ms.get(event)
        if queued_at_ms is not None and now_ms - queued_at_ms < REPEAT_MS:
            return
        if len(self._waiting) >= _WAITING_MAX:
            self._dropped += 1
            return
        self._queued_at_ms[event] = now_ms
        self._queued_at_ms.move_to_end(event)
        if len(self._queued_at_ms) > _KNOWN_MAX:
            self._queued_at_ms.popitem(last=False)
        self._waiting.append(event)
        logger.warning(
            "offset corrected group=%s topic=%s queue=%s requested=%s corrected=%s", *event
        )

    def job(self) -> Job:
        """Return the job that stores the events."""
        return Job(name="offset-moved-events", interval_s=_PAUSE_S, step=self.step)

    async def step(self) -> bool:
        """Store some events; return whether more wait: one step of a job."""
        if self._dropped:
            logger.warning("events of corrected offsets dropped count=%s", self._dropped)
            self._dropped = 0
        events = [self._waiting.popleft() for _ in range(min(len(self._waiting), _BATCH))]
        if not events:
            return False
        try:
            if self.topics.add_missing(OFFSET_MOVED_TOPIC, now_ms=self.clock.wall_ms()):
                self.on_created()
            self.writer.append([self._record(event) for event in events])
        except BrokerBusy:
            self._waiting.extendleft(reversed(events))
            return False
        except TernError as error:
            logger.warning(
                "events of corrected offsets not stored count=%s err=%s", len(events), error
            )
        return bool(self._waiting)

    def _record(self, event: OffsetMovedEvent) -> InternalRecord:
        return InternalRecord(
            topic=OFFSET_MOVED_TOPIC,
            queue_id=0,
            body=event.body(self.broker_name),
            properties={TAGS: event.group, KEYS: event.group},
            born_at_ms=self.clock.wall_ms(),
            born_host=self.writer.store_host(),
        )
