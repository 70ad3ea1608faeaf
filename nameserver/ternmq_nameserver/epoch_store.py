"""The highest epochs of broker names, with the file that stores them."""

import logging
from pathlib import Path
from typing import Final

from ternmq_model.epochs import EPOCH_MAX, REPAIR_COMMAND
from ternmq_nameserver.epoch_table import EpochTable, epoch_table_from_json
from ternmq_remoting.environment import Blocking
from ternmq_runtime.durable_file import read_newest
from ternmq_runtime.table_store import TableStore

FILE_NAME: Final = "brokerEpochs.json"

logger = logging.getLogger(__name__)


class EpochStore(TableStore[EpochTable]):
    """The epochs of one NameServer.

    A reported epoch is never lower than an accepted one: a raise counts from its call on, and is
    acknowledged when it is on the disk. A raise that the disk refuses still counts until the
    process ends: its master has begun that epoch, whether this NameServer can save it or not.

    The caller of `load` holds the directory of the file, so that no other process writes it.
    """

    def __init__(self, path: Path | None, blocking: Blocking) -> None:
        super().__init__(path, blocking, EpochTable(), kind="epochs")

    async def load(self) -> None:
        """Load the file, if there is one.

        Raises:
            StoreError: Neither the file nor its previous generation can be read.
        """
        if self._path is not None:
            self._loaded(await self._blocking.run(load_epochs, self._path))
            logger.info("epochs loaded file=%s count=%s", self._path, len(self._newest))
            for (cluster, name), epoch in self._newest:
                if epoch > EPOCH_MAX:  # an early version accepted it
                    logger.error(
                        "epoch is made up, no master can register cluster=%s broker=%s epoch=%s"
                        " repair=%r",
                        cluster,
                        name,
                        epoch,
                        f"{REPAIR_COMMAND} {name} --data {self._path} --cluster {cluster}",
                    )

    def highest(self, cluster: str, broker_name: str) -> int:
        """Return the highest epoch of a broker name that was ever accepted; 0 for none."""
        return self._newest.get(cluster, broker_name)

    def has_saved(self, cluster: str, broker_name: str, epoch: int) -> bool:
        """Return whether `accept` would return at once."""
        now, saved = (each.get(cluster, broker_name) for each in (self._newest, self._saved))
        return epoch <= saved <= now  # a full table drops names

    async def accept(self, cluster: str, broker_name: str, epoch: int) -> None:
        """Raise the epoch of a broker name. Durable on return.

        A lower or equal epoch changes nothing. A cancelled call may raise the epoch.

        Raises:
            RefusedError: No more names fit; nothing changes.
            StoreFailed: The disk refused; another call tries again.
        """
        self._newest = self._newest.raised(cluster, broker_name, epoch)
        if not self.has_saved(cluster, broker_name, epoch):
            await self._change_to(self._newest)


def load_epochs(path: Path) -> EpochTable:
    """Return the table in a file; an empty table without a file. Blocks.

    Raises:
        StoreError: Neither the file nor its previous generation can be read.
    """
    table = read_newest(path, epoch_table_from_json)
    if table is None and any(path.parent.glob("*.json")):
        logger.warning("no epochs found, brokers will register theirs again file=%s", path)
    return table or EpochTable()
