"""The key-value settings, with the file that stores them."""

import logging
from pathlib import Path
from typing import Final

from ternmq_nameserver.kv_table import KvTable, kv_table_from_json
from ternmq_remoting.environment import Blocking
from ternmq_runtime.directory_lock import DirectoryLock
from ternmq_runtime.durable_file import make_directory_durably, read_newest
from ternmq_runtime.table_store import TableStore

FILE_NAME: Final = "kvConfig.json"
LOCKED_NAME: Final = "nameserver.lock"
"""Directory of the lock file alone."""

logger = logging.getLogger(__name__)


class KvStore(TableStore[KvTable]):
    """The settings of one NameServer.

    A change that the disk refuses is undone, in the file too, as soon as the disk allows it.

    The directory of the file belongs to this store from `load` to `close`: two writers would undo
    each other's settings.
    """

    def __init__(self, path: Path | None, blocking: Blocking) -> None:
        super().__init__(path, blocking, KvTable(), kind="settings", undoes_refused=True)
        self._lock: DirectoryLock | None = None

    async def load(self) -> None:
        """Lock the directory, and load the file, if there is one.

        Raises:
            StoreLocked: Another NameServer holds the directory; names it.
            StoreError: Neither the file nor its previous generation can be read.
            OSError: The directory cannot be created or locked.
        """
        if self._path is not None:
            self._lock = await self._blocking.run(lock_of_nameserver, self._path.parent)
            found = await self._blocking.run(read_newest, self._path, kv_table_from_json)
            self._loaded(found or KvTable())
            logger.info("settings loaded file=%s count=%s", self._path, len(self.table))
            for namespace, size in self.table.too_large().items():
                logger.warning(
                    "namespace too large for a reply namespace=%s bytes=%s", namespace, size
                )

    def close(self) -> None:
        """Release the directory for another NameServer; no write follows. Safe to repeat."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Store a setting. Durable on return.

        A cancelled call may store the setting.

        Raises:
            IllegalName: The namespace or key is illegal; nothing changes.
            RefusedError: The table refuses the setting; nothing changes.
            StoreFailed: The disk refused; nothing changes, unless this NameServer ends before it
                has written the file again.
        """
        await self._change_to(self._newest.with_setting(namespace, key, value))
        logger.info("setting put namespace=%s key=%s", namespace, key)

    async def delete(self, namespace: str, key: str) -> None:
        """Delete a setting; deleting an absent one succeeds. Durable on return.

        Raises:
            StoreFailed: The disk refused; nothing changes, unless this NameServer ends before it
                has written the file again.
        """
        await self._change_to(self._newest.without_setting(namespace, key))
        logger.info("setting deleted namespace=%s key=%s", namespace, key)


def lock_of_nameserver(directory: Path) -> DirectoryLock:
    """Lock a directory for a NameServer. A broker may use the same directory. Blocks.

    Raises:
        StoreLocked: Another NameServer holds the directory.
        OSError: The lock cannot be created.
    """
    own = directory / LOCKED_NAME
    make_directory_durably(own)
    return DirectoryLock(own)
