"""Checkpoints of jobs: the mark of the job, the lock, and the committed offsets."""

import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Final, cast

from ternmq_model.errors import JobFailed, StoreLocked, UsageError
from ternmq_pipeline.jobs.folders import file_sink_log
from ternmq_pipeline.jobs.folders.hadoop_folder import HadoopFolder
from ternmq_runtime.directory_lock import DirectoryLock

MARK: Final = "ternmq-job.json"
"""File in a checkpoint that names its job, beside Spark's own files."""

_OFFSET_LINES: Final = 3
"""Lines of a file of offsets: version, settings, offset of the only source."""


def claim(checkpoint: HadoopFolder, job: Mapping[str, object]) -> bool:
    """Mark a new checkpoint, or check the mark of an existing one. Return whether it has batches.

    Args:
        checkpoint: Folder of the checkpoint.
        job: Options that identify the job, as JSON values by name.

    Raises:
        UsageError: The checkpoint belongs to another job, or the folder has other content. The
            folder is not changed.
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

    Spark would let two runs process the next batch, each for itself. Only folders on a disk are
    locked; other file systems have no locks.

    Args:
        checkpoint: Checkpoint of the job, after `claim`.

    Raises:
        UsageError: Another run has the lock.
    """
    path = checkpoint.on_disk()
    if path is None:
        yield
        return
    try:
        lock = DirectoryLock(path)
    except StoreLocked:
        raise UsageError(f"checkpoint {checkpoint}: another run uses it now") from None
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
        raise UsageError(f"checkpoint {checkpoint}: {MARK} names no job")
    return cast("Mapping[str, object]", mark)


def _said(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, cast("list[object]", value)))
    return "none" if value is None else str(value)


def committed_offsets(checkpoint: HadoopFolder) -> str:
    """Return the end of the last committed batch, in the source's form; empty = no batch.

    Raises:
        JobFailed: The files of the checkpoint have another form than Spark's.
    """
    batch = file_sink_log.last_batch(checkpoint.names("commits"))
    if batch < 0:
        return ""
    name = f"offsets/{batch}"
    lines = checkpoint.read(name).splitlines()
    if len(lines) != _OFFSET_LINES:
        raise JobFailed(f"{checkpoint}/{name}: has {len(lines)} lines, not {_OFFSET_LINES}")
    return lines[-1]
