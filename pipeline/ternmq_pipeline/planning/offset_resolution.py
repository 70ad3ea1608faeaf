"""Offsets of the positions that options name, for each queue. Pure."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from ternmq_model.errors import UsageError
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_pipeline.offsets import EARLIEST, LATEST
from ternmq_pipeline.options.positions import (
    AtOffsets,
    AtTime,
    AtTimes,
    Position,
    QueueEnd,
    TimeStrategy,
)
from ternmq_pipeline.planning.data_loss import LISTED_MAX, DataLossCheck, beyond_end, no_longer_kept
from ternmq_pipeline.planning.snapshot import ClusterSnapshot

if TYPE_CHECKING:
    from ternmq_consumer.offsets.offset_lookup import QueueRange

STARTING: Final = "starting"
ENDING: Final = "ending"


class ResolvedOffsets(NamedTuple):
    """Offsets of a position in each queue, and warnings."""

    offsets: dict[MessageQueue, QueueOffset]
    warnings: list[str]


def times_of(position: Position, snapshot: ClusterSnapshot) -> dict[MessageQueue, int]:
    """Return the times that the cluster must resolve; empty for positions without times."""
    if isinstance(position, AtTime):
        return dict.fromkeys(snapshot.ranges, position.at_ms)
    if isinstance(position, AtTimes):
        return {
            queue: at_ms for queue, at_ms in position.times_ms.items() if queue in snapshot.ranges
        }
    return {}


def starting_offsets(
    position: Position,
    snapshot: ClusterSnapshot,
    at_times: Mapping[MessageQueue, QueueOffset],
    *,
    strategy: TimeStrategy = TimeStrategy.ERROR,
    fail_on_data_loss: bool = True,
) -> ResolvedOffsets:
    """Return the offset of the first message to read of each queue.

    Args:
        position: Position that the options name.
        snapshot: Present state of the cluster.
        at_times: Offset of the first message stored at each time of `times_of` or later; the
            queue's end if all messages are older.
        strategy: Treatment of a queue whose messages are all older.
        fail_on_data_loss: True = an offset outside the queue is an error; False = the nearest
            offset of the queue is taken.

    Raises:
        UsageError: A topic or queue does not exist, or the position omits a queue, or a queue has
            no message as late as its time.
        DataLost: An offset is outside its queue, and `fail_on_data_loss` is true.
    """
    refuse_missing(snapshot)
    if isinstance(position, QueueEnd | AtOffsets):
        return _untimed(position, snapshot, STARTING, fail=fail_on_data_loss)
    _refuse_unnamed(position, snapshot, STARTING)
    offsets: dict[MessageQueue, QueueOffset] = {}
    for queue, there in snapshot.ranges.items():
        offset = at_times[queue]
        if offset >= there.end and strategy is TimeStrategy.ERROR:
            raise UsageError(_too_late(position, queue))
        # Messages may have come or gone between the two requests.
        offsets[queue] = QueueOffset(min(max(offset, there.begin), there.end))
    return ResolvedOffsets(offsets, [])


def ending_offsets(
    position: Position,
    snapshot: ClusterSnapshot,
    at_times: Mapping[MessageQueue, QueueOffset],
    *,
    fail_on_data_loss: bool = True,
) -> ResolvedOffsets:
    """Return the offset behind the last message of a batch in each queue.

    Args:
        position: Position that the options name.
        snapshot: Present state of the cluster.
        at_times: Offsets by time, see `starting_offsets`.
        fail_on_data_loss: True = an offset outside the queue is an error; False = the nearest
            offset of the queue is taken.

    Raises:
        UsageError: A topic or queue does not exist, or the position omits a queue.
        DataLost: An offset is outside its queue, and `fail_on_data_loss` is true.
    """
    refuse_missing(snapshot)
    if isinstance(position, QueueEnd | AtOffsets):
        return _untimed(position, snapshot, ENDING, fail=fail_on_data_loss)
    _refuse_unnamed(position, snapshot, ENDING)
    offsets: dict[MessageQueue, QueueOffset] = {}
    for queue, there in snapshot.ranges.items():
        offsets[queue] = QueueOffset(min(at_times[queue], there.end))
    return ResolvedOffsets(offsets, [])


def refuse_missing(snapshot: ClusterSnapshot) -> None:
    """Refuse to begin without a topic or queue that an option names.

    Raises:
        UsageError: No broker has one of them.
    """
    if snapshot.missing:
        raise UsageError(f"no broker has {_listed(sorted(snapshot.missing))}")


def refuse_backwards(
    start: Mapping[MessageQueue, QueueOffset], end: Mapping[MessageQueue, QueueOffset]
) -> None:
    """Refuse a batch that ends before it begins.

    Raises:
        UsageError: A queue's end lies before its begin.
    """
    for queue in sorted(start.keys() & end.keys()):
        if start[queue] > end[queue]:
            raise UsageError(
                f"{queue}: the batch begins with offset {start[queue]} and ends before "
                f"{end[queue]}: see the options of starting and ending offsets and times"
            )


def _untimed(
    position: QueueEnd | AtOffsets, snapshot: ClusterSnapshot, kind: str, *, fail: bool
) -> ResolvedOffsets:
    """Return the offsets of a position without times."""
    if isinstance(position, QueueEnd):
        is_begin = position is QueueEnd.EARLIEST
        ranges = snapshot.ranges.items()
        return ResolvedOffsets(
            {queue: one.begin if is_begin else one.end for queue, one in ranges}, []
        )
    _refuse_unnamed(position, snapshot, kind)
    losses = DataLossCheck(fail=fail)
    offsets: dict[MessageQueue, QueueOffset] = {}
    for queue, there in snapshot.ranges.items():
        wanted = position.offsets[queue]
        offsets[queue] = _nearest(queue, wanted, there, snapshot, losses)
    return ResolvedOffsets(offsets, losses.warnings())


def _nearest(
    queue: MessageQueue,
    wanted: int,
    there: "QueueRange",
    snapshot: ClusterSnapshot,
    losses: DataLossCheck,
) -> QueueOffset:
    if wanted == EARLIEST:
        return there.begin
    if wanted == LATEST:
        return there.end
    if queue.broker_name in snapshot.answered_by_slave:
        return QueueOffset(wanted)
    if wanted < there.begin:
        losses.add(queue, no_longer_kept(wanted, there.begin, there.begin))
        return there.begin
    if wanted > there.end:
        losses.add(queue, beyond_end(wanted, there.end))
        return there.end
    return QueueOffset(wanted)


def _refuse_unnamed(
    position: AtTime | AtTimes | AtOffsets, snapshot: ClusterSnapshot, kind: str
) -> None:
    """Refuse positions that omit a queue or name a missing one: such a mistake loses data."""
    if isinstance(position, AtTime):
        return
    if isinstance(position, AtTimes):
        named, option = position.times_ms.keys(), f"{kind}OffsetsByTimestamp"
        hint = ""
    else:
        named, option = position.offsets.keys(), f"{kind}Offsets"
        hint = f" ({EARLIEST} = earliest, {LATEST} = latest)"
    there = snapshot.ranges.keys()
    if unnamed := sorted(there - named):
        raise UsageError(
            f"{option}: must name every queue that is read, {_listed(unnamed)} too{hint}"
        )
    if unknown := sorted(named - there):
        raise UsageError(f"{option}: there is no queue {_listed(unknown)}")


def _too_late(position: AtTime | AtTimes, queue: MessageQueue) -> str:
    if isinstance(position, AtTime):
        option, at_ms = "startingTimestamp", position.at_ms
    else:
        option, at_ms = "startingOffsetsByTimestamp", position.times_ms[queue]
    return (
        f"{option}: {queue} has no message that was stored at {at_ms} or later; "
        "startingOffsetsByTimestampStrategy=latest begins at its end"
    )


def _listed(things: Iterable[object]) -> str:
    texts = [str(thing) for thing in things]
    more = f" and {len(texts) - LISTED_MAX} more" if len(texts) > LISTED_MAX else ""
    return ", ".join(texts[:LISTED_MAX]) + more
