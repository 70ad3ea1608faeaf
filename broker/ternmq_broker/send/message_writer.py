"""Message writer: checks of sent records against their topics, and their append.

Source: RocketMQ `AbstractSendMessageProcessor.msgCheck`, `SendMessageProcessor`.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ternmq_broker.send.atomic_batch import RefusedRecord, check_atomic
from ternmq_broker.state.topics import TopicTable
from ternmq_broker.storage.routed_batch import RecordRefusal, reroute
from ternmq_broker.storage.system_topic_routing import RoutingRules
from ternmq_model.arrays import Ints, read_int32s
from ternmq_model.clock import Clock
from ternmq_model.errors import IllegalName, RefusedError, refusal
from ternmq_model.names import HALF_TOPIC, is_send_forbidden
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.batch import RecordBatch, check_records, select_rows
from ternmq_model.record.fields import QueueRows
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import Permission, TopicConfig
from ternmq_store.message_store import MessageStore

logger = logging.getLogger(__name__)

_OPEN_QUEUES_MAX: Final = 65_536
_NOTHING: Final[Ints] = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class SenderInfo:
    """Addresses of one sender, and its settings for new topics."""

    born_host: bytes
    store_host: bytes
    template: str
    """The topic that new ones are copied from; empty = none may be created."""

    new_topic_queues: int


@dataclass(frozen=True, slots=True)
class PutResult:
    """Result of a request: offsets of its stored records, and the refused ones."""

    queue_offsets: Ints
    """Queue offset of each record of the request; -1 for a refused one."""

    physical_offsets: Ints
    stored_at_ms: int
    end: PhysicalOffset
    """Confirmed when the confirm offset is here; 0 when nothing was stored."""

    refused: Sequence[RefusedRecord]
    queue_ids: Ints | None = None
    """Queue of each record, when some lie in another queue than they were sent to; else None."""


class MessageWriter:
    """Checks of records against their topics, and their append. Owned by the broker's loop.

    Args:
        log: Takes the records.
        topics: Every topic; a send may create one.
        clock: For the time a topic is created.
        on_appended: Called after every append: flushing and dispatching have something to do.
        on_created: Called when a send created a topic; what was sent to it may be acknowledged only
            when the table is saved.
        is_checksummed: Whether stored records are to end with a checksum.
        rules: Returns the present rules for routing to system topics.
        on_halves: Called when transactions began, with their half messages' places in the log and
            in the half topic's queue, and the staging time of each, as in `RoutedBatch`.
    """

    def __init__(
        self,
        log: MessageStore,
        topics: TopicTable,
        clock: Clock,
        *,
        on_appended: Callable[[], None],
        on_created: Callable[[], None],
        is_checksummed: bool,
        rules: Callable[[], RoutingRules],
        on_halves: Callable[[Ints, Ints, Ints], None],
    ) -> None:
        self._log = log
        self._topics = topics
        self._clock = clock
        self._on_appended = on_appended
        self._on_created = on_created
        self._is_checksummed = is_checksummed
        self._rules = rules
        self._on_halves = on_halves
        self._version = topics.version
        self._open: set[tuple[str, int]] = set()

    def store(
        self, records: bytes, record_sizes: bytes, sender: SenderInfo, *, atomic: bool = False
    ) -> PutResult:
        """Check the records of one request and append the good ones.

        Args:
            records: Back to back, in store format.
            record_sizes: Their lengths, little-endian int32 each.
            sender: Whose request it is.
            atomic: They are one batch of their user, stored together or not at all.

        Raises:
            MessageRefused: The lengths cannot be right, or a record of an `atomic` batch is
                refused; nothing was stored.
            StoreError: The store takes nothing; nothing was stored.
        """
        try:
            sizes = read_int32s(record_sizes)
            checked = check_records(
                records,
                sizes,
                born_host_bytes=len(sender.born_host),
                store_host_bytes=len(sender.store_host),
                is_checksummed=self._is_checksummed,
            )
        except ValueError as error:
            raise refusal(ResponseCode.MESSAGE_ILLEGAL, str(error)) from None
        batch, indexes = checked.batch, checked.indexes
        refused = [
            RefusedRecord(row, ResponseCode.MESSAGE_ILLEGAL, reason)
            for row, reason in checked.refused
        ]
        if batch is not None:
            kept = self._permitted(batch, indexes, sender, refused)
            if kept is None:
                batch = None
            elif len(kept) < len(batch.queues):
                batch, rows = select_rows(batch, kept)
                indexes = indexes[rows]
        if atomic:
            check_atomic(batch, refused, request_bytes=len(records))
        is_routed = batch is not None and bool(batch.routed)
        staged_ms = _NOTHING
        if batch is not None and is_routed:
            batch, indexes, staged_ms = self._routed(batch, indexes, sender, refused)
        if batch is None:
            nothing = np.full(len(sizes), -1, dtype=np.int64)
            return PutResult(nothing, nothing, 0, PhysicalOffset(0), sorted(refused))
        appended = self._log.append(
            batch, born_host=sender.born_host, store_host=sender.store_host, atomic=atomic
        )
        self._on_appended()
        queue_offsets, physical_offsets = appended.queue_offsets, appended.physical_offsets
        if is_routed:
            for queue in batch.queues:
                if queue.topic == HALF_TOPIC:
                    rows = queue.rows
                    self._on_halves(physical_offsets[rows], queue_offsets[rows], staged_ms[rows])
        if refused:
            queue_offsets = _scatter(queue_offsets, indexes, len(sizes))
            physical_offsets = _scatter(physical_offsets, indexes, len(sizes))
            refused.sort()
        return PutResult(
            queue_offsets, physical_offsets, appended.stored_at_ms, appended.end, refused
        )

    def _routed(
        self, batch: RecordBatch, indexes: Ints, sender: SenderInfo, refused: list[RefusedRecord]
    ) -> tuple[RecordBatch | None, Ints, Ints]:
        """Return the batch with what is to be stored of its routed rows; list those refused.

        Returns:
            With which record each row is, and how long it is staged.
        """
        done = reroute(batch, self._rules(), store_host=sender.store_host)
        refused += [RefusedRecord(int(indexes[row]), *why) for row, why in done.refused.items()]
        return done.batch, indexes[done.rows], done.staged_ms

    def _permitted(
        self, batch: RecordBatch, indexes: Ints, sender: SenderInfo, refused: list[RefusedRecord]
    ) -> Sequence[QueueRows] | None:
        """Return the queues whose rows may be stored, None for none; list the other rows."""
        if self._version is not self._topics.version:
            self._version = self._topics.version
            self._open.clear()
        refusals = [
            None if (each[0], each[1]) in self._open else self._check(each[0], each[1], sender)
            for each in batch.queues
        ]
        if not any(refusals):
            return batch.queues
        kept: list[QueueRows] = []
        for each, why in zip(batch.queues, refusals, strict=True):
            if why is None:
                kept.append(each)
            else:
                refused.extend(RefusedRecord(row, *why) for row in indexes[each.rows].tolist())
        return kept or None

    def _check(self, topic: str, queue_id: int, sender: SenderInfo) -> RecordRefusal | None:
        """Return why records may not go to a queue, None when they may."""
        config = self.find_or_create(topic, sender)
        if isinstance(config, RecordRefusal):
            return config
        queues = max(config.read_queues, config.write_queues)
        if not 0 <= queue_id < queues:
            remark = f"topic {topic!r} has queues 0 to {queues - 1}, not {queue_id}"
            return RecordRefusal(ResponseCode.INVALID_PARAMETER, remark)
        if len(self._open) < _OPEN_QUEUES_MAX and self._version is self._topics.version:
            self._open.add((topic, queue_id))
        return None

    def find_or_create(self, topic: str, sender: SenderInfo) -> TopicConfig | RecordRefusal:
        """Return the topic that records are sent to, created if need be, or why it takes none."""
        if is_send_forbidden(topic):
            remark = f"topic {topic!r} belongs to the broker: nothing may be sent to it"
            return RecordRefusal(ResponseCode.NO_PERMISSION, remark)
        config = self._topics.get(topic)
        if config is None:
            try:
                config = self._topics.create_for_send(
                    topic,
                    template=sender.template,
                    queues=max(0, sender.new_topic_queues),
                    now_ms=self._clock.wall_ms(),
                )
            except RefusedError as error:
                return RecordRefusal(error.code, error.remark)
            except IllegalName as error:
                return RecordRefusal(ResponseCode.INVALID_PARAMETER, str(error))
            if config is None:
                remark = f"topic {topic!r} does not exist, and a send may not create it"
                return RecordRefusal(ResponseCode.TOPIC_NOT_EXIST, remark)
            logger.info("topic created topic=%s queues=%s by=send", topic, config.write_queues)
            self._on_created()
        if Permission.WRITE not in config.permissions:
            remark = f"topic {topic!r} may not be written ({config.permissions.text})"
            return RecordRefusal(ResponseCode.NO_PERMISSION, remark)
        return config


def _scatter(values: Ints, indexes: Ints, count: int) -> Ints:
    scattered = np.full(count, -1, dtype=np.int64)
    scattered[indexes] = values
    return scattered
