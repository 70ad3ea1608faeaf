"""The replication record of a member, and its file."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from ternmq_broker.state.epochs import Epochs, begin, cut_to, newest
from ternmq_broker.state.fastjson import write_json
from ternmq_broker.state.replication_record import LogCut, ReplicationRecord
from ternmq_broker.state.table_formats import REPLICATION
from ternmq_broker.state.table_generations import StoredTable, config_folder, find_table, settle
from ternmq_broker.state.tables import Tables
from ternmq_model.epochs import EPOCH_MAX, REPAIR_COMMAND, doubt_of
from ternmq_model.errors import StoreError
from ternmq_model.json_checksum import add_checksum
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.route import BrokerMember
from ternmq_remoting.environment import Blocking
from ternmq_runtime.service import Job
from ternmq_runtime.shielded_call import run_shielded
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.reserve_file import replace_file_from_reserve
from ternmq_store.message_store import MessageStore

logger = logging.getLogger(__name__)

_Change = Callable[[ReplicationRecord], ReplicationRecord]


class ReplicationState:
    """Replication record of a member, and its file. Owned by the broker's loop, for one term.

    A change is visible when it is on the disk. Only the highest epoch and the members, which other
    processes report, change at once and are saved soon.

    Args:
        root: The data directory; the file's folder is made with the first change.
        files: Used in the blocking pool only.
        is_current: True when the file has a checksum, or the record is that of a new member.

    Attributes:
        saving: The job that saves reported epochs and members.
    """

    def __init__(
        self,
        root: Path,
        files: FileSystem,
        blocking: Blocking,
        record: ReplicationRecord,
        *,
        is_current: bool = True,
    ) -> None:
        self._root = root
        self._path = config_folder(root) / REPLICATION.name
        self._files = files
        self._blocking = blocking
        self._record: ReplicationRecord = record
        self._saved: ReplicationRecord = record
        self._is_current = is_current
        self._writing = asyncio.Lock()
        self._is_failing = False
        self.saving: Final = Job(name="save-replication", interval_s=1.0, step=self.save)

    @classmethod
    async def load(cls, root: Path, files: FileSystem, blocking: Blocking) -> "ReplicationState":
        """Return the record below `root`, or the record of a new member without a file.

        Raises:
            StoreError: The file and its previous generation are damaged, so the promises to other
                members are unknown. Or the record has a made-up epoch above which none can begin.
        """

        def find() -> StoredTable[ReplicationRecord]:
            folder = config_folder(root)
            found = find_table(files, folder, REPLICATION, was_there=False, now_ms=0)
            settle(files, root, [found])
            return found

        found = await blocking.run(find)
        is_current = found.is_current or found.is_absent
        record = found.table or ReplicationRecord()
        repair = f"{REPAIR_COMMAND} BROKER --data {root}"
        if record.highest_known > EPOCH_MAX:
            raise StoreError(
                f"{found.main.path} holds epoch {record.highest_known}, which was made up: no"
                f" epoch can begin above it. Repair it: {repair}"
            )
        if record.epochs and doubt_of(record.highest_known, newest(record.epochs)):
            logger.error(
                "highest epoch may be made up epoch=%s log_epoch=%s repair=%r",
                record.highest_known,
                newest(record.epochs),
                repair,
            )
        return cls(root, files, blocking, record, is_current=is_current)

    @property
    def record(self) -> ReplicationRecord:
        """The whole record."""
        return self._record

    @property
    def store_id(self) -> str:
        """Id of the store whose bytes the log holds; empty until it has begun or follows one."""
        return self._record.store_id

    @property
    def epochs(self) -> Epochs:
        """Epochs of the log."""
        return self._record.epochs

    @property
    def highest_epoch(self) -> int:
        """Highest epoch that the log holds or the member knows of."""
        return self._record.highest_known

    @property
    def is_saved(self) -> bool:
        """True when the file holds the whole record."""
        return self._is_current and self._record is self._saved

    @property
    def members(self) -> Sequence[BrokerMember]:
        """Members of the broker name, as last known."""
        return self._record.members

    def note_epoch(self, epoch: int) -> str:
        """Record an epoch that has begun at another member; saved soon.

        Args:
            epoch: Number that a NameServer or a trusted master reports.

        Returns:
            Reason for which the epoch is rejected and changes nothing; "" when it is accepted.
        """
        doubt = doubt_of(epoch)
        if epoch > self._record.highest_known and not doubt:
            self._record = replace(self._record, highest_epoch=epoch)
        return doubt

    def remember(self, members: Sequence[BrokerMember]) -> None:
        """Record the members of the broker name; saved soon."""
        self._record = replace(self._record, members=tuple(members))

    async def begin_epoch(self, number: int, start: PhysicalOffset, *, store_id: str) -> None:
        """Begin an epoch at the log's end: this member is the master. Durable when it returns.

        Args:
            number: Number of the epoch, above all earlier numbers.
            start: End of the log. For a log without epochs, its start, so that all bytes belong
                to the new epoch.
            store_id: Store id for a log without one.

        Raises:
            StoreError: The disk refused; the epoch has not begun.
        """

        def change(record: ReplicationRecord) -> ReplicationRecord:
            is_master = True if record.is_master is not None else None
            return replace(_with_epoch(record, number, start, store_id), is_master=is_master)

        await self._change(change)
        logger.info("epoch begins epoch=%s log_offset=%s", number, start)

    async def promote(self, number: int, start: PhysicalOffset, *, store_id: str) -> None:
        """Begin an epoch like `begin_epoch`, and make this member the master."""

        def change(record: ReplicationRecord) -> ReplicationRecord:
            begun = _with_epoch(record, number, start, store_id)
            return replace(begun, is_master=True, is_replicated=True)

        await self._change(change)
        logger.info("promoted epoch=%s log_offset=%s", number, start)

    async def become_slave(self, highest_epoch: int, *, confirmed: PhysicalOffset) -> None:
        """Make this member a slave from the next term on. Durable when it returns.

        Args:
            highest_epoch: Highest known epoch.
            confirmed: Confirm offset, up to which the member serves until it follows.

        Raises:
            StoreError: The disk refused.
        """

        def change(record: ReplicationRecord) -> ReplicationRecord:
            return replace(
                record,
                is_master=False,
                is_replicated=True,
                highest_epoch=max(record.highest_epoch, highest_epoch),
                confirmed=confirmed,
            )

        await self._change(change)

    async def note_unclean(self) -> None:
        """Record that a master did not stop in order, and so must begin an epoch at a later start.

        The record is durable when the call returns; a second call changes nothing.

        Raises:
            StoreError: The disk refused.
        """
        if self._record.epochs and not self._saved.is_unclean:
            await self._change(lambda record: replace(record, is_unclean=True))

    async def note_replicated(self) -> None:
        """Record that other members may have this log, so that a later start polls them.

        Durable when it returns. Later calls change nothing.

        Raises:
            StoreError: The disk refused.
        """
        if not self._saved.is_replicated:
            await self._change(lambda record: replace(record, is_replicated=True))

    async def adopt(
        self,
        *,
        store_id: str,
        epochs: Epochs,
        highest_epoch: int,
        master_role: str,
        in_sync_replicas: int,
    ) -> None:
        """Record the master's epochs, role and store. Durable on return.

        From then on the member is a slave, however it is configured, until a promotion.

        Raises:
            StoreError: The disk refused; the record before counts.
        """

        def change(record: ReplicationRecord) -> ReplicationRecord:
            return replace(
                record,
                store_id=store_id,
                epochs=epochs,
                highest_epoch=max(record.highest_epoch, highest_epoch),
                master_role=master_role,
                in_sync_replicas=in_sync_replicas,
                is_replicated=True,
                # Its epochs are another's: to be the master it has to begin one of its own.
                is_master=False,
            )

        await self._change(change)

    async def keep_confirmed(self, offset: PhysicalOffset) -> None:
        """Save the master's confirm offset. Durable on return.

        Raises:
            StoreError: The disk refused; the record before counts.
        """
        await self._change(lambda record: replace(record, confirmed=offset), in_both=False)

    async def decide_cut(self, cut: LogCut) -> None:
        """Record a cut of the log for its next opening. Durable on return.

        Raises:
            StoreError: The disk refused; no cut is recorded.
        """
        await self._change(lambda record: replace(record, cut=cut))

    async def settle_cut(self, store: MessageStore, tables: Tables, *, was_slave: bool) -> None:
        """Remove state of the end of the log after a cut, or after a power loss of a slave.

        Raises:
            StoreError: The disk refused; the next start repeats this.
        """
        has_lost_end = was_slave and store.max_physical < self.record.confirmed
        if self.record.cut is not None or has_lost_end:
            await tables.cut(store.next_offset, log_end=store.max_physical)
        if self.record.cut is not None:
            await self.cut_done(store.max_physical)

    async def cut_done(self, end: PhysicalOffset) -> None:
        """Record that the log was cut, and ends at `end`. Durable on return.

        Raises:
            StoreError: The disk refused; the log is cut again, without effect.
        """

        def change(record: ReplicationRecord) -> ReplicationRecord:
            is_empty = record.cut is not None and record.cut.starts_over
            return replace(
                record,
                cut=None,
                epochs=() if is_empty else cut_to(record.epochs, end),
                highest_epoch=record.highest_known,
                store_id="" if is_empty else record.store_id,
                confirmed=min(record.confirmed, end),
            )

        await self._change(change)

    async def save(self) -> bool:
        """Save the record if it has changed: the step of a job, and the last act of a term."""
        if self.is_saved:
            return False
        try:
            await self._change(lambda record: record, in_both=False)
        except StoreError as error:
            if not self._is_failing:
                logger.error("replication state not saved err=%s", error)
            self._is_failing = True
            return False
        self._is_failing = False
        return False

    async def _change(self, change: _Change, *, in_both: bool = True) -> None:
        """Save a change, in both generations unless the older one is as good."""
        async with self._writing:
            changed = change(self._record)
            if changed == self._saved and self._is_current:
                self._record = self._saved = changed
                return
            data = add_checksum(write_json(changed.to_dict()))
            outcome: list[OSError | None] = []
            write = partial(self._write, data, in_both=in_both)
            # A write may have reached the file although it failed or its caller was cancelled.
            self._is_current = False
            await run_shielded(self._blocking.run, write, outcome.append)
            if outcome[0] is not None:
                raise StoreError(f"{self._path} not saved: {outcome[0]}") from outcome[0]
            reported = self._record  # may have changed while the disk was at work
            self._saved = changed
            self._is_current = True
            self._record = replace(
                changed,
                highest_epoch=max(changed.highest_epoch, reported.highest_epoch),
                members=reported.members,
            )
            if self._record == changed:
                self._record = changed

    def _write(self, data: bytes, *, in_both: bool) -> None:
        self._files.make_folder(self._path.parent)
        replace_file_from_reserve(self._files, self._root, self._path, data, in_both=in_both)


def _with_epoch(
    record: ReplicationRecord, number: int, start: PhysicalOffset, store_id: str
) -> ReplicationRecord:
    return replace(
        record,
        epochs=begin(record.epochs, number, start),
        highest_epoch=max(record.highest_epoch, number),
        store_id=record.store_id or store_id,
        is_unclean=False,
        cut=None,
    )
