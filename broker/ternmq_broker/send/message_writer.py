"""Message writer: checks of sent records against their topics, and their append.

Source: RocketMQ `AbstractSendMessageProcessor.msgCheck`, `SendMessageProcessor`,
`MessageBatch.generateFromList`.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from ternmq_broker.state.topics import TopicTable
from ternmq_broker.storage.routed_batch import RoutedBatch, reroute
from ternmq_broker.storage.system_topic_routing import RoutingRules
from ternmq_model.arrays import INT32_BYTES, Ints, pack_int32, read_int32s
from ternmq_model.clock import Clock
from ternmq_model.errors import IllegalName, RefusedError, invalid, refusal
from ternmq_model.names import DEAD_LETTER_PREFIX, HALF_TOPIC, RETRY_PREFIX, is_send_forbidden
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.permission import to_administer, to_publish
from ternmq_model.record.batch import (
    RecordBatch,
    Records,
    RefusedRecord,
    check_records,
    select_rows,
)
from ternmq_model.record.fields import QueueRows
from ternmq_model.record.format import ATOMIC_BATCH_BYTES_MAX, host_flags
from ternmq_model.record.single import FIRST_ROW, read_single
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import Permission, TopicConfig
from ternmq_remoting.rpc import EVERYTHING, Permits
from ternmq_store.message_store import MessageStore

logger = logging.getLogger(__name__)

_OPEN_QUEUES_MAX: Final = 65_536


@dataclass(frozen=True, slots=True)
class SenderInfo:
    """Addresses and permissions of one sender, and its settings for new topics."""

    born_host: bytes
    store_host: bytes
    template: str
    """Template of new topics; empty = no topic may be created."""

    new_topic_queues: int
    permits: Permits = EVERYTHING
    is_reply: bool = False
    """True for a reply to a request of this cluster, which each user may send."""


@dataclass(frozen=True, slots=True)
class PutResult:
    """Result of a request: offsets of its stored records, and the refused ones."""

    queue_offsets: Ints
    """Queue offset of each record of the request; -1 for a refused one."""

    physical_offsets: Ints
    stored_at_ms: int
    end: PhysicalOffset
    """Confirm offset from which on the records are confirmed; 0 when nothing was stored."""

    refused: Sequence[RefusedRecord]
    queue_ids: Ints | None = None
    """Queue of each record; None when all lie in the queues to which they were sent."""


@dataclass(kw_only=True, slots=True, eq=False)
class MessageWriter:
    """Checks of records against their topics, and their append. Owned by the broker's loop."""

    log: MessageStore
    topics: TopicTable
    """All topics; a send may create one."""

    clock: Clock
    on_appended: Callable[[], None]
    """Called after every append: there is something to flush and to dispatch."""

    on_created: Callable[[], None]
    """Called when a send created a topic; records of that topic may be acknowledged only when the
    table is saved."""

    is_checksummed: bool
    """Stored records end with a checksum."""

    rules: Callable[[], RoutingRules]
    """Returns the present rules for routing to system topics."""

    on_halves: Callable[[Ints, Ints, Ints, Sequence[str]], None]
    """Called when transactions began, with the offsets of their half messages in the log and in the
    half topic's queue, their staging times as in `RoutedBatch`, and their topics."""

    on_delayed: Callable[[str, int], None]
    """Called for each stored message that waits for its time, with its topic and delay, ms."""

    _version: object = field(default=None, init=False)
    _open: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]], init=False)

    def store(
        self, records: bytes, record_sizes: bytes, sender: SenderInfo, *, atomic: bool = False
    ) -> PutResult:
        """Check the records of one request and append the good ones.

        Args:
            records: Records back to back, in store format.
            record_sizes: Lengths of the records, little-endian int32 each.
            sender: Sender of the request.
            atomic: True to store all records together or none of them.

        Raises:
            MessageRefused: The lengths cannot be right, or a record of an `atomic` batch is
                refused; nothing was stored.
            StoreError: The store accepts no record; nothing was stored.
        """
        batch, indexes, refused = self._checked(records, record_sizes, sender)
        if batch is not None:
            permitted = self._permitted(batch, indexes, sender, refused)
            if permitted is None:
                batch = None
            elif len(permitted) < len(batch.queues):
                assert isinstance(batch, RecordBatch), "one record has one queue"
                batch, rows = select_rows(batch, permitted)
                indexes = indexes[rows]
        if atomic:
            _check_atomic(batch, refused, request_bytes=len(records))
        routed: RoutedBatch | None = None
        sent = batch
        if isinstance(batch, RecordBatch) and batch.routed:
            routed = self._routed(batch, indexes, sender, refused)
            batch, indexes = routed.batch, indexes[routed.rows]
        if batch is None:
            nothing = np.full(len(record_sizes) // INT32_BYTES, -1, dtype=np.int64)
            return PutResult(nothing, nothing, 0, PhysicalOffset(0), sorted(refused))
        appended = self.log.append(
            batch, born_host=sender.born_host, store_host=sender.store_host, atomic=atomic
        )
        self.on_appended()
        queue_offsets, physical_offsets = appended.queue_offsets, appended.physical_offsets
        if routed is not None:
            assert sent is not None
            for queue in batch.queues:
                if queue.topic == HALF_TOPIC:
                    rows = queue.rows
                    staged_ms, topics = routed.staged_ms[rows], _topics(sent, routed.rows[rows])
                    self.on_halves(physical_offsets[rows], queue_offsets[rows], staged_ms, topics)
            for topic, delay_ms in routed.delays:
                self.on_delayed(topic, delay_ms)
        if refused:
            count = len(record_sizes) // INT32_BYTES
            queue_offsets = _scatter(queue_offsets, indexes, count)
            physical_offsets = _scatter(physical_offsets, indexes, count)
            refused.sort()
        return PutResult(
            queue_offsets, physical_offsets, appended.stored_at_ms, appended.end, refused
        )

    def _checked(
        self, records: bytes, record_sizes: bytes, sender: SenderInfo
    ) -> tuple[Records | None, Ints, list[RefusedRecord]]:
        """Return the good records of a request, their indexes in it, and the refused ones.

        Raises:
            MessageRefused: The lengths cannot be right.
        """
        born_host_bytes, store_host_bytes = len(sender.born_host), len(sender.store_host)
        if record_sizes == pack_int32(len(records)):
            flags = host_flags(born_host_bytes, store_host_bytes)
            single = read_single(records, flags, is_checksummed=self.is_checksummed)
            if single is not None:
                return single, FIRST_ROW, []
        try:
            checked = check_records(
                records,
                read_int32s(record_sizes),
                born_host_bytes=born_host_bytes,
                store_host_bytes=store_host_bytes,
                is_checksummed=self.is_checksummed,
            )
        except ValueError as error:
            raise refusal(ResponseCode.MESSAGE_ILLEGAL, str(error)) from None
        return checked.batch, checked.indexes, list(checked.refused)

    def _routed(
        self, batch: RecordBatch, indexes: Ints, sender: SenderInfo, refused: list[RefusedRecord]
    ) -> RoutedBatch:
        """Return the batch with its routed rows in their stored forms; append refused rows."""
        rules = self.rules()
        if sender.permits is not EVERYTHING:
            rules = replace(rules, permits=sender.permits)
        done = reroute(batch, rules, store_host=sender.store_host)
        refused += [each._replace(row=int(indexes[each.row])) for each in done.refused]
        return done

    def _permitted(
        self, batch: Records, indexes: Ints, sender: SenderInfo, refused: list[RefusedRecord]
    ) -> Sequence[QueueRows] | None:
        """Return the queues that may be written, None without any; append rows of the others."""
        if self._version is not self.topics.version:
            self._version = self.topics.version
            self._open.clear()
        queues = batch.queues if sender.permits is not EVERYTHING else ()
        topics = dict.fromkeys(each[0] for each in queues)
        denials = {topic: _check_publish(topic, sender) for topic in topics}
        refusals = [
            denials.get(each[0])
            or (None if (each[0], each[1]) in self._open else self._check(each[0], each[1], sender))
            for each in batch.queues
        ]
        if not any(refusals):
            return batch.queues
        permitted: list[QueueRows] = []
        for each, why in zip(batch.queues, refusals, strict=True):
            if why is None:
                permitted.append(each)
            else:
                rows = indexes[each.rows].tolist()
                refused.extend(RefusedRecord(row, why.code, why.remark) for row in rows)
        return permitted or None

    def _check(self, topic: str, queue_id: int, sender: SenderInfo) -> RefusedError | None:
        """Return the refusal of records for a queue; None when the queue may be written."""
        try:
            config = self.find_or_create(topic, sender)
        except RefusedError as error:
            return error
        queues = max(config.read_queues, config.write_queues)
        if not 0 <= queue_id < queues:
            remark = f"topic {topic!r} has queues 0 to {queues - 1}, not {queue_id}"
            return invalid(remark)
        if len(self._open) < _OPEN_QUEUES_MAX and self._version is self.topics.version:
            self._open.add((topic, queue_id))
        return None

    def find_or_create(self, topic: str, sender: SenderInfo) -> TopicConfig:
        """Return the topic that records are sent to, created if need be.

        Raises:
            RefusedError: The topic accepts no records, or cannot be created.
        """
        if is_send_forbidden(topic):
            remark = f"topic {topic!r} belongs to the broker: no message may be sent to it"
            raise refusal(ResponseCode.NO_PERMISSION, remark)
        config = self.topics.get(topic)
        if config is None:
            _check_creation(topic, sender)
            try:
                config = self.topics.create_for_send(
                    topic,
                    template=sender.template,
                    queues=max(0, sender.new_topic_queues),
                    now_ms=self.clock.wall_ms(),
                )
            except IllegalName as error:
                raise invalid(str(error)) from None
            if config is None:
                remark = f"topic {topic!r} does not exist, and a send may not create it"
                raise refusal(ResponseCode.TOPIC_NOT_EXIST, remark)
            logger.info(
                "topic created topic=%s queues=%s by=%s", topic, config.write_queues, "send"
            )
            self.on_created()
        if Permission.WRITE not in config.permissions:
            remark = f"topic {topic!r} may not be written ({config.permissions.text})"
            raise refusal(ResponseCode.NO_PERMISSION, remark)
        return config


def _check_publish(topic: str, sender: SenderInfo) -> RefusedError | None:
    """Return the refusal of records for a topic; None when the sender may publish to it."""
    try:
        sender.permits.check(to_publish(topic, is_reply=sender.is_reply))
    except RefusedError as error:
        return error
    return None


def _check_creation(topic: str, sender: SenderInfo) -> None:
    """Refuse the creation of a topic for a sender without `admin` on it.

    Raises:
        PermissionRefused: Names the topic and the sender.
    """
    try:
        sender.permits.check(to_administer(topic))
    except RefusedError as error:
        remark = f"topic {topic!r} does not exist, and {error.remark}"
        raise refusal(error.code, remark) from None


def _check_atomic(
    batch: Records | None, refused: Sequence[RefusedRecord], *, request_bytes: int
) -> None:
    """Refuse a batch that cannot be stored together.

    Args:
        batch: The good records of the request.
        refused: The other records of the request.
        request_bytes: Length of all records as they were sent.

    Raises:
        RefusedError: A record is refused, delayed or half; the batch is for several queues or for a
            retry topic, or too long.
    """
    if refused:
        row, code, remark = min(refused)
        raise refusal(code, f"message {row} of the batch: {remark}")
    assert batch is not None, "nothing was refused"
    first, *others = batch.queues
    if others:
        raise refusal(ResponseCode.MESSAGE_ILLEGAL, "a batch is for one queue of one topic")
    if first.topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
        raise refusal(ResponseCode.MESSAGE_ILLEGAL, "a batch cannot go to a group's own topic")
    if request_bytes > ATOMIC_BATCH_BYTES_MAX:
        remark = f"a batch has {request_bytes} bytes, at most {ATOMIC_BATCH_BYTES_MAX} fit"
        raise refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
    for row in batch.routed:
        remark = f"message {row} of the batch: a delayed or half message cannot be in a batch"
        raise refusal(ResponseCode.MESSAGE_ILLEGAL, remark)


def _topics(batch: Records, rows: Ints) -> Sequence[str]:
    """Return the topics to which rows of a batch were sent."""
    first, *others = batch.queues
    if not others:
        return [first.topic] * len(rows)
    topics = [""] * len(batch)
    for queue in batch.queues:
        for row in queue.rows.tolist():
            topics[row] = queue.topic
    wanted: list[int] = rows.tolist()
    return [topics[row] for row in wanted]


def _scatter(values: Ints, indexes: Ints, count: int) -> Ints:
    scattered = np.full(count, -1, dtype=np.int64)
    scattered[indexes] = values
    return scattered
