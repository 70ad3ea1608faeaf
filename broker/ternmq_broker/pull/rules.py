"""Rules of pulls: the checks of a request, and the outcome of a read. Pure.

Source: RocketMQ `PullMessageProcessor`, `DefaultMessageStore.getMessage`.
"""

from typing import Final, NamedTuple

from ternmq_broker.groups.filters.filter_rules import FilterRules
from ternmq_broker.state.clients import ClientTable
from ternmq_broker.state.groups import GroupTable
from ternmq_broker.state.topics import TopicTable
from ternmq_model.errors import RefusedError, created_again, invalid, refusal
from ternmq_model.names import check_topic, is_read_forbidden
from ternmq_model.offsets import QueueOffset
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import Permission
from ternmq_model.subscription import Subscription
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_store.queues.read_request import ReadStatus


class PullOutcome(NamedTuple):
    """Outcome of a read: a response code and the next offset."""

    code: ResponseCode
    next_offset: QueueOffset


_CODES: Final = {
    ReadStatus.FOUND: ResponseCode.SUCCESS,
    ReadStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    ReadStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    ReadStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}
"""Response codes by status; `outcome_of` has the others: empty queues, and offsets far beyond the
end."""


def outcome_of(
    status: ReadStatus,
    *,
    offset: QueueOffset,
    next_offset: QueueOffset,
    min_offset: QueueOffset,
    max_offset: QueueOffset,
    end_offset: QueueOffset,
    group_offset: QueueOffset | None = None,
    is_chosen: bool = False,
    is_slave: bool = False,
) -> PullOutcome:
    """Return the answer to a read at `offset`.

    Args:
        status: Status of the read.
        offset: Offset of the request.
        next_offset: Next offset by the store.
        min_offset: Offset of the queue's oldest message.
        max_offset: End of the readable part of the queue.
        end_offset: End of the appended part: a sender may know offsets up to there before readers
            can read them, so they are not beyond the end.
        group_offset: Committed offset of the group, at which a reader goes on after its queue lost
            messages. None = no group, or no committed offset: the reader goes on at the beginning.
        is_chosen: The reader chose the offset, and has not reached it by reading: it goes on at the
            queue's nearest end.
        is_slave: The broker follows a master, which alone knows the queue's beginning and end: the
            reader is to ask the master at once.

    Source: RocketMQ `PullMessageProcessor.composeResponseHeader`. An offset far beyond the end is
    corrected as by version 5 when it was chosen; as by version 4, which goes to 0 in a queue that
    begins there, when it was reached by reading.
    """
    if offset > max_offset and offset <= end_offset:
        return PullOutcome(ResponseCode.PULL_NOT_FOUND, offset)
    if status is ReadStatus.OFFSET_OVERFLOW_BADLY:
        goes_on_at = max_offset if is_chosen else min(group_offset or min_offset, max_offset)
        outcome = PullOutcome(ResponseCode.PULL_OFFSET_MOVED, max(goes_on_at, min_offset))
    elif status in (ReadStatus.NO_MATCHED_LOGIC_QUEUE, ReadStatus.NO_MESSAGE_IN_QUEUE):
        code = ResponseCode.PULL_OFFSET_MOVED if offset else ResponseCode.PULL_NOT_FOUND
        outcome = PullOutcome(code, QueueOffset(0))
    else:
        outcome = PullOutcome(_CODES[status], next_offset)
    if is_slave and outcome.code is ResponseCode.PULL_OFFSET_MOVED:
        return PullOutcome(ResponseCode.PULL_RETRY_IMMEDIATELY, offset)
    return outcome


class PullRules:
    """Checks of pulls, in RocketMQ's order. Reads the tables.

    Attributes:
        filters: Rules of filters.
    """

    def __init__(
        self, topics: TopicTable, groups: GroupTable, clients: ClientTable, filters: FilterRules
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._seen = (topics.version, groups.version)
        self.filters = filters

    @property
    def version(self) -> object:
        """Version of topics and groups: another object after any change."""
        topics, groups = self._topics.version, self._groups.version
        if topics is not self._seen[0] or groups is not self._seen[1]:
            self._seen = (topics, groups)
        return self._seen

    def check_group(self, group: str, *, now_ms: int) -> None:
        """Refuse a group that may not consume; the first use of a group creates its settings.

        A reader with a subscription of its own that commits nothing needs no group.

        Raises:
            IllegalName: The name is illegal.
            RefusedError: The group may not consume.
        """
        if group and not self._groups.use(group, now_ms=now_ms).consume_enabled:
            raise refusal(ResponseCode.NO_PERMISSION, f"group {group!r} may not consume")

    def check_reader(self, group: str) -> None:
        """Refuse a group that may not consume any more.

        Raises:
            RefusedError: The group may not consume.
        """
        known = self._groups.get(group)
        if known is not None and not known.consume_enabled:
            raise refusal(ResponseCode.NO_PERMISSION, f"group {group!r} may not consume")

    def check_created(self, topic: str, log_offset: int) -> None:
        """Refuse a topic that was created behind `log_offset`, where its reader knows it from.

        Raises:
            RefusedError: The topic was deleted and created again since.
        """
        if self._topics.created(topic).log_offset > log_offset:
            raise created_again(topic)

    def check_queue(self, topic: str, queue_id: int) -> None:
        """Refuse a queue that may not be read.

        Raises:
            IllegalName: The topic's name is illegal.
            RefusedError: The topic or queue does not exist, or may not be read.
        """
        config = self._topics.get(topic)
        if config is None:
            check_topic(topic)
            raise no_topic(topic)
        if is_read_forbidden(topic):
            remark = f"topic {topic!r} belongs to the broker: no consumer may read it"
            raise refusal(ResponseCode.NO_PERMISSION, remark)
        if Permission.READ not in config.permissions:
            remark = f"topic {topic!r} may not be read ({config.permissions.text})"
            raise refusal(ResponseCode.NO_PERMISSION, remark)
        if not 0 <= queue_id < config.read_queues:
            remark = f"topic {topic!r} has queues 0 to {config.read_queues - 1}, not {queue_id}"
            raise invalid(remark)

    def subscription(
        self, group: str, topic: str, given: messages.Subscription | None, *, version_ms: int = 0
    ) -> Subscription:
        """Return the subscription of the request, else that of the group's members.

        Args:
            group: Group of the reader.
            topic: Topic of the subscription.
            given: Subscription of the request; None = the group's.
            version_ms: Least version of the group's subscription; 0 = any.

        Raises:
            RefusedError: No subscription, or only one of an older version; the expression cannot be
                parsed; or the group's members may not broadcast and do.
        """
        members = self._clients.members(group)
        if members and members[0].memberships[group].is_broadcasting:
            settings = self._groups.get(group)
            if settings is not None and not settings.broadcast_enabled:
                raise refusal(ResponseCode.NO_PERMISSION, f"group {group!r} may not broadcast")
        if given is not None:
            return self.filters.subscription_of(topic, given)
        if not members:
            remark = f"group {group!r} has no member here, and the pull no subscription"
            raise refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        known = self._clients.subscription(group, topic)
        if known is None:
            remark = f"group {group!r} has not subscribed to {topic!r}"
            raise refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        if known.version_ms < version_ms:
            remark = f"group {group!r} has version {known.version_ms} of its subscription to "
            remark += f"{topic!r} here, not yet {version_ms}"
            raise refusal(ResponseCode.SUBSCRIPTION_NOT_LATEST, remark)
        self.filters.check_registered(group, known)
        return known


def no_topic(topic: str) -> RefusedError:
    """Return the refusal for a topic that does not exist or was deleted."""
    return refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic {topic!r} does not exist")
