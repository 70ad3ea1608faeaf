"""One process at a time in a directory.

Beside the state lies `lock`, an empty file. What counts is who has locked it, and the directory
itself, in case the file is removed; the system lets go of both with the process, however it ends.
"""

import errno
import fcntl
import os
from pathlib import Path
from typing import Final

from ternmq_model.errors import StoreLocked
from ternmq_runtime.durable_file import open_private

FILE_NAME: Final = "lock"

_AT_ONCE: Final = fcntl.LOCK_EX | fcntl.LOCK_NB
_NO_DIRECTORY_LOCKS: Final = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)
"""NFS locks only what is open to write, which a directory never is."""


class DirectoryLock:
    """Holds a directory from its making to `release`. Counts inside one process too.

    Args:
        directory: Is there.

    Raises:
        StoreLocked: Somebody holds it; names the directory.
        OSError: The file of the lock cannot be opened.
    """

    def __init__(self, directory: Path) -> None:
        self._file = open_private(directory / FILE_NAME, "ab")
        self._directory: int | None = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            # Of the open file, not of the process: two owners in one process see each other.
            fcntl.flock(self._file, _AT_ONCE)
            _lock_directory(self._directory)
        except OSError as error:
            self.release()
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            raise StoreLocked(f"{directory} is in use by another owner") from error

    def release(self) -> None:
        """Let somebody else have the directory. Safe to repeat."""
        self._file.close()
        directory, self._directory = self._directory, None
        if directory is not None:
            os.close(directory)


def _lock_directory(descriptor: int) -> None:
    """Lock a directory, where its file system knows such locks."""
    try:
        fcntl.flock(descriptor, _AT_ONCE)
    except OSError as error:
        if error.errno not in _NO_DIRECTORY_LOCKS:
            raise
