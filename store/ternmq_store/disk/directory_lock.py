"""Lock of a store's directory, compatible with RocketMQ's.

The lock is on the first byte of the file, as in RocketMQ, so that a broker on the JVM and TernMQ
exclude each other. `ternmq_runtime.directory_lock` is another lock, for directories that RocketMQ
does not have. `store` does not import `runtime`, and `model` does no I/O: therefore the lock of
the folder and the list of errors are written in both modules.

Source: RocketMQ `DefaultMessageStore.start`.
"""

import contextlib
import errno
import fcntl
import os
import struct
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from ternmq_model.errors import StoreLocked

_LOCK_TEXT: Final = b"lock"
_HOLDER_NAME: Final = "abort"
_LOCK: Final = struct.Struct("hhqqi4x")
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NO_FOLDER_LOCKS: Final = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)
"""Errors of file systems that cannot lock a folder. NFS locks only files open for writing."""
_ASKED_S: Final = 0.05
"""Pause before the second try, s: a query of the lock holds the folder for a shorter time."""
_READ_ONLY: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW


NO_SUCH_NAME: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
"""Errors of a path that leads to no file: a folder is missing, is a file or links to itself."""

Node = tuple[int, int]
"""Identity of a file: its file system and its inode."""


def node_of(stats: os.stat_result) -> Node:
    """Return the identity of the file with these `stats`."""
    return stats.st_dev, stats.st_ino


def node_at(path: Path, *, follow_links: bool = False) -> Node | None:
    """Return the identity of the file at `path`; None = no file. It is unique among open files.

    Raises:
        OSError: The system cannot read the path.
    """
    try:
        return node_of(path.stat(follow_symlinks=follow_links))
    except OSError as error:
        if error.errno not in NO_SUCH_NAME:
            raise
        return None


def nodes_in(folder: Path) -> Mapping[str, Node]:
    """Return the identity of each file in `folder` by name; empty if the folder does not exist.

    Raises:
        OSError: The system cannot read the folder.
    """
    try:
        with os.scandir(folder) as entries:
            device = folder.stat().st_dev
            return {entry.name: (device, entry.inode()) for entry in entries}
    except OSError as error:
        if error.errno not in NO_SUCH_NAME:
            raise
        return {}


class RealLock:
    """Lock of the file's first byte, like RocketMQ's, and lock of its folder.

    Both locks belong to the open file, not to the process. So two locks in one process exclude each
    other, and both end with the process. `flock` of the file replaces the lock of a byte on systems
    without it. The lock of the folder holds when the file is removed, but not against RocketMQ.

    Source: RocketMQ `DefaultMessageStore.start`.
    """

    def __init__(self, path: Path, rest: Callable[[float], None]) -> None:
        with contextlib.ExitStack() as opened:
            # The folder comes first, so that a refused process creates no file of the lock.
            folder = _opened(opened, path.parent, _FOLDER)
            _take(path, partial(_take_folder, rest), folder)
            descriptor = _opened(opened, path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
            _take(path, _take_lock, descriptor)
            self._path, self._node = path, node_of(os.fstat(descriptor))
            if os.pread(descriptor, len(_LOCK_TEXT) + 1, 0) != _LOCK_TEXT:
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, _LOCK_TEXT, 0)
            self._opened = opened.pop_all()

    def is_in_place(self) -> bool:
        """Return whether the lock's file still has its name."""
        return node_at(self._path, follow_links=True) == self._node

    def release(self) -> None:
        """Release the directory to other processes."""
        self._opened.close()


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock at `path`; False if the system cannot test it."""
    return _is_file_taken(path) or _is_folder_taken(path.parent)


def _is_file_taken(path: Path) -> bool:
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


def _opened(stack: contextlib.ExitStack, path: Path, flags: int) -> int:
    """Return a descriptor that is closed with `stack`."""
    descriptor = os.open(path, flags, 0o600)
    stack.callback(os.close, descriptor)
    return descriptor


def _take(path: Path, take: Callable[[int], None], descriptor: int) -> None:
    """Lock the directory whose lock file is `path`.

    Raises:
        StoreLocked: Another owner has the lock.
    """
    try:
        take(descriptor)
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        raise StoreLocked(f"{path.parent} is in use by {_holder(path)}") from error


def _take_lock(descriptor: int) -> None:
    """Lock a file's first byte for as long as it is open.

    Raises:
        OSError: EAGAIN or EACCES: another owner has the lock.
    """
    command: int | None = getattr(fcntl, "F_OFD_SETLK", None)
    if command is None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    fcntl.fcntl(descriptor, command, _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))


def _take_folder(rest: Callable[[float], None], descriptor: int) -> None:
    """Lock a folder for as long as it is open, if its file system supports it.

    Raises:
        OSError: EAGAIN: another owner has the lock.
    """
    try:
        _flock(descriptor)
    except BlockingIOError:
        rest(_ASKED_S)
        _flock(descriptor)


def _flock(descriptor: int, kind: int = fcntl.LOCK_EX) -> None:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _NO_FOLDER_LOCKS:
            raise


def _is_folder_taken(folder: Path) -> bool:
    """Return whether a process has the lock of a folder, by a short shared lock."""
    try:
        descriptor = os.open(folder, _FOLDER)
    except OSError:
        return False
    try:
        _flock(descriptor, fcntl.LOCK_SH)  # several may ask at once
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _holder(path: Path) -> str:
    """Return the text of the lock's owner, by the process id in the file beside it."""
    with contextlib.suppress(OSError):
        text = path.with_name(_HOLDER_NAME).read_text(encoding="ascii", errors="replace")
        text = text.partition("\n")[0].strip()
        if text.isdigit():
            return f"process {text}"
    return "another process"
