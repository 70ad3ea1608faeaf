"""What a read means to the reader's next one: where to go on, and whom to ask. Reads the tables.

Source: RocketMQ `PullMessageProcessor`.
"""

from collections.abc import Callable

from ternmq_broker.groups import GroupTable
from ternmq_broker.pull_rules import Outcome, outcome_of
from ternmq_broker.pulls.moved_events import MovedEvents, OffsetMoved
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import MASTER_ID
from ternmq_store.message_store import MessageStore
from ternmq_store.reading.reader import ReadRequest, ReadResult


class PullAnswers:
    """Says how reads ended. Owns nothing.

    Args:
        store: What was read.
        groups: Tell who serves a group that is slow.
        events: Told when an offset is corrected.
        slave_read_enabled: Tells whether readers may be sent to slaves.
        is_slave: This broker follows a master.
    """

    def __init__(
        self,
        store: MessageStore,
        groups: GroupTable,
        events: MovedEvents,
        *,
        slave_read_enabled: Callable[[], bool],
        is_slave: bool,
    ) -> None:
        self._store = store
        self._groups = groups
        self._events = events
        self._slave_read_enabled = slave_read_enabled
        self._is_slave = is_slave

    def outcome(self, request: ReadRequest, result: ReadResult) -> Outcome:
        """Return what a read came to; a correction of the group's offset is kept as an event."""
        outcome = outcome_of(
            result.status,
            offset=request.offset,
            next_offset=result.next_offset,
            min_offset=result.min_offset,
            max_offset=result.max_offset,
            end_offset=self._store.next_offset(request.topic, request.queue_id),
            is_slave=self._is_slave,
        )
        if outcome.code is ResponseCode.PULL_OFFSET_MOVED and request.group:
            self._events.add(
                OffsetMoved(
                    request.group,
                    request.topic,
                    request.queue_id,
                    request.offset,
                    outcome.next_offset,
                )
            )
        return outcome

    def is_masters(self, request: ReadRequest, outcome: Outcome) -> bool:
        """Tell whether only the master can answer: this is a slave, and the offset is none here."""
        is_stuck = outcome.next_offset == request.offset
        return self._is_slave and is_stuck and outcome.code is ResponseCode.PULL_RETRY_IMMEDIATELY

    def suggested_broker_id(self, group: str, *, is_far_behind: bool) -> int:
        """Return which member of the broker name is to be asked next.

        Args:
            group: Who reads.
            is_far_behind: What it read last is no longer in memory here.
        """
        if not self._slave_read_enabled():
            return MASTER_ID
        settings = self._groups.get(group)
        if is_far_behind:
            return 1 if settings is None else settings.broker_id_when_slow
        return MASTER_ID if settings is None else settings.broker_id
