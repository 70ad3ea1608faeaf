"""The highest epochs of broker names, with the file that stores them."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ternmq_model.epochs import EPOCH_MAX, REPAIR_COMMAND
from ternmq_model.errors import StoreFailed
from ternmq_nameserver.epoch_table import EpochTable, epoch_table_from_json
from ternmq_remoting.environment import Blocking
from ternmq_runtime.durable_file import read_newest, replace_durably
from ternmq_runtime.state_saver import StateSaver

FILE_NAME: Final = "brokerEpochs.json"

logger = logging.getLogger(__name__)


class EpochStore:
    """The epochs of one NameServer. Owned by its loop; `job` is the one writer of the file.

    A reported epoch is never lower than an accepted one: a raise counts from its call on, and is
    acknowledged when it is on the disk. A raise that the disk refuses still counts until the
    process ends: its master has begun that epoch, whether this NameServer can save it or not.

    Args:
        path: The file; None keeps the epochs in memory alone. The caller of `load` holds its
            directory, so that no other process writes it.
        blocking: Runs calls that wait for the disk.

    Attributes:
        job: Job that saves changes.
    """

    def __init__(self, path: Path | None, blocking: Blocking) -> None:
        self._path = path
        self._blocking = blocking
        self._table = EpochTable()
        self._saved = self._table
        self._saver = StateSaver(
            path,
            blocking.run,
            state=lambda: self._table,
            prepare=self._prepare,
            ended=self._ended,
            job_name="epochs",
        )
        self.job = self._saver.job
        self._saver.mark_saved()

    async def load(self) -> None:
        """Load the file, if there is one.

        Raises:
            StoreError: The file is there and cannot be read, nor the generation before.
        """
        if self._path is not None:
            self._table = self._saved = await self._blocking.run(load_epochs, self._path)
            self._saver.mark_saved()
            logger.info("epochs loaded file=%s names=%s", self._path, len(self._table))
            for (cluster, name), epoch in self._table:
                if epoch > EPOCH_MAX:  # of a version that still took it
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
        return self._table.get(cluster, broker_name)

    def has_saved(self, cluster: str, broker_name: str, epoch: int) -> bool:
        """Return whether `accept` would return at once."""
        now, saved = (each.get(cluster, broker_name) for each in (self._table, self._saved))
        return epoch <= saved <= now  # another name may have taken its place

    async def accept(self, cluster: str, broker_name: str, epoch: int) -> None:
        """Raise the epoch of a broker name. When this returns, that survives a loss of power.

        A lower or equal epoch changes nothing. Cancelling leaves it open whether it is kept.

        Raises:
            RefusedError: No more names fit; nothing changes.
            StoreFailed: The disk refused; another call tries again.
        """
        self._table = self._table.raised(cluster, broker_name, epoch)
        if self.has_saved(cluster, broker_name, epoch):
            return
        saved = self._saver.saved()
        if saved is not None:
            await saved

    def _prepare(self, _is_awaited: bool) -> Callable[[], None]:
        path, table = self._path, self._table
        return (lambda: None) if path is None else (lambda: save_epochs(path, table))

    def _ended(self, table: EpochTable, reason: OSError | None) -> StoreFailed | None:
        if reason is None:
            self._saved = table
            return None
        return StoreFailed(f"the epoch is not kept: {reason}")


def load_epochs(path: Path) -> EpochTable:
    """Return what the file holds; an empty table when there is none. Blocks.

    Raises:
        StoreError: It cannot be read, nor the generation before.
    """
    table = read_newest(path, epoch_table_from_json)
    if table is None and any(path.parent.glob("*.json")):
        logger.warning("no epochs are kept here, brokers tell theirs again file=%s", path)
    return table or EpochTable()


def save_epochs(path: Path, table: EpochTable) -> None:
    """Save a table in both generations, since its save is acknowledged. Blocks.

    Raises:
        OSError: The disk refused; the file before can still be read.
    """
    replace_durably(path, table.to_json(), in_both=True)
