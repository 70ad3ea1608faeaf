"""Resets of the offsets of a group. Pure.

Source: RocketMQ `AdminBrokerProcessor.resetOffset`.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ternmq_model.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from ternmq_model.offsets import QueueOffset


class QueueState(NamedTuple):
    """Range and committed offset of a queue before a reset."""

    topic: str
    queue_id: int
    least: QueueOffset
    """First offset of the queue."""

    end: QueueOffset
    before: QueueOffset | None
    """The group's offset; None = it never consumed the queue."""


class OffsetReset(NamedTuple):
    """Change of one offset by a reset."""

    topic: str
    queue_id: int
    before: QueueOffset | None
    after: QueueOffset


def reset(
    queues: Iterable[tuple[QueueState, int]], *, backwards_only: bool
) -> Sequence[OffsetReset]:
    """Return the changes of offsets, in the order of the queues.

    An offset that stays where it is counts as well: what its consumer has in hand does not.

    Args:
        queues: Each with its requested offset; the nearest end of the queue when it lies outside.
        backwards_only: Leave those alone that are not as far, or were never consumed.
    """
    changes: list[OffsetReset] = []
    for state, requested in queues:
        after = QueueOffset(max(state.least, min(requested, state.end)))
        if backwards_only and (state.before is None or after >= state.before):
            continue
        changes.append(OffsetReset(state.topic, state.queue_id, state.before, after))
    return changes


def is_cloned(topic: str, requested: str) -> bool:
    """Return whether the offsets of `topic` are copied from one group to another.

    Args:
        topic: A topic in which the first group has offsets.
        requested: The requested topic; empty = all but those that belong to one group alone.
    """
    if requested:
        return topic == requested
    return not topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
