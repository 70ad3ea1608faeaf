"""Checks of the jobs' options, which become options of source and sink. Pure."""

from pathlib import Path
from typing import Final

from ternmq_model.errors import UsageError
from ternmq_pipeline.jobs.folders.hadoop_folder import location_of

START_POSITIONS: Final = ("earliest", "latest")


def start_options(start: str, *, option: str) -> dict[str, str]:
    """Return the options of a stream that begins at `start`.

    Args:
        start: `earliest`, `latest` or Unix milliseconds. A time after all messages means the
            present end.
        option: Name of the option, for errors.

    Raises:
        UsageError: `start` has another form.
    """
    if start in START_POSITIONS:
        return {"startingOffsets": start}
    if start.isascii() and start.isdecimal() and len(start) <= 18:
        return {"startingTimestamp": start, "startingOffsetsByTimestampStrategy": "latest"}
    raise UsageError(f"{option}={start!r}: must be earliest, latest or Unix milliseconds")


def batch_option(batch_rows: int) -> dict[str, str]:
    """Return the source's limit of a micro-batch.

    Raises:
        UsageError: `batch_rows` is less than 1.
    """
    if batch_rows < 1:
        raise UsageError(f"batch_rows={batch_rows}: at least 1")
    return {"maxOffsetsPerTrigger": str(batch_rows)}


def checkpoint_location(checkpoint: str | Path) -> str:
    """Return the location of a checkpoint; empty = the job has none.

    Raises:
        UsageError: The text is no path.
    """
    return location_of(str(checkpoint), option="checkpoint") if checkpoint else ""
