"""Progress of micro-batches, read from Spark's progress documents. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ternmq_pipeline.source.streams.stream_lag import offsets_behind


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """Progress of one completed micro-batch."""

    batch: int
    """Spark's number of the micro-batch, from 0."""

    rows_in: int
    """Number of read rows."""

    rows_out: int | None
    """Number of written rows; None = unknown."""

    rows_per_s: float
    """Rows processed per second, measured by Spark."""

    behind: int | None
    """Number of unread messages in the cluster; None = unknown."""

    observed: Mapping[str, int] = field(default_factory=dict[str, int])
    """Counts of the job's rows, by name."""

    def __str__(self) -> str:
        parts = [f"batch {self.batch}: {self.rows_in:,} rows", f"{self.rows_per_s:,.0f} rows/s"]
        if self.rows_out is not None and self.rows_out != self.rows_in:
            parts.insert(1, f"{self.rows_out:,} written")
        if self.behind is not None:
            parts.append(f"{self.behind:,} behind")
        return ", ".join(parts)


def batch_progress(
    document: Mapping[str, Any], observed: Mapping[str, int] | None = None
) -> BatchProgress:
    """Return the progress of a micro-batch from a document of Spark and the job's counts."""
    sources: Sequence[Mapping[str, Any]] = document.get("sources") or ()
    behind = [messages_behind(source) for source in sources]
    sink: Mapping[str, int] = document.get("sink") or {}
    written = sink.get("numOutputRows", -1)
    return BatchProgress(
        batch=document["batchId"],
        rows_in=document["numInputRows"],
        rows_out=written if written >= 0 else None,
        rows_per_s=document.get("processedRowsPerSecond") or 0.0,
        behind=sum(count for count in behind if count is not None)
        if any(count is not None for count in behind)
        else None,
        observed=observed or {},
    )


def messages_behind(source: Mapping[str, Any]) -> int | None:
    """Return the lag of one source in messages; None when its document has no offsets."""
    offsets = (json.dumps(source.get(name)) for name in ("endOffset", "latestOffset"))
    behind = offsets_behind(*offsets)
    return None if behind is None else behind.total
