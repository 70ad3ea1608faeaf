"""What Spark says of its micro-batches, read for a person. Pure."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

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
    """What the job itself counts in its rows, by name."""

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


_RAISED: Final = re.compile(r"^(?:\w+\.)*(\w+): (.+)", re.MULTILINE)
_OURS: Final = re.compile(
    r"(?:^|: )ternmq_\w+(?:\.\w+)*\.\w+: "
    r"(.+(?:\n(?!\s*(?:\tat|at|File|Trace|SQLSTATE|JVM|===|\*)).+)*)",
    re.MULTILINE,
)
"""An error of ours behind Spark's words or a traceback, with the lines that belong to its text."""

_NOISE: Final = re.compile(
    r"\[[A-Z0-9_.]{4,}\] |Query \[id = [^\]]*\] terminated with exception: | SQLSTATE: \w+"
    r"|; line \d+ pos \d+|Traceback \(most recent call last\):"
)
"""What Spark adds to its texts for its own documentation."""

_TEXT_MAX: Final = 600


def reason_of(text: str) -> str:
    """Return what went wrong from the text of an error of Spark's: pages, and one line of ours.

    Where the traceback of a worker names an error of ours, that one tells it all; else the
    first line does.
    """
    found = _OURS.findall(text)
    if found:
        return " ".join(found[-1].split())[:_TEXT_MAX]
    lines = [line for line in text.strip().splitlines() if line.strip()]
    first = _NOISE.sub("", lines[0]).strip(" :;") if lines else "no reason is told"
    raised = [each for each in _RAISED.findall(text) if each[0].endswith(("Error", "Exception"))]
    if raised and raised[-1][1] not in first:
        first = f"{first}: {raised[-1][0]}: {raised[-1][1]}"
    return first[:_TEXT_MAX]
