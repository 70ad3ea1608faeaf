"""Rules for offsets that a group commits. Reads the tables, owns nothing.

Source: RocketMQ `ConsumerManageProcessor.updateConsumerOffset`.
"""

from typing import NamedTuple

from ternmq_broker.environment import BrokerEnvironment
from ternmq_broker.state.lock_table import LockTable
from ternmq_model.errors import RefusedError, invalid, refusal
from ternmq_model.names import is_broker_group
from ternmq_model.offsets import QueueOffset
from ternmq_model.response_code import ResponseCode


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
        locks: Locks of queues; None at a slave, where a member may commit messages that it read
            under a lock of the master.
    """

    def __init__(self, env: BrokerEnvironment, locks: LockTable | None) -> None:
        self._store = env.store
        self._topics = env.tables.topics
        self._offsets = env.tables.offsets
        self._locks = locks
        self._clock = env.clock

    def nearest(self, commit: OffsetCommit) -> OffsetCommit:
        """Return the commit of a seek, moved into the range of the queue.

        Negative offsets stay as they are. So do all offsets at a slave, which may lack the end of
        the queue.
        """
        if self._locks is None or commit.offset < 0 or commit.queue_id < 0:
            return commit
        least, _ = self._store.queue_range(commit.topic, commit.queue_id)
        end = self._store.next_offset(commit.topic, commit.queue_id)
        return commit._replace(offset=max(least, min(commit.offset, end)))

    def why_not(self, group: str, commit: OffsetCommit) -> RefusedError | None:
        """Return the refusal of a commit; None when the offset is possible in its queue now."""
        if is_broker_group(group):
            remark = f"group {group!r} belongs to the broker, which stores its own progress there"
            return refusal(ResponseCode.NO_PERMISSION, remark)
        config = self._topics.get(commit.topic)
        if config is None:
            return refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic {commit.topic!r} does not exist")
        queues = max(config.read_queues, config.write_queues)
        if not 0 <= commit.queue_id < queues:
            remark = f"topic {commit.topic!r} has queues 0 to {queues - 1}, not {commit.queue_id}"
            return invalid(remark)
        end = self._store.next_offset(commit.topic, commit.queue_id)
        if not 0 <= commit.offset <= end:
            remark = (
                f"{commit.topic} queue {commit.queue_id} ends at {end}; {commit.offset} is outside"
            )
            return invalid(remark)
        versions = self._offsets.versions
        if not versions.is_believed(group, commit.topic, commit.queue_id, commit.version):
            kept = versions.get(group, commit.topic, commit.queue_id)
            where = f"{commit.topic} queue {commit.queue_id}"
            remark = f"{where}: no version is {commit.version}; {kept} is stored"
            return invalid(remark)
        if self._locks is None:
            return None
        now_ms = self._clock.monotonic_ms()
        return self._locks.check(
            group, commit.topic, commit.queue_id, commit.lock_token, now_ms=now_ms
        )

    def commit_with_pull(self, group: str, commit: OffsetCommit) -> bool:
        """Store an offset that a pull commits; return False for a refused commit.

        A refused commit does not refuse the pull.

        Source: RocketMQ `PullMessageProcessor`.
        """
        if not group or self.why_not(group, commit) is not None:
            return False
        return self._offsets.commit(
            group,
            commit.topic,
            commit.queue_id,
            QueueOffset(commit.offset),
            commit.version,
            now_ms=self._clock.wall_ms(),
        )
