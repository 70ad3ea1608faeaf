"""Messages that were to be read and are no longer there. Pure."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ternmq_model.errors import Fault, TernError
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_pipeline.offsets import Offsets
from ternmq_pipeline.planning.snapshot import ClusterSnapshot

if TYPE_CHECKING:
    from ternmq_consumer.offsets.offset_lookup import QueueRange

LISTED_MAX: Final = 10
"""Most queues that one error lists."""


class QueueLoss(NamedTuple):
    """Loss of messages of one queue."""

    queue: MessageQueue
    reason: str

    def __str__(self) -> str:
        topic, broker_name, queue_id = self.queue
        return f"topic {topic}, broker {broker_name}, queue {queue_id}: {self.reason}"


class DataLost(TernError):
    """Messages that were to be read are gone, and the read may not go on without them.

    Attributes:
        losses: What each queue has lost.
    """

    fault = Fault.BROKER

    def __init__(self, losses: Sequence[QueueLoss]) -> None:
        told = "\n  ".join(map(str, losses[:LISTED_MAX]))
        rest = len(losses) - LISTED_MAX
        more = f"\n  and {rest} queues more" if rest > 0 else ""
        super().__init__(
            f"messages that were to be read are gone: {told}{more}\n"
            "Option failOnDataLoss=false reads on with what is there."
        )
        self.losses = tuple(losses)


class DataLossCheck:
    """Collects what was lost during one planning, and decides whether it may go on.

    Args:
        fail: The option failOnDataLoss.
    """

    def __init__(self, *, fail: bool) -> None:
        self._fail = fail
        self._found: list[QueueLoss] = []

    def add(self, queue: MessageQueue, reason: str) -> None:
        """Record a loss."""
        self._found.append(QueueLoss(queue, reason))

    def warnings(self) -> list[str]:
        """Return a warning for each loss.

        Raises:
            DataLost: Something was lost, and that is an error.
        """
        if self._fail and self._found:
            raise DataLost(self._found)
        return [str(loss) for loss in self._found]


def no_longer_kept(begin: int, end: int, first: int) -> str:
    """Return the reason of a queue that has let go messages `begin` up to, without, `end`."""
    return f"offsets {begin} to {end - 1} are no longer kept, it begins with {first} now"


def beyond_end(wanted: int, end: int) -> str:
    """Return the reason of a queue that ends before what was read, or is to be read, of it."""
    return (
        f"offset {wanted} is beyond its end, which is {end}: "
        "the topic was deleted, or made anew, or the broker has lost the end of its log"
    )


def damaged_among(begin: int, end: int, count: int) -> str:
    """Return the reason of a queue of whose messages `begin` up to, without, `end` some are bad."""
    return f"of offsets {begin} to {end - 1}, {count} are damaged and not given by the broker"


def gone(wanted: int, *, broker_is_registered: bool) -> str:
    """Return the reason of a queue that is not there at all."""
    if broker_is_registered:
        return f"it does not exist any more; offset {wanted} was to come next"
    return f"its broker is no longer registered; offset {wanted} was to come next"


def topic_gone(wanted: int, remark: str) -> str:
    """Return the reason of a queue whose broker says that it does not have the topic any more."""
    return f"{remark}; offset {wanted} was to come next"


def another_store(wanted: int) -> str:
    """Return the reason of a queue whose broker holds other messages than those that were read."""
    return (
        f"its broker holds another store than the one that was read, of which offset {wanted} was "
        "to come next: it is of another cluster, or has begun with an empty directory"
    )


def created_again(wanted: int) -> str:
    """Return the reason of a queue whose topic is another one than the one that was read."""
    return (
        f"its topic was deleted and created again; offset {wanted} of the one before was to come "
        "next"
    )


class ReplacedQueues(NamedTuple):
    """Queues whose offsets are those of a store or of a topic that their broker does not have."""

    queues: frozenset[MessageQueue]
    """Queues of which no present message was read."""

    warnings: list[str]


def replaced(
    offsets: Offsets,
    stores: Mapping[str, str],
    created: Mapping[tuple[str, str], int],
    snapshot: ClusterSnapshot,
    *,
    fail_on_data_loss: bool,
) -> ReplacedQueues:
    """Return the queues of `offsets` whose broker holds another store or topic by now.

    Args:
        offsets: The next message of each queue.
        stores: Whose offsets these are, by broker; nothing is known of brokers that are not there.
        created: When their topics were created, as `ClusterSnapshot.created`; likewise. One that is
            lower by now is the same topic: its broker has lost what it had noted, or is a slave. Of
            a topic whose queues are all at 0, nothing was read.
        snapshot: What there is.
        fail_on_data_loss: Whether that is an error.

    Raises:
        DataLost: There is such a queue, and that is an error.
    """
    now = snapshot.stores
    others = {name for name in stores.keys() & now.keys() if stores[name] != now[name]}
    read = {(queue.topic, queue.broker_name) for queue in offsets if offsets[queue]}
    topics = read & created.keys() & snapshot.created.keys()
    again = {topic for topic in topics if snapshot.created[topic] > created[topic]}
    found: set[MessageQueue] = set()
    losses = DataLossCheck(fail=fail_on_data_loss)
    for queue in sorted(offsets):
        if queue.broker_name in others:
            losses.add(queue, another_store(offsets[queue]))
        elif (queue.topic, queue.broker_name) in again:
            losses.add(queue, created_again(offsets[queue]))
        else:
            continue
        found.add(queue)
    return ReplacedQueues(frozenset(found), losses.warnings())


def resume_offset(
    queue: MessageQueue, wanted: QueueOffset, snapshot: ClusterSnapshot, losses: DataLossCheck
) -> QueueOffset | None:
    """Return the next offset to read of `queue`, whose planned next offset is `wanted`.

    A queue that ends before that is read from its first message when that is message 0, since it
    is a new one then; else nothing tells which messages are new, and it is read from its end.

    Args:
        queue: Which one.
        wanted: Its next message.
        snapshot: What there is.
        losses: Gets what is lost.

    Returns:
        None for a queue that does not exist any more. One whose broker is not registered stays
        where it is: the broker may return.
    """
    there: QueueRange | None = snapshot.ranges.get(queue)
    if there is None:
        is_registered = queue.broker_name in snapshot.brokers
        losses.add(queue, gone(wanted, broker_is_registered=is_registered))
        return None if is_registered else wanted
    if queue.broker_name in snapshot.answered_by_slave:
        return wanted
    if wanted < there.begin:
        losses.add(queue, no_longer_kept(wanted, there.begin, there.begin))
        return there.begin
    if wanted > there.end:
        losses.add(queue, beyond_end(wanted, there.end))
        return there.begin if there.begin == 0 else there.end
    return wanted
