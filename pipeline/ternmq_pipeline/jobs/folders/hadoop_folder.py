"""Folder of any file system of Spark's Hadoop, and its location."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ternmq_model.errors import UsageError
from ternmq_pipeline.jobs.folders import file_sink_log
from ternmq_pipeline.jobs.folders.file_sink_log import CommittedFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def location_of(text: str, *, option: str) -> str:
    """Return the location of a folder for Spark: a URI unchanged, a path as an absolute one.

    Raises:
        UsageError: The text is empty or no path.
    """
    if not text or "\0" in text:
        raise UsageError(f"{option}={text!r}: must be a folder")
    return text.rstrip("/") if "://" in text else str(Path(text).absolute())


class HadoopFolder:
    """Folder of any file system that Spark supports: the disk, HDFS, an object store.

    Args:
        spark: Session with the file systems and their settings.
        location: Result of `location_of`.
    """

    def __init__(self, spark: "SparkSession", location: str) -> None:
        context: Any = cast("Any", spark.sparkContext)
        self._jvm: Any = context._jvm
        self._path: Any = self._jvm.org.apache.hadoop.fs.Path(location)
        self._files: Any = self._path.getFileSystem(context._jsc.hadoopConfiguration())
        self.location = location

    def __str__(self) -> str:
        return self.location

    def on_disk(self) -> Path | None:
        """Return the path of the folder on this machine; None = another file system."""
        if self._files.getUri().getScheme() != "file":
            return None
        return Path(str(self._path.toUri().getPath()))

    def names(self, folder: str = "") -> list[str]:
        """Return the sorted names in the folder, or in one below it; none if it does not exist.

        Raises:
            UsageError: The location is a file.
        """
        path = self._below(folder) if folder else self._path
        if not self._files.exists(path):
            return []
        if not self._files.getFileStatus(path).isDirectory():
            raise UsageError(f"{self.location} is a file and no folder")
        return sorted(str(one.getPath().getName()) for one in self._files.listStatus(path))

    def read(self, name: str) -> str:
        """Return the text of a file."""
        stream: Any = self._files.open(self._below(name))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Write a text to a new file, and create missing folders."""
        stream: Any = self._files.create(self._below(name), False)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def committed(self) -> list[CommittedFile]:
        """Return the committed files in Spark's log of the folder."""
        return file_sink_log.committed_files(
            self.names(file_sink_log.FOLDER),
            lambda name: self.read(f"{file_sink_log.FOLDER}/{name}"),
            location=f"{self.location}/{file_sink_log.FOLDER}",
        )

    def last_batch(self) -> int:
        """Return the number of the last batch that wrote to the folder, −1 when none did."""
        return file_sink_log.last_batch(self.names(file_sink_log.FOLDER))

    def _below(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._path, name)
