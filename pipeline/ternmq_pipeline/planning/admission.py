"""How far the next batch of a stream goes. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_pipeline.offsets import Offsets, Stretch
from ternmq_pipeline.planning.losses import Losses, place_of
from ternmq_pipeline.planning.sharing import share
from ternmq_pipeline.planning.snapshot import Snapshot

if TYPE_CHECKING:
    from ternmq_pipeline.options.reading import TriggerLimits


class Measured(NamedTuple):
    """How far a number of bytes goes in a stretch."""

    end: int
    """Behind the last message that was counted."""

    bytes: int


Measure: TypeAlias = Callable[[Sequence[tuple[Stretch, int]]], Sequence[Measured]]
"""Measures stretches, each up to the message that reaches its number of bytes."""


class Admitted(NamedTuple):
    """How far a batch goes, and what to warn of."""

    end: dict[MessageQueue, QueueOffset]
    """Equal to the start: there is nothing to read now."""

    warnings: list[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Moment:
    """What the stream is at, besides its offsets."""

    waited_ms: int = 0
    """Since the last batch, or since the stream began."""

    turn: int = 0
    """How many batches there were: which queue goes first when not each can have a message."""

    targets: Offsets | None = None
    """Where a stream ends that reads what was available when it began. None = it does not end."""

    everything: bool = False
    """This batch reads all there is, whatever the limits."""


def targets_of(snapshot: Snapshot) -> dict[MessageQueue, QueueOffset]:
    """Return what all queues have now: where a stream ends that reads what is available now."""
    return {queue: there.end for queue, there in snapshot.ranges.items()}


def admit(
    start: Offsets,
    snapshot: Snapshot,
    limits: "TriggerLimits",
    *,
    moment: Moment,
    measure: Measure,
    fail_on_data_loss: bool = True,
) -> Admitted:
    """Decide where the batch ends that begins at `start`.

    A queue that is new enters the offsets with its first message, and is read from the batch after
    that: so where it begins is in the checkpoint before any of it is read.

    Args:
        start: Where the last batch ended.
        snapshot: What there is now.
        limits: How much a batch may read. The messages of all queues together stay within them;
            of bytes only one message that is larger by itself, or whose turn it is, goes beyond.
        moment: What else decides.
        measure: Asks brokers for bytes; is called only for `limits.bytes_max`.
        fail_on_data_loss: Whether messages that are gone are an error; else they are passed over.

    Raises:
        DataLost: A queue has not the message that comes next, and that is an error.
    """
    losses = Losses(fail=fail_on_data_loss)
    places: dict[MessageQueue, QueueOffset] = {}
    for queue, wanted in start.items():
        place = place_of(queue, wanted, snapshot, losses)
        if place is not None:
            places[queue] = place
    warnings = losses.warnings()
    ends = _ends(snapshot, moment.targets)
    fresh = {queue: snapshot.ranges[queue].begin for queue in ends if queue not in start}
    if moment.everything:
        places |= fresh
        return Admitted(
            places | {queue: max(ends[queue], places[queue]) for queue in ends}, warnings
        )
    lags = {queue: max(ends.get(queue, place) - place, 0) for queue, place in places.items()}
    if _must_wait(sum(lags.values()), limits, moment):
        return Admitted(dict(start), [])
    if limits.offsets_max is not None:
        lags = share(lags, limits.offsets_max, turn=moment.turn)
    wanted_stretches = [
        Stretch(queue, places[queue], QueueOffset(places[queue] + lag))
        for queue, lag in sorted(lags.items())
        if lag > 0
    ]
    if limits.bytes_max is not None and wanted_stretches:
        taken = within_bytes(wanted_stretches, limits.bytes_max, measure, turn=moment.turn)
    else:
        taken = wanted_stretches
    return Admitted(places | {one.queue: one.end for one in taken} | fresh, warnings)


def within_bytes(
    wanted: Sequence[Stretch], bytes_max: int, measure: Measure, *, turn: int
) -> list[Stretch]:
    """Return the beginnings of stretches whose messages together have `bytes_max` at most.

    The bytes are shared in proportion to what each stretch has. One of those whose first message
    is larger than its share has its turn, and gets that message even if it does not fit.

    Args:
        wanted: Not empty ones, one of a queue at most.
        bytes_max: Of the records as they lie in the log.
        measure: Asks brokers.
        turn: Whose turn it is.

    Returns:
        Not empty ones, at least one.
    """
    measured = measure([(stretch, bytes_max) for stretch in wanted])
    total = sum(one.bytes for one in measured)
    if total <= bytes_max:
        return [_until(stretch, one.end) for stretch, one in zip(wanted, measured, strict=True)]
    shares = [max(1, bytes_max * one.bytes // total) for one in measured]
    measured = measure(list(zip(wanted, shares, strict=True)))
    taken: list[Stretch] = []
    too_large: list[tuple[Stretch, int]] = []
    left = bytes_max
    for stretch, part, one in zip(wanted, shares, measured, strict=True):
        if one.bytes <= part:
            taken.append(_until(stretch, one.end))
            left -= one.bytes
        elif one.end - stretch.begin > 1:
            # Without its last message, which reached the share, it is within it.
            taken.append(_until(stretch, one.end - 1))
            left -= part
        else:
            too_large.append((_until(stretch, one.end), one.bytes))
    for place in range(len(too_large)):
        stretch, size = too_large[(turn + place) % len(too_large)]
        if place == 0 or size <= left:
            taken.append(stretch)
            left -= size
    return taken


def _until(stretch: Stretch, end: int) -> Stretch:
    """Return the beginning of a stretch: one message at least, so that reading never stands."""
    kept = min(max(end, stretch.begin + 1), stretch.end)
    return Stretch(stretch.queue, stretch.begin, QueueOffset(kept))


def _ends(snapshot: Snapshot, targets: Offsets | None) -> Mapping[MessageQueue, QueueOffset]:
    if targets is None:
        return targets_of(snapshot)
    return {
        queue: min(there.end, targets[queue])
        for queue, there in snapshot.ranges.items()
        if queue in targets
    }


def _must_wait(waiting: int, limits: "TriggerLimits", moment: Moment) -> bool:
    if limits.offsets_min is None or moment.targets is not None:
        return False
    return waiting < limits.offsets_min and moment.waited_ms < limits.delay_max_ms
