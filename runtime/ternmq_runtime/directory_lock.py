"""Lock of a directory for one process at a time.

The directory has an empty file `lock`. The owner locks that file, and the directory itself in case
the file is removed. The system releases both locks at the end of the process.

`ternmq_store.disk.directory_lock` is another lock: it locks the byte that RocketMQ locks, so that
a broker on the JVM and TernMQ exclude each other. This lock is for directories that RocketMQ does
not have. `store` does not import `runtime`, and `model` does no I/O: therefore the lock of the
folder and the list of errors are written in both modules.
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
"""Errors of file systems that cannot lock a directory. NFS locks only files open for writing."""


class DirectoryLock:
    """Lock of a directory, from construction to `release`. Two locks in one process exclude, too.

    Args:
        directory: Existing directory.

    Raises:
        StoreLocked: Another owner has the lock. The error names the directory.
        OSError: The file of the lock cannot be opened.
    """

    def __init__(self, directory: Path) -> None:
        self._file = open_private(directory / FILE_NAME, "ab")
        self._directory: int | None = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            # The lock belongs to the open file, so two owners in one process exclude each other.
            fcntl.flock(self._file, _AT_ONCE)
            _lock_directory(self._directory)
        except OSError as error:
            self.release()
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            raise StoreLocked(f"{directory} is in use by another owner") from error

    def release(self) -> None:
        """Release the lock. Safe to repeat."""
        self._file.close()
        directory, self._directory = self._directory, None
        if directory is not None:
            os.close(directory)


def _lock_directory(descriptor: int) -> None:
    """Lock a directory if its file system supports it."""
    try:
        fcntl.flock(descriptor, _AT_ONCE)
    except OSError as error:
        if error.errno not in _NO_DIRECTORY_LOCKS:
            raise
