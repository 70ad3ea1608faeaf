"""Probes of the disk for acknowledgements that do not wait for a sync.

An append only changes mapped memory. Without probes, the failure of a disk shows at the next flush
or write of a table, up to half a second later.
"""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from ternmq_store.disk.fail_stop import FailStopFileSystem
from ternmq_store.disk.layout import abort_path
from ternmq_store.log.commit_log import CommitLog


@dataclass(frozen=True, slots=True)
class DiskProbeTask:
    """Task of a write and a sync that test the disk, for a blocking thread."""

    files: FailStopFileSystem
    path: Path
    """Small file without other writers. Its content does not change."""

    def run(self) -> None:
        """Write the content of the file again and sync it.

        Raises:
            OSError: The disk refuses writes or is full, or the file is gone.
        """
        with closing(self.files.open(self.path)) as file:
            file.write(0, file.read(0, file.size()))
            file.sync()


class DiskProbes:
    """Schedule of disk probes, due after appends. Owned by `MessageStore`, on the store's thread.

    The probed file is `abort`, which every open store has.
    """

    def __init__(self, files: FailStopFileSystem, root: Path, log: CommitLog) -> None:
        self._files = files
        self._path = abort_path(root)
        self._log = log
        self._probed = log.end

    @property
    def is_due(self) -> bool:
        """True if records were appended since the last probe began."""
        return self._probed < self._log.end

    def take(self) -> DiskProbeTask | None:
        """Return the next probe if one is due."""
        if not self.is_due:
            return None
        self._probed = self._log.end
        return DiskProbeTask(self._files, self._path)
