"""Folders of a job, wherever Spark can write, and what tells whose they are."""

import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from ternmq_model.errors import JobFailed, StoreLocked, UsageError
from ternmq_pipeline.jobs.folders import file_sink_log
from ternmq_pipeline.jobs.folders.file_sink_log import CommittedFile
from ternmq_runtime.directory_lock import DirectoryLock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MARK: Final = "ternmq-job.json"
"""In a checkpoint: which job it belongs to, beside Spark's own files."""

_OFFSET_LINES: Final = 3
"""Of a file of offsets: version, settings, and the offset of the one source."""


def place_of(text: str, *, option: str) -> str:
    """Return a folder as Spark is to be told: a URI as it is, a path from the root on.

    Raises:
        UsageError: It is empty or no path.
    """
    if not text or "\0" in text:
        raise UsageError(f"{option}={text!r}: must be a folder")
    return text.rstrip("/") if "://" in text else str(Path(text).absolute())


class Folder:
    """A folder of any file system that Spark knows: the disk, HDFS, an object store.

    Args:
        spark: Whose file systems and settings.
        place: From `place_of`.
    """

    def __init__(self, spark: "SparkSession", place: str) -> None:
        context: Any = cast("Any", spark.sparkContext)
        self._jvm: Any = context._jvm
        self._path: Any = self._jvm.org.apache.hadoop.fs.Path(place)
        self._files: Any = self._path.getFileSystem(context._jsc.hadoopConfiguration())
        self.place = place

    def __str__(self) -> str:
        return self.place

    def on_disk(self) -> Path | None:
        """Return where the folder is among this machine's files; None when it is elsewhere."""
        if self._files.getUri().getScheme() != "file":
            return None
        return Path(str(self._path.toUri().getPath()))

    def names(self, folder: str = "") -> list[str]:
        """Return what is in the folder, or in one below it, sorted; nothing when it is not there.

        Raises:
            UsageError: It is a file.
        """
        path = self._below(folder) if folder else self._path
        if not self._files.exists(path):
            return []
        if not self._files.getFileStatus(path).isDirectory():
            raise UsageError(f"{self.place} is a file and no folder")
        return sorted(str(one.getPath().getName()) for one in self._files.listStatus(path))

    def read(self, name: str) -> str:
        """Return the text of a file."""
        stream: Any = self._files.open(self._below(name))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Write a text to a file that is not there yet, and make the folders that it needs."""
        stream: Any = self._files.create(self._below(name), False)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def committed(self) -> list[CommittedFile]:
        """Return the files that Spark's log says are in the folder."""
        names = file_sink_log.wanted(self.names(file_sink_log.FOLDER))
        return [
            file
            for name in names
            for file in file_sink_log.files_of(
                self.read(f"{file_sink_log.FOLDER}/{name}"),
                name=f"{self.place}/{file_sink_log.FOLDER}/{name}",
            )
        ]

    def last_batch(self) -> int:
        """Return the number of the last batch that wrote to the folder, −1 when none did."""
        return file_sink_log.last_batch(self.names(file_sink_log.FOLDER))

    def _below(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._path, name)


def claim(checkpoint: Folder, job: Mapping[str, object]) -> bool:
    """Make a checkpoint a job's, or make sure that it is, and tell whether it has batches.

    Args:
        checkpoint: Where it is, or is to be.
        job: What makes it this job, by the names of its options: JSON's values.

    Raises:
        UsageError: It is another job's, or a folder with something else; nothing is changed.
    """
    names = checkpoint.names()
    if MARK in names:
        told = _mark(checkpoint)
        for name in sorted(told.keys() | job.keys()):
            if told.get(name) != job.get(name):
                raise UsageError(
                    f"checkpoint {checkpoint} is of a job with {name} {_said(told.get(name))}, this"
                    f" one has {_said(job.get(name))}: give the same again, or another checkpoint"
                )
        return file_sink_log.last_batch(checkpoint.names("commits")) >= 0
    if names:
        what = "of another query" if "metadata" in names else "a folder with something else"
        raise UsageError(f"checkpoint {checkpoint} is {what}: give a new one")
    checkpoint.write(MARK, json.dumps(dict(job), sort_keys=True) + "\n")
    return False


@contextmanager
def alone(checkpoint: Folder) -> Generator[None]:
    """Let no other run go on with a job's checkpoint inside the block.

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


def _mark(checkpoint: Folder) -> Mapping[str, object]:
    try:
        told = json.loads(checkpoint.read(MARK))
    except ValueError as error:
        raise UsageError(f"checkpoint {checkpoint}: {MARK} is no JSON: {error}") from None
    if not isinstance(told, dict):
        raise UsageError(f"checkpoint {checkpoint}: {MARK} tells of no job")
    return cast("Mapping[str, object]", told)


def _said(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, cast("list[object]", value)))
    return "none" if value is None else str(value)


def committed_offsets(checkpoint: Folder) -> str:
    """Return up to where a checkpoint's query has read its one source, as the source wrote it.

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
