"""One process at a time in a directory.

Beside the state lies `lock`, an empty file that is never removed: what counts is who has locked
it, and the system lets go of that with the process, however it ends.
"""

import errno
import fcntl
from pathlib import Path
from typing import Final

from ternmq_model.errors import StoreLocked
from ternmq_runtime.durable_file import open_private

FILE_NAME: Final = "lock"


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
        try:
            # Of the open file, not of the process: two owners in one process see each other.
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            raise StoreLocked(f"{directory} is in use by another owner") from error

    def release(self) -> None:
        """Let somebody else have the directory. Safe to repeat."""
        self._file.close()
