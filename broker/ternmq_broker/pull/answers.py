"""Answers to pulls: the next offset, and the broker for the next pull. Reads the tables.

Source: RocketMQ `PullMessageProcessor`.
"""

from dataclasses import dataclass

from ternmq_broker.live_settings import LiveSettings
from ternmq_broker.pull.offset_moved import OffsetMovedEvent, OffsetMovedPublisher
from ternmq_broker.pull.rules import PullOutcome, outcome_of
from ternmq_broker.replication.role.membership import ReplicaView
from ternmq_broker.state.epochs import ended_at
from ternmq_broker.state.groups import GroupTable
from ternmq_broker.state.offsets import OffsetTable
from ternmq_model.offsets import QueueOffset
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import MASTER_ID
from ternmq_store.message_store import MessageStore
from ternmq_store.queues.read_request import ReadRequest, ReadResult


@dataclass(frozen=True, slots=True)
class PullAnswers:
    """Outcomes of reads. Owns nothing."""

    store: MessageStore
    groups: GroupTable
    offsets: OffsetTable
    events: OffsetMovedPublisher
    replica_view: ReplicaView
    live: LiveSettings
    """Settings of reads from slaves."""

    def goes_on_at(
        self, group: str, topic: str, queue_id: int, offset: QueueOffset, epoch: int
    ) -> QueueOffset | None:
        """Return the next offset of a reader that learnt its offset in an epoch which is over.

        The log may have lost messages since, and other messages may have their offsets by now.

        Args:
            group: Group of the reader; may be empty.
            topic: Topic of the queue.
            queue_id: Number of the queue.
            offset: Offset from which the reader would read.
            epoch: Epoch in which the reader learnt `offset`; 0 = not known.

        Returns:
            The offset of the first later message, when `offset` lies behind that; None = `offset`
            is good, or this slave does not have the end of that epoch yet.
        """
        epoch_end = ended_at(self.replica_view.epochs, epoch) if epoch else None
        if epoch_end is None:
            return None
        if self.replica_view.is_slave and epoch_end > self.store.dispatched_offset:
            return None
        first = self.store.searches.first_from(topic, queue_id, epoch_end)
        if offset <= first:
            return None
        self._note(group, topic, queue_id, offset, first)
        return first

    def outcome(
        self, request: ReadRequest, result: ReadResult, *, is_chosen: bool = False
    ) -> PullOutcome:
        """Return the outcome of a read; a correction of the group's offset becomes an event.

        Args:
            request: Request of the read.
            result: Result of the read.
            is_chosen: The reader chose the offset, and has not reached it by reading.
        """
        group_offset = self.offsets.query(request.group, request.topic, request.queue_id)
        outcome = outcome_of(
            result.status,
            offset=request.offset,
            next_offset=result.next_offset,
            min_offset=result.min_offset,
            max_offset=result.max_offset,
            end_offset=self.store.next_offset(request.topic, request.queue_id),
            group_offset=group_offset,
            is_chosen=is_chosen,
            is_slave=self.replica_view.is_slave and not self.live.broker.slave_offset_check_enabled,
        )
        if outcome.code is ResponseCode.PULL_OFFSET_MOVED:
            self._note(
                request.group,
                request.topic,
                request.queue_id,
                request.offset,
                outcome.next_offset,
            )
        return outcome

    def _note(
        self, group: str, topic: str, queue_id: int, offset: QueueOffset, moved_to: QueueOffset
    ) -> None:
        # A slave stores nothing by itself.
        if group and not self.replica_view.is_slave:
            self.events.add(OffsetMovedEvent(group, topic, queue_id, offset, moved_to))

    def is_masters(self, request: ReadRequest, outcome: PullOutcome) -> bool:
        """Return whether only the master can answer: a slave does not have the offset."""
        is_stuck = outcome.next_offset == request.offset
        is_refused = outcome.code is ResponseCode.PULL_RETRY_IMMEDIATELY
        return self.replica_view.is_slave and is_stuck and is_refused

    def suggested_broker_id(self, group: str, *, is_far_behind: bool) -> int:
        """Return the id of the broker that should serve the reader's next pull.

        Args:
            group: Group of the reader.
            is_far_behind: The messages last read are no longer in memory here.
        """
        if not self.live.broker.slave_read_enabled:
            return MASTER_ID
        settings = self.groups.get(group)
        if is_far_behind:
            broker_id = 1 if settings is None else settings.broker_id_when_slow
            if self.replica_view.is_slave:
                return self.replica_view.broker_id
        else:
            broker_id = MASTER_ID if settings is None else settings.broker_id
        return broker_id if self.replica_view.is_slave else self._there(broker_id)

    def _there(self, broker_id: int) -> int:
        """Return the id of a connected member; else of any slave; without slaves the master's."""
        slaves = self.replica_view.slaves()
        if broker_id == MASTER_ID or broker_id in slaves:
            return broker_id
        return min(slaves, default=MASTER_ID)
