"""The lock of a store's directory, as RocketMQ takes it.

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
"""NFS locks only what is open to write, which a folder never is."""
_ASKED_S: Final = 0.05
"""Longer than somebody who only asks has the lock of a folder."""
_READ_ONLY: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW


NO_SUCH_NAME: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
"""Errors of a path that leads to no file: a folder is missing, is a file or links to itself."""

Node = tuple[int, int]
"""Identity of a file: its file system and its number there."""


def node_of(stats: os.stat_result) -> Node:
    """Return the file that `stats` are of."""
    return stats.st_dev, stats.st_ino


def node_at(path: Path, *, follow_links: bool = False) -> Node | None:
    """Return the file that `path` leads to; None if none. As long as one is open, no other is it.

    Raises:
        OSError: The system does not tell.
    """
    try:
        return node_of(path.stat(follow_symlinks=follow_links))
    except OSError as error:
        if error.errno not in NO_SUCH_NAME:
            raise
        return None


def nodes_in(folder: Path) -> Mapping[str, Node]:
    """Return which file each name in `folder` leads to; none if it is not there.

    Raises:
        OSError: The system does not tell.
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
    """A lock of the file's first byte, as RocketMQ takes it, and one of the folder it lies in.

    Both belong to the open file, not to the process: so they count inside one process too, and end
    with it. Where the system knows no such lock of a byte, `flock` takes the file. The folder's
    holds when the file is removed, against all but RocketMQ.

    Source: RocketMQ `DefaultMessageStore.start`.
    """

    def __init__(self, path: Path, rest: Callable[[float], None]) -> None:
        with contextlib.ExitStack() as opened:
            # The folder comes first: who is refused it leaves no new file of the lock.
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
        """Return whether the name of the lock's file still leads to it."""
        return node_at(self._path, follow_links=True) == self._node

    def release(self) -> None:
        """Release the directory to other processes."""
        self._opened.close()


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock at `path`, where the system can tell."""
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
        StoreLocked: Somebody has it.
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
        OSError: EAGAIN or EACCES when somebody has it.
    """
    command: int | None = getattr(fcntl, "F_OFD_SETLK", None)
    if command is None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    fcntl.fcntl(descriptor, command, _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))


def _take_folder(rest: Callable[[float], None], descriptor: int) -> None:
    """Lock a folder for as long as it is open, where its file system knows locks of folders.

    Raises:
        OSError: EAGAIN when somebody has it, who does not only ask.
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
    """Return whether a process holds a folder, by a shared lock for a moment."""
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
    """Return the holder of the lock, by the process number in the file beside it."""
    with contextlib.suppress(OSError):
        text = path.with_name(_HOLDER_NAME).read_text(encoding="ascii", errors="replace")
        text = text.partition("\n")[0].strip()
        if text.isdigit():
            return f"process {text}"
    return "another process"
