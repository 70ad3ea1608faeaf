"""Lag of a stream behind the newest messages, by its progress. Pure.

The metrics have the names of Spark's Kafka source.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ternmq_model.errors import UsageError
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_pipeline.offsets import offsets_from_json
from ternmq_pipeline.strict_json import read_object


@dataclass(frozen=True, slots=True)
class StreamLag:
    """Offsets between the position of a source and the end of each queue."""

    queues: Mapping[MessageQueue, int]
    """Lag of each queue, in messages."""

    @property
    def total(self) -> int:
        """Lag of all queues together, in messages."""
        return sum(self.queues.values())

    def metrics(self) -> dict[str, float]:
        """Return `minOffsetsBehindLatest`, `maxOffsetsBehindLatest`, `avgOffsetsBehindLatest`.

        All are 0 without queues.
        """
        numbers = list(self.queues.values()) or [0]
        return {
            "minOffsetsBehindLatest": min(numbers),
            "maxOffsetsBehindLatest": max(numbers),
            "avgOffsetsBehindLatest": sum(numbers) / len(numbers),
        }


def source_offsets(text: str | None) -> dict[MessageQueue, QueueOffset] | None:
    """Return the offsets in a source's progress; None for a source of another kind.

    Args:
        text: `startOffset`, `endOffset` or `latestOffset` of a `SourceProgress`.
    """
    if text is None:
        return None
    try:
        return offsets_from_json(read_object(text, option="the progress' offsets"))
    except UsageError:
        return None


def offsets_behind(end: str | None, latest: str | None) -> StreamLag | None:
    """Return the lag of a source; None = its progress has no latest offsets.

    A batch that is repeated after a restart has no latest offsets. A queue that is new to the
    stream is not counted.

    Args:
        end: `endOffset` of a `SourceProgress`.
        latest: `latestOffset` of that progress.
    """
    reached_offsets, ends = source_offsets(end), source_offsets(latest)
    if reached_offsets is None or ends is None:
        return None
    return StreamLag(
        {
            queue: max(0, ends[queue] - offset)
            for queue, offset in sorted(reached_offsets.items())
            if queue in ends
        }
    )
