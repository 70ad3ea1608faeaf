"""Probes of a disk whose acknowledgements do not wait for a sync.

An append touches mapped memory alone. A disk that died shows at the next flush or write of a table,
which may be half a second later.
"""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from ternmq_store.disk.fail_stop import FailStopFileSystem
from ternmq_store.disk.layout import abort_path
from ternmq_store.log.commit_log import CommitLog


@dataclass(frozen=True, slots=True)
class DiskProbeTask:
    """Task of a write and a sync that show whether the disk works, for a blocking thread."""

    files: FailStopFileSystem
    path: Path
    """A small file that nobody else writes meanwhile; it keeps its content."""

    def run(self) -> None:
        """Write the content of the file once more, and sync it.

        Raises:
            OSError: The disk takes no writes, or is full, or the file is gone.
        """
        with closing(self.files.open(self.path)) as file:
            file.write(0, file.read(0, file.size()))
            file.sync()


class DiskProbes:
    """Schedule of disk probes. Owned by `MessageStore`, on the store's thread.

    Args:
        files: The disk.
        root: The store's directory, which is open: it has the file `abort`.
        log: Probed once for all that was appended meanwhile.
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
