"""Rules for offsets that a group commits. Reads the tables, owns nothing.

Source: RocketMQ `ConsumerManageProcessor.updateConsumerOffset`.
"""

from typing import NamedTuple

from ternmq_broker.state.lock_table import LockTable
from ternmq_broker.state.offsets import OffsetTable
from ternmq_broker.state.topics import TopicTable
from ternmq_model.clock import Clock
from ternmq_model.errors import RefusedError, refusal
from ternmq_model.names import is_broker_group
from ternmq_model.offsets import QueueOffset
from ternmq_model.response_code import ResponseCode
from ternmq_store.message_store import MessageStore


class OffsetCommit(NamedTuple):
    """Commit of the offset of one queue."""

    topic: str
    queue_id: int
    offset: int
    version: int
    lock_token: int = 0


class OffsetRules:
    """Rules for the offsets of a queue and for their committers.

    Args:
        store: Has the queues.
        topics: Say which there are.
        offsets: What is kept.
        locks: Whose the queues are; None at a slave, which knows of no locks: who read while it had
            one may commit what it finished.
        clock: For the locks' leases, and for what changes.
    """

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        offsets: OffsetTable,
        locks: LockTable | None,
        clock: Clock,
    ) -> None:
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._locks = locks
        self._clock = clock

    def nearest(self, told: OffsetCommit) -> OffsetCommit:
        """Return what a seek sets: the nearest end of the queue, when `told` lies outside it.

        A slave, which may not have the end of the queue yet, and a negative offset correct nothing.
        """
        if self._locks is None or told.offset < 0 or told.queue_id < 0:
            return told
        least, _ = self._store.queue_range(told.topic, told.queue_id)
        end = self._store.next_offset(told.topic, told.queue_id)
        return told._replace(offset=max(least, min(told.offset, end)))

    def why_not(self, group: str, told: OffsetCommit) -> RefusedError | None:
        """Return why an offset cannot be one of its queue now; None when it can."""
        if is_broker_group(group):
            remark = f"group {group!r} belongs to the broker: it keeps its own progress there"
            return refusal(ResponseCode.NO_PERMISSION, remark)
        config = self._topics.get(told.topic)
        if config is None:
            return refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic {told.topic!r} does not exist")
        queues = max(config.read_queues, config.write_queues)
        if not 0 <= told.queue_id < queues:
            remark = f"topic {told.topic!r} has queues 0 to {queues - 1}, not {told.queue_id}"
            return refusal(ResponseCode.INVALID_PARAMETER, remark)
        end = self._store.next_offset(told.topic, told.queue_id)
        if not 0 <= told.offset <= end:
            remark = f"{told.topic} queue {told.queue_id} ends at {end}; {told.offset} is outside"
            return refusal(ResponseCode.INVALID_PARAMETER, remark)
        versions = self._offsets.versions
        if not versions.is_believed(group, told.topic, told.queue_id, told.version):
            kept = versions.get(group, told.topic, told.queue_id)
            remark = (
                f"{told.topic} queue {told.queue_id}: no version is {told.version}; {kept} is kept"
            )
            return refusal(ResponseCode.INVALID_PARAMETER, remark)
        if self._locks is None:
            return None
        now_ms = self._clock.monotonic_ms()
        return self._locks.check(group, told.topic, told.queue_id, told.lock_token, now_ms=now_ms)

    def commit_with_pull(self, group: str, told: OffsetCommit) -> bool:
        """Keep what a pull commits, and return whether it is kept.

        What cannot be kept does not keep the reader from its messages.

        Source: RocketMQ `PullMessageProcessor`.
        """
        if not group or self.why_not(group, told) is not None:
            return False
        return self._offsets.commit(
            group,
            told.topic,
            told.queue_id,
            QueueOffset(told.offset),
            told.version,
            now_ms=self._clock.wall_ms(),
        )
