"""Admission control: the end of a stream's next batch. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_pipeline.offsets import OffsetRange, Offsets
from ternmq_pipeline.planning.apportionment import apportion
from ternmq_pipeline.planning.data_loss import DataLossCheck, resume_offset
from ternmq_pipeline.planning.snapshot import ClusterSnapshot

if TYPE_CHECKING:
    from ternmq_pipeline.options.source_options import TriggerLimits


class RangeSize(NamedTuple):
    """Bytes of the messages from a range's begin to `end`."""

    end: int
    """Offset behind the last counted message."""

    bytes: int


MeasureRanges: TypeAlias = Callable[[Sequence[tuple[OffsetRange, int]]], Sequence[RangeSize]]
"""Measures ranges, each up to the message that reaches its number of bytes."""


class AdmittedOffsets(NamedTuple):
    """Offsets at which a batch ends, and warnings."""

    end: dict[MessageQueue, QueueOffset]
    """End of each queue. An end equal to the start means an empty batch."""

    warnings: list[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class TriggerState:
    """State of a stream at a trigger, besides its offsets."""

    waited_ms: int = 0
    """Time since the last batch or since the begin of the stream, ms."""

    turn: int = 0
    """Number of earlier batches. It decides the first queue of a batch."""

    targets: Offsets | None = None
    """Ends of a stream that reads only the messages available at its start. None = no end."""

    all_available: bool = False
    """The batch reads all available messages and ignores the limits."""


def targets_of(snapshot: ClusterSnapshot) -> dict[MessageQueue, QueueOffset]:
    """Return the present end of each queue as the targets of a stream."""
    return {queue: there.end for queue, there in snapshot.ranges.items()}


def admit(
    start: Offsets,
    snapshot: ClusterSnapshot,
    limits: "TriggerLimits",
    *,
    trigger: TriggerState,
    measure: MeasureRanges,
    fail_on_data_loss: bool = True,
) -> AdmittedOffsets:
    """Decide the end of the batch that begins at `start`.

    A new queue enters the offsets with its first message and is read from the next batch on. So the
    checkpoint holds the begin of the queue before a message of it is read.

    Args:
        start: End of the last batch.
        snapshot: Present offsets of the queues.
        limits: Limits of the batch over all queues. A message larger than `bytes_max` is a batch of
            its own. Queues take turns at the first place, and the first queue always gets a
            message.
        trigger: State of the stream besides its offsets.
        measure: Measures ranges at the brokers. Called only for `limits.bytes_max`.
        fail_on_data_loss: True = lost messages are an error; False = they are skipped.

    Raises:
        DataLost: A queue has lost its next message, and `fail_on_data_loss` is true.
    """
    losses = DataLossCheck(fail=fail_on_data_loss)
    begins: dict[MessageQueue, QueueOffset] = {}
    for queue, wanted in start.items():
        begin = resume_offset(queue, wanted, snapshot, losses)
        if begin is not None:
            begins[queue] = begin
    warnings = losses.warnings()
    ends = _ends(snapshot, trigger.targets)
    fresh = {queue: snapshot.ranges[queue].begin for queue in ends if queue not in start}
    if trigger.all_available:
        begins |= fresh
        return AdmittedOffsets(
            begins | {queue: max(ends[queue], begins[queue]) for queue in ends}, warnings
        )
    in_order = sorted(begins)
    first = trigger.turn % max(1, len(in_order))
    lags = {
        queue: max(ends.get(queue, begins[queue]) - begins[queue], 0)
        for queue in [*in_order[first:], *in_order[:first]]
    }
    if _must_wait(sum(lags.values()), limits, trigger):
        return AdmittedOffsets(dict(start), [])
    if limits.offsets_max is not None:
        lags = apportion(lags, limits.offsets_max)
    wanted_ranges = [
        OffsetRange(queue, begins[queue], QueueOffset(begins[queue] + lag))
        for queue, lag in lags.items()
        if lag > 0
    ]
    if limits.bytes_max is not None and wanted_ranges:
        taken = within_bytes(wanted_ranges, limits.bytes_max, measure)
    else:
        taken = wanted_ranges
    return AdmittedOffsets(begins | {one.queue: one.end for one in taken} | fresh, warnings)


def within_bytes(
    wanted: Sequence[OffsetRange], bytes_max: int, measure: MeasureRanges
) -> list[OffsetRange]:
    """Return the beginnings of ranges with at most `bytes_max` bytes of messages in total.

    The first message of the first range is always taken; alone if it reaches `bytes_max`. The
    remaining bytes are shared in proportion to the bytes of each range. A range with a first
    message larger than its share gets that message if the other ranges leave enough bytes.

    Args:
        wanted: Non-empty ranges, at most one of each queue, in descending order of priority.
        bytes_max: Limit on the bytes of the records in the log.
        measure: Measures ranges at the brokers.

    Returns:
        At least one range; none is empty.
    """
    measured = measure([(wanted[0], 1), *((offset_range, bytes_max) for offset_range in wanted)])
    head, measured = measured[0], measured[1:]
    if head.bytes >= bytes_max:
        return [_until(wanted[0], head.end)]
    first, *others = shares = [one.bytes for one in measured]
    if sum(shares) > bytes_max:
        share_first = max(head.bytes, bytes_max * first // sum(shares))
        left = bytes_max - share_first
        shares = [share_first, *(left * size // max(1, sum(others)) for size in others)]
        # 0 would be no limit.
        measured = measure([(one, max(1, part)) for one, part in zip(wanted, shares, strict=True)])
    taken: list[OffsetRange] = []
    too_large: list[tuple[OffsetRange, int]] = []
    left = bytes_max
    for offset_range, part, (end, size) in zip(wanted, shares, measured, strict=True):
        if size <= part and end > offset_range.begin:
            taken.append(_until(offset_range, end))
            left -= size
        elif end - offset_range.begin > 1:
            # The last message reached the share; the range without that message is within it.
            taken.append(_until(offset_range, end - 1))
            left -= part
        elif end > offset_range.begin:
            too_large.append((_until(offset_range, end), size))
    for offset_range, size in too_large:
        if size <= left:
            taken.append(offset_range)
            left -= size
    # A slave that lags behind may count no message; the stream goes on all the same.
    return taken or [_until(wanted[0], wanted[0].begin + 1)]


def _until(offset_range: OffsetRange, end: int) -> OffsetRange:
    return offset_range._replace(end=QueueOffset(end))


def _ends(snapshot: ClusterSnapshot, targets: Offsets | None) -> Mapping[MessageQueue, QueueOffset]:
    if targets is None:
        return targets_of(snapshot)
    return {
        queue: min(there.end, targets[queue])
        for queue, there in snapshot.ranges.items()
        if queue in targets
    }


def _must_wait(waiting: int, limits: "TriggerLimits", trigger: TriggerState) -> bool:
    if limits.offsets_min is None or trigger.targets is not None:
        return False
    return waiting < limits.offsets_min and trigger.waited_ms < limits.delay_max_ms
