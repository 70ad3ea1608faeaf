"""Checkpoints of jobs: the mark that says whose one is, its lock, and its committed offsets."""

import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Final, cast

from ternmq_model.errors import JobFailed, StoreLocked, UsageError
from ternmq_pipeline.jobs.folders import file_sink_log
from ternmq_pipeline.jobs.folders.hadoop_folder import HadoopFolder
from ternmq_runtime.directory_lock import DirectoryLock

MARK: Final = "ternmq-job.json"
"""In a checkpoint: which job it belongs to, beside Spark's own files."""

_OFFSET_LINES: Final = 3
"""Lines of a file of offsets: version, settings, and the offset of the one source."""


def claim(checkpoint: HadoopFolder, job: Mapping[str, object]) -> bool:
    """Make a checkpoint a job's, or make sure that it is, and tell whether it has batches.

    Args:
        checkpoint: Where it is, or is to be.
        job: What makes it this job, by the names of its options: JSON's values.

    Raises:
        UsageError: It is another job's, or a folder with something else; nothing is changed.
    """
    names = checkpoint.names()
    if MARK in names:
        mark = _mark(checkpoint)
        for name in sorted(mark.keys() | job.keys()):
            if mark.get(name) != job.get(name):
                raise UsageError(
                    f"checkpoint {checkpoint} is of a job with {name} {_said(mark.get(name))}, this"
                    f" one has {_said(job.get(name))}: give the same again, or another checkpoint"
                )
        return file_sink_log.last_batch(checkpoint.names("commits")) >= 0
    if names:
        what = "of another query" if "metadata" in names else "a folder with something else"
        raise UsageError(f"checkpoint {checkpoint} is {what}: give a new one")
    checkpoint.write(MARK, json.dumps(dict(job), sort_keys=True) + "\n")
    return False


@contextmanager
def exclusive_run(checkpoint: HadoopFolder) -> Generator[None]:
    """Lock a job's checkpoint against other runs inside the block.

    Spark would let two of them do the batch that neither has committed, each for itself. Only on
    disks can this be seen; nobody locks folders elsewhere.

    Args:
        checkpoint: The job's: see `claim`.

    Raises:
        UsageError: Another run has it.
    """
    path = checkpoint.on_disk()
    if path is None:
        yield
        return
    try:
        lock = DirectoryLock(path)
    except StoreLocked:
        raise UsageError(f"checkpoint {checkpoint}: another run goes on with it now") from None
    try:
        yield
    finally:
        lock.release()


def _mark(checkpoint: HadoopFolder) -> Mapping[str, object]:
    try:
        mark = json.loads(checkpoint.read(MARK))
    except ValueError as error:
        raise UsageError(f"checkpoint {checkpoint}: {MARK} is no JSON: {error}") from None
    if not isinstance(mark, dict):
        raise UsageError(f"checkpoint {checkpoint}: {MARK} tells of no job")
    return cast("Mapping[str, object]", mark)


def _said(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, cast("list[object]", value)))
    return "none" if value is None else str(value)


def committed_offsets(checkpoint: HadoopFolder) -> str:
    """Return the offsets at which the last committed batch ended, as the source wrote them.

    Empty: no batch is committed.

    Raises:
        JobFailed: Its files are not such as Spark writes.
    """
    batch = file_sink_log.last_batch(checkpoint.names("commits"))
    if batch < 0:
        return ""
    name = f"offsets/{batch}"
    lines = checkpoint.read(name).splitlines()
    if len(lines) != _OFFSET_LINES:
        raise JobFailed(f"{checkpoint}/{name}: has {len(lines)} lines, not {_OFFSET_LINES}")
    return lines[-1]
