"""The key-value settings, with the file that stores them."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ternmq_model.errors import StoreFailed
from ternmq_nameserver.kv_table import KvTable, kv_table_from_json
from ternmq_remoting.environment import Blocking
from ternmq_runtime.directory_lock import DirectoryLock
from ternmq_runtime.durable_file import make_directory_durably, read_newest, replace_durably
from ternmq_runtime.state_saver import StateSaver

FILE_NAME: Final = "kvConfig.json"
LOCKED_NAME: Final = "nameserver.lock"
"""A directory: it holds nothing but the file of its lock."""

logger = logging.getLogger(__name__)


class KvStore:
    """The settings of one NameServer. Owned by its loop.

    Changes gather while the disk writes those before, and `job`, the one writer, takes them
    together. So a caller that goes away in the middle never leaves two writers behind. A change
    that the disk refuses is undone, in the file too, as soon as the disk allows it.

    Args:
        path: The file; None keeps the settings in memory alone. Its directory belongs to this
            store from `load` to `close`: two writers would undo each other's settings.
        blocking: Runs calls that wait for the disk.

    Attributes:
        job: Job that saves changes.
        table: Settings on the disk. Changes only after they are saved.
    """

    def __init__(self, path: Path | None, blocking: Blocking) -> None:
        self.table = KvTable()
        self._path = path
        self._blocking = blocking
        self._wanted = self.table
        self._lock: DirectoryLock | None = None
        self._saver = StateSaver(
            path,
            blocking.run,
            state=lambda: self._wanted,
            prepare=self._prepare,
            ended=self._ended,
            job_name="settings",
        )
        self.job = self._saver.job
        self._saver.mark_saved()

    async def load(self) -> None:
        """Lock the directory, and load the file, if there is one.

        Raises:
            StoreLocked: Another NameServer holds the directory; names it.
            StoreError: The file is there and cannot be read, nor the generation before.
            OSError: Its directory cannot be made or locked.
        """
        if self._path is not None:
            self._lock = await self._blocking.run(lock_of_nameserver, self._path.parent)
            self.table = self._wanted = await self._blocking.run(_load, self._path)
            self._saver.mark_saved()
            logger.info("settings loaded file=%s settings=%s", self._path, len(self.table))
            for namespace, size in self.table.too_large().items():
                logger.warning("namespace too large to tell namespace=%s bytes=%s", namespace, size)

    def close(self) -> None:
        """Release the directory for another NameServer; no write follows. Safe to repeat."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Store a setting. Durable on return.

        Cancelling leaves it open whether it is kept.

        Raises:
            IllegalName: As `KvTable.with_setting`; nothing changes.
            RefusedError: As `KvTable.with_setting`; nothing changes.
            StoreFailed: The disk refused; nothing changes, unless this NameServer ends before it
                has written the file again.
        """
        await self._change_to(self._wanted.with_setting(namespace, key, value))
        logger.info("setting put namespace=%s key=%s", namespace, key)

    async def delete(self, namespace: str, key: str) -> None:
        """Delete a setting; deleting an absent one succeeds. Durable on return.

        Raises:
            StoreFailed: The disk refused; nothing changes, unless this NameServer ends before it
                has written the file again.
        """
        await self._change_to(self._wanted.without_setting(namespace, key))
        logger.info("setting deleted namespace=%s key=%s", namespace, key)

    async def _change_to(self, table: KvTable) -> None:
        self._wanted = table
        saved = self._saver.saved()
        if saved is not None:
            await saved

    def _prepare(self, _is_awaited: bool) -> Callable[[], None]:
        path, wanted = self._path, self._wanted
        return (lambda: None) if path is None else (lambda: _save(path, wanted.to_json()))

    def _ended(self, table: KvTable, reason: OSError | None) -> StoreFailed | None:
        if reason is None:
            self.table = table
            return None
        self._wanted = self.table  # what came meanwhile builds on what failed: it fails too
        error = StoreFailed(f"settings are not kept: {reason}")
        error.may_have_happened = True  # until the file is written again a restart may find them
        return error


def lock_of_nameserver(directory: Path) -> DirectoryLock:
    """Lock what no other kind of service locks: a broker may have the same directory. Blocks.

    Raises:
        StoreLocked: A NameServer has it.
        OSError: The lock cannot be made.
    """
    own = directory / LOCKED_NAME
    make_directory_durably(own)
    return DirectoryLock(own)


def _load(path: Path) -> KvTable:
    return read_newest(path, kv_table_from_json) or KvTable()


def _save(path: Path, data: bytes) -> None:
    replace_durably(path, data, in_both=True)  # somebody is told that it is kept
