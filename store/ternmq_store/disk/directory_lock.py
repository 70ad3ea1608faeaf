"""The lock of a store's directory, as RocketMQ takes it.

Source: RocketMQ `DefaultMessageStore.start`.
"""

import contextlib
import errno
import fcntl
import os
import struct
from pathlib import Path
from typing import Final

from ternmq_model.errors import StoreLocked

_LOCK_TEXT: Final = b"lock"
_HOLDER_NAME: Final = "abort"
_LOCK: Final = struct.Struct("hhqqi4x")
_READ_ONLY: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW


class RealLock:
    """A lock of the file's first byte, as RocketMQ takes it, and of the file as a whole.

    The first belongs to the open file, not to the process, where the system knows such locks: so
    it counts inside one process too. Where it does not, `flock` alone is taken. Either ends with
    the process.

    Source: RocketMQ `DefaultMessageStore.start`.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _take_lock(self._descriptor)
        except OSError as error:
            os.close(self._descriptor)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            raise StoreLocked(f"{path.parent} is in use by {_holder(path)}") from error
        if os.pread(self._descriptor, len(_LOCK_TEXT) + 1, 0) != _LOCK_TEXT:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, _LOCK_TEXT, 0)

    def release(self) -> None:
        """Let another process have the directory."""
        os.close(self._descriptor)


def is_locked(path: Path) -> bool:
    """Tell whether somebody holds the lock at `path`, where the system can tell."""
    command: int | None = getattr(fcntl, "F_OFD_GETLK", None)
    if command is None:
        return False
    try:
        descriptor = os.open(path, _READ_ONLY)
    except FileNotFoundError:
        return False
    try:
        answer = fcntl.fcntl(descriptor, command, _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
        kind: int = _LOCK.unpack(answer)[0]
        return kind != fcntl.F_UNLCK
    finally:
        os.close(descriptor)


def _take_lock(descriptor: int) -> None:
    """Lock a file's first byte for as long as it is open.

    Raises:
        OSError: EAGAIN or EACCES when somebody has it.
    """
    command: int | None = getattr(fcntl, "F_OFD_SETLK", None)
    if command is None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    fcntl.fcntl(descriptor, command, _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))


def _holder(path: Path) -> str:
    """Return who holds the lock, as far as the file beside it tells."""
    with contextlib.suppress(OSError):
        text = path.with_name(_HOLDER_NAME).read_text(encoding="ascii", errors="replace")
        text = text.partition("\n")[0].strip()
        if text.isdigit():
            return f"process {text}"
    return "another process"
