"""Progress of micro-batches, read from Spark's documents for a person. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ternmq_pipeline.source.streams.stream_lag import offsets_behind


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """One micro-batch that is done."""

    batch: int
    rows_in: int
    """Rows that were read."""

    rows_out: int | None
    """Rows that were written; None where Spark does not say."""

    rows_per_s: float
    behind: int | None
    """Messages of the cluster that were not read yet; None when it is not known."""

    observed: Mapping[str, int] = field(default_factory=dict[str, int])
    """Counts that the job itself makes in its rows, by name."""

    def __str__(self) -> str:
        parts = [f"batch {self.batch}: {self.rows_in:,} rows", f"{self.rows_per_s:,.0f} rows/s"]
        if self.rows_out is not None and self.rows_out != self.rows_in:
            parts.insert(1, f"{self.rows_out:,} written")
        if self.behind is not None:
            parts.append(f"{self.behind:,} behind")
        return ", ".join(parts)


def batch_progress(
    told: Mapping[str, Any], observed: Mapping[str, int] | None = None
) -> BatchProgress:
    """Return what one of Spark's progress documents says, and what the job counted."""
    sources: Sequence[Mapping[str, Any]] = told.get("sources") or ()
    behind = [messages_behind(source) for source in sources]
    sink: Mapping[str, int] = told.get("sink") or {}
    written = sink.get("numOutputRows", -1)
    return BatchProgress(
        batch=told["batchId"],
        rows_in=told["numInputRows"],
        rows_out=written if written >= 0 else None,
        rows_per_s=told.get("processedRowsPerSecond") or 0.0,
        behind=sum(count for count in behind if count is not None)
        if any(count is not None for count in behind)
        else None,
        observed=observed or {},
    )


def messages_behind(source: Mapping[str, Any]) -> int | None:
    """Return how many messages one source has still to read; None when it does not say."""
    told = (json.dumps(source.get(name)) for name in ("endOffset", "latestOffset"))
    behind = offsets_behind(*told)
    return None if behind is None else behind.total
