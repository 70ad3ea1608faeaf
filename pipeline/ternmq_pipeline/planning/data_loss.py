"""Data loss: messages that a read needs and that no broker has. Pure."""

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
    """Messages of a read are gone, and `failOnDataLoss` is true.

    Attributes:
        losses: Losses of the queues.
    """

    fault = Fault.BROKER

    def __init__(self, losses: Sequence[QueueLoss]) -> None:
        listed = "\n  ".join(map(str, losses[:LISTED_MAX]))
        rest = len(losses) - LISTED_MAX
        more = f"\n  and {rest} queues more" if rest > 0 else ""
        super().__init__(
            f"messages that were to be read are gone: {listed}{more}\n"
            "Option failOnDataLoss=false reads on with what is there."
        )
        self.losses = tuple(losses)


class DataLossCheck:
    """Collects the losses of one plan and decides whether the plan may go on."""

    def __init__(self, *, fail: bool) -> None:
        self._fail = fail
        self._found: list[QueueLoss] = []

    def add(self, queue: MessageQueue, reason: str) -> None:
        """Record a loss."""
        self._found.append(QueueLoss(queue, reason))

    def warnings(self) -> list[str]:
        """Return a warning for each loss.

        Raises:
            DataLost: There is a loss, and losses are errors.
        """
        if self._fail and self._found:
            raise DataLost(self._found)
        return [str(loss) for loss in self._found]


def no_longer_kept(begin: int, end: int, first: int) -> str:
    """Return the reason of a queue whose retention deleted offsets `begin` to `end` - 1."""
    return f"offsets {begin} to {end - 1} are no longer kept, it begins with {first} now"


def beyond_end(wanted: int, end: int) -> str:
    """Return the reason of a queue that ends before offset `wanted`."""
    return (
        f"offset {wanted} is beyond its end, which is {end}: "
        "the topic was deleted, or recreated, or the broker has lost the end of its log"
    )


def damaged_among(begin: int, end: int, count: int) -> str:
    """Return the reason of a queue with `count` damaged messages from `begin` to `end` - 1."""
    return f"of offsets {begin} to {end - 1}, {count} are damaged and not served by the broker"


def gone(wanted: int, *, broker_is_registered: bool) -> str:
    """Return the reason of a queue that no broker has."""
    if broker_is_registered:
        return f"it does not exist any more; offset {wanted} was to come next"
    return f"its broker is no longer registered; offset {wanted} was to come next"


def topic_gone(wanted: int, remark: str) -> str:
    """Return the reason of a queue whose broker no longer has the topic."""
    return f"{remark}; offset {wanted} was to come next"


def another_store(wanted: int) -> str:
    """Return the reason of a queue whose broker has another store than before."""
    return (
        f"its broker holds another store than the one that was read, of which offset {wanted} was "
        "to come next: it is of another cluster, or has begun with an empty directory"
    )


def created_again(wanted: int) -> str:
    """Return the reason of a queue whose topic was created again."""
    return (
        f"its topic was deleted and created again; offset {wanted} of the one before was to come "
        "next"
    )


class ReplacedQueues(NamedTuple):
    """Queues with offsets of a former store or a former topic of their broker."""

    queues: frozenset[MessageQueue]
    """Queues without a read message in the present store and topic."""

    warnings: list[str]


def replaced(
    offsets: Offsets,
    stores: Mapping[str, str],
    created: Mapping[tuple[str, str], int],
    snapshot: ClusterSnapshot,
    *,
    fail_on_data_loss: bool,
) -> ReplacedQueues:
    """Return the queues of `offsets` whose broker now has another store or topic.

    Args:
        offsets: Offset of the next message of each queue.
        stores: Ids of the stores of `offsets`, by broker; brokers may be missing.
        created: Creation of the topics of `offsets`, as in `ClusterSnapshot.created`; topics may be
            missing. A lower creation in the snapshot means the same topic: the broker lost the
            number, or is a slave. A topic with all queues at 0 has no read message.
        snapshot: Present state of the cluster.
        fail_on_data_loss: True = such a queue is an error.

    Raises:
        DataLost: There is such a queue, and `fail_on_data_loss` is true.
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

    A queue that ends before `wanted` and begins with offset 0 is a new queue and is read from its
    first message. Any other queue that ends before `wanted` is read from its end, because its new
    messages are unknown.

    Args:
        queue: Queue of the read.
        wanted: Planned next offset.
        snapshot: Present state of the cluster.
        losses: Collects the losses.

    Returns:
        None for a queue that no longer exists. A queue of an unregistered broker keeps its offset:
        the broker may return.
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
