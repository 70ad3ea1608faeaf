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
    """Offset of the group; None = the group never consumed the queue."""


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

    An unchanged offset is a change as well: its version rises, so that old commits are refused.

    Args:
        queues: Each with its requested offset; the nearest end of the queue when it lies outside.
        backwards_only: Skip offsets that would move forwards, and queues without an offset.
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
        requested: Requested topic; empty = all topics except those of a single group.
    """
    if requested:
        return topic == requested
    return not topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
