"""The key-value settings with the file that makes them last."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ternmq_model.errors import StoreFailed
from ternmq_nameserver.kv_table import KvTable, kv_table_from_json
from ternmq_remoting.environment import Blocking
from ternmq_runtime.directory_lock import DirectoryLock
from ternmq_runtime.durable_file import make_directory_durably, read_newest, replace_durably

FILE_NAME: Final = "kvConfig.json"

logger = logging.getLogger(__name__)


class KvStore:
    """The settings of one NameServer. Owned by its loop.

    Changes gather while the disk writes those before, and `step`, the one writer, takes them
    together. So a caller that goes away in the middle never leaves two writers behind.

    Args:
        path: The file; None keeps the settings in memory alone. Its directory belongs to this
            store from `load` to `close`: two writers would undo each other's settings.
        blocking: Runs what waits for the disk.
        wake: Makes the owner's job run `step` soon.

    Attributes:
        table: What is kept. Changes only after it is on disk.
    """

    def __init__(self, path: Path | None, blocking: Blocking, wake: Callable[[], None]) -> None:
        self.table = KvTable()
        self._path = path
        self._blocking = blocking
        self._wake = wake
        self._wanted = self.table
        self._lock: DirectoryLock | None = None
        self._waiters: list[asyncio.Future[None]] = []

    async def load(self) -> None:
        """Lock the directory, and take what the file holds; nothing when there is none.

        Raises:
            StoreLocked: Another NameServer holds the directory; names it.
            StoreError: The file is there and cannot be read, nor the generation before.
            OSError: Its directory cannot be made or locked.
        """
        if self._path is not None:
            self._lock = await self._blocking.run(_locked, self._path.parent)
            self.table = self._wanted = await self._blocking.run(_load, self._path)
            logger.info("settings loaded file=%s settings=%s", self._path, len(self.table))
            for namespace, size in self.table.too_large().items():
                logger.warning("namespace too large to tell namespace=%s bytes=%s", namespace, size)

    def close(self) -> None:
        """Let another NameServer have the directory. Safe to repeat; nothing is written after."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Keep a setting. When this returns it survives a loss of power.

        Cancelling leaves it open whether it is kept.

        Raises:
            IllegalName: As `KvTable.with_setting`; nothing changes.
            RefusedError: Likewise.
            StoreFailed: The disk refused; nothing changes.
        """
        await self._change_to(self._wanted.with_setting(namespace, key, value))
        logger.info("setting put namespace=%s key=%s", namespace, key)

    async def delete(self, namespace: str, key: str) -> None:
        """Forget a setting; forgetting an absent one succeeds. Durable as `put`.

        Raises:
            StoreFailed: The disk refused; nothing changes.
        """
        await self._change_to(self._wanted.without_setting(namespace, key))
        logger.info("setting deleted namespace=%s key=%s", namespace, key)

    async def step(self) -> bool:
        """Write what is wanted and answer who waits for it; return whether more came meanwhile."""
        if self._wanted is self.table:
            return False
        wanted, waiters = self._wanted, self._waiters
        self._waiters = []
        try:
            if self._path is not None:
                await self._blocking.run(_save, self._path, wanted.to_json())
        except OSError as error:
            # What came meanwhile builds on what failed: it fails too.
            waiters += self._waiters
            self._wanted, self._waiters = self.table, []
            logger.error("settings not written file=%s reason=%s", self._path, error)
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(StoreFailed(f"settings are not kept: {error}"))
            return False
        self.table = wanted
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        return self._wanted is not self.table

    async def _change_to(self, table: KvTable) -> None:
        if table is self.table:
            return
        self._wanted = table
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._wake()
        await waiter


def _locked(directory: Path) -> DirectoryLock:
    make_directory_durably(directory)
    return DirectoryLock(directory)


def _load(path: Path) -> KvTable:
    return read_newest(path, kv_table_from_json) or KvTable()


def _save(path: Path, data: bytes) -> None:
    replace_durably(path, data, in_both=True)  # somebody is told that it is kept
