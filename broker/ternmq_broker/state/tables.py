"""The broker's tables together with the files that keep them."""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from ternmq_broker.config import BrokerConfig
from ternmq_broker.state.delay_offsets import DelayOffsets
from ternmq_broker.state.filters import FilterTable
from ternmq_broker.state.groups import GroupTable
from ternmq_broker.state.offset_versions import OffsetVersions
from ternmq_broker.state.offsets import OffsetTable
from ternmq_broker.state.recovered_topics import put_found_topics
from ternmq_broker.state.table_file import TableFile
from ternmq_broker.state.table_formats import (
    DELAYS,
    FILTERS,
    GROUPS,
    OFFSETS,
    TIMER,
    TOPICS,
    TRANSACTIONS,
    VERSIONS,
    StoredTables,
    find_tables,
)
from ternmq_broker.state.table_generations import TableFormat, check_refusals, config_folder, settle
from ternmq_broker.state.timer_checkpoint import TimerCheckpoint
from ternmq_broker.state.timer_files import TimerFiles
from ternmq_broker.state.topics import TopicTable
from ternmq_broker.state.transaction_scan_offset import GROUP as TRANSACTIONS_GROUP
from ternmq_broker.state.transaction_scan_offset import ScanOffset
from ternmq_model.data_version import DataVersion
from ternmq_model.errors import StoreError
from ternmq_model.names import TRACE_TOPIC
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.route import READ_WRITE, TopicConfig
from ternmq_remoting.environment import Blocking
from ternmq_runtime.service import Job
from ternmq_runtime.shielded_call import run_shielded
from ternmq_security.access_store import FILE_NAME as ACCESS_FILE
from ternmq_security.access_store import AccessFile
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.state_file import read_generations, replace_file
from ternmq_store.message_store import MessageStore

logger = logging.getLogger(__name__)

_FILTERS_INTERVAL_S: Final = 10.0
"""RocketMQ's interval between saves of filters."""


class Tables:
    """Topics, groups, offsets and filters, loaded and saved. Owned by the broker's loop.

    `load_tables` builds them. Topics and groups are saved when they change, the others at an
    interval and at the end.
    """

    def __init__(
        self,
        config: BrokerConfig,
        files: FileSystem,
        blocking: Blocking,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        delays: DelayOffsets,
        filters: FilterTable,
        scan_offset: ScanOffset,
        *,
        unsaved: frozenset[str],
    ) -> None:
        self.topics = topics
        self.groups = groups
        self.offsets = offsets
        self.delays = delays
        self.filters, self.scan_offset = filters, scan_offset
        self.timer = TimerCheckpoint()
        """Checkpoint of timed messages, as it was last saved."""
        self.timer_files = TimerFiles(files, blocking, config.data)
        self.access_file = AccessFile(
            config_folder(config.data) / ACCESS_FILE,
            read=partial(read_generations, files),
            replace=partial(replace_file, files, in_both=True),
        )
        """File of users and permissions, which NameServers change."""
        self._timer_path = config_folder(config.data) / TIMER.name
        self._disk = (files, blocking)
        self._unsaved = unsaved
        offsets_interval_s = config.offsets_interval_ms / 1000
        self._files: list[TableFile] = []
        versions = offsets.versions
        self.topics_file = self._file(TOPICS, lambda: topics.version, topics.to_written)
        self.groups_file = self._file(GROUPS, lambda: groups.version, groups.to_dict)
        self.offsets_file = self._file(
            OFFSETS,
            lambda: offsets.changes,
            offsets.to_dict,
            interval_s=offsets_interval_s,
            on_saved=offsets.note_saved,
        )
        self.versions_file = self._file(VERSIONS, lambda: versions.changes, versions.to_dict)
        # After a crash, later deliveries are searched for in the log. (RocketMQ saves every 10 s.)
        self.delays_file = self._file(DELAYS, lambda: delays.changes, delays.to_dict)
        self._file(
            FILTERS, lambda: filters.changes, filters.to_dict, interval_s=_FILTERS_INTERVAL_S
        )
        self._file(
            TRANSACTIONS,
            lambda: scan_offset.offset,
            scan_offset.to_dict,
            interval_s=offsets_interval_s,
        )

    def _file(
        self,
        table: TableFormat[Any],
        changes: Callable[[], object],
        to_dict: Callable[[], dict[str, Any]],
        *,
        interval_s: float = 1.0,
        on_saved: Callable[[Any], None] = lambda _changes: None,
    ) -> TableFile:
        files, blocking = self._disk
        file = TableFile(
            self._timer_path.with_name(table.name),
            files,
            blocking,
            changes=changes,
            to_dict=to_dict,
            interval_s=interval_s,
            on_saved=on_saved,
        )
        if table.name not in self._unsaved:
            file.mark_saved()
        self._files.append(file)
        return file

    def jobs(self) -> tuple[Job, ...]:
        """Return the jobs that save changed tables."""
        return tuple(file.job for file in self._files)

    async def cut(
        self, end_of: Callable[[str, int], QueueOffset], *, log_end: PhysicalOffset
    ) -> None:
        """Remove the state of messages that were cut from the log. Durable when it returns.

        The progress of deliveries and transactions included records that were cut, so it is
        removed. The master sends it again. A member that is promoted before that repeats the
        deliveries, except those that a master makes behind the cut.

        Args:
            end_of: Returns the end of a queue of a topic.
            log_end: End of the log after the cut.

        Raises:
            StoreError: The disk refused; another call is needed.
        """
        self.delays.forget()
        self.delays.put_search_start(log_end)
        self.scan_offset.offset = PhysicalOffset(0)
        self.offsets.remove_group(TRANSACTIONS_GROUP)
        self.offsets.cut_to(end_of)
        await self.save_timer(TimerCheckpoint(look_behind=1 + log_end))
        await self.save()

    async def save_timer(self, checkpoint: TimerCheckpoint) -> None:
        """Save the checkpoint of timed messages durably. One call at a time.

        Raises:
            StoreError: The disk refused; the previous checkpoint can still be read.
        """
        files, blocking = self._disk
        write = partial(replace_file, files, self._timer_path, checkpoint.encode())
        outcome: list[OSError | None] = []
        await run_shielded(blocking.run, write, outcome.append)
        if outcome[0] is not None:
            raise StoreError(f"{self._timer_path} not saved: {outcome[0]}") from outcome[0]
        self.timer = checkpoint

    async def begin(self) -> Sequence[str]:
        """Write the tables that have no file with a checksum; return the names of all files.

        Raises:
            StoreError: The disk refused; the jobs try again.
        """
        if self._unsaved - {TOPICS.name}:
            await self.save()
        if TIMER.name in self._unsaved:
            await self.save_timer(self.timer)
        self._unsaved = frozenset[str]()
        return [*(file.name for file in self._files), TIMER.name]

    async def save(self) -> None:
        """Save the tables that changed since the jobs ended.

        Raises:
            StoreError: Names every table that could not be saved; the others are saved.
        """
        errors = [error for file in self._files if (error := await file.save()) is not None]
        if errors:
            raise StoreError("; ".join(map(str, errors)))


def _log_odd(found: Mapping[str, Mapping[str, object]]) -> None:
    for name, odd in found.items():
        if odd:
            logger.warning(
                "entries with illegal names retained and not used file=%s count=%s first=%r",
                name,
                len(odd),
                next(iter(odd)),
            )


async def load_tables(
    config: BrokerConfig,
    files: FileSystem,
    blocking: Blocking,
    store: MessageStore,
    *,
    is_slave: bool = False,
    now_ms: int,
) -> Tables:
    """Return the tables of the data directory; empty tables where there never were any.

    A damaged main file is replaced by the previous generation. Topics with queues in the store are
    added to the table of topics.

    A crash may have left offsets of a deleted topic: offsets in missing topics are removed. Offsets
    beyond the end of a queue are set to that end, or to 0 in a recreated topic, with a raised
    version. A slave has the tables of its master, and the master's log may be longer: all offsets
    stay.

    Args:
        config: Settings of the broker.
        files: File system of the data directory; used in the blocking pool only.
        blocking: Runs calls on files.
        store: The open store.
        is_slave: The broker is a slave, which starts without the tables that its master sends.
        now_ms: Wall clock.

    Raises:
        UndecidedStore: Some tables exist and have no valid generation; names all of them.
        OSError: The disk failed.
    """
    await blocking.run(files.make_folder, config_folder(config.data))
    find = partial(find_tables, files, config.data, noted=store.session.notes.tables, now_ms=now_ms)
    found = await blocking.run(find)
    check_refusals(config.data, found, is_slave=is_slave)
    # The last one, of replication, is settled by its owner, which loads it before the store.
    await blocking.run(partial(settle, files, config.data, found[:-1], is_slave=is_slave))
    version = DataVersion(now_ms)
    topics = TopicTable(version) if found.topics.table is None else found.topics.table
    topics.log_end = lambda: store.max_physical
    offsets = found.offsets.table or OffsetTable(version)
    offsets.versions = found.versions.table or OffsetVersions()
    offsets.is_awaited = bool(found.offsets.refusal)
    delays = found.delays.table or DelayOffsets(version)
    if found.delays.taken is not None and not found.delays.taken.has_checksum:
        # Another program wrote the file: its deliveries name no sources.
        delays.search_from = None
    if not is_slave:
        # A table may be older than the log: one from a backup has a right checksum.
        put_found_topics(topics, store.queues(), now_ms=now_ms)
        if found.offsets.is_absent and any(store.queues()):
            logger.warning(
                "no offsets found, groups begin as new groups file=%s", found.offsets.main.path
            )
        topics.settle_created(store.deletions, now_ms=now_ms)
    topics.set_template(
        queues=config.default_topic_queues, is_allowed=config.auto_create_topics, now_ms=now_ms
    )
    if config.trace_topic_enabled and topics.get(TRACE_TOPIC) is None:
        topics.put(TopicConfig(TRACE_TOPIC, 1, 1, READ_WRITE), now_ms=now_ms)
    groups = found.groups.table or GroupTable(version)
    _log_odd({TOPICS.name: topics.odd, GROUPS.name: groups.odd, OFFSETS.name: offsets.odd})
    tables = Tables(
        config,
        files,
        blocking,
        topics,
        groups,
        offsets,
        delays,
        found.filters.table or FilterTable(),
        found.transactions.table or ScanOffset(PhysicalOffset(0)),
        unsaved=_unsaved(found),
    )
    tables.timer = found.timer.table or tables.timer
    if is_slave:
        await _disown(tables)
        return tables
    offsets.versions.keep_topics(lambda topic: topics.get(topic) is not None)
    offsets.keep_up_to(
        lambda topic, queue_id: (
            None if topics.get(topic) is None else store.next_offset(topic, queue_id)
        ),
        deleted=store.deletions,
    )
    return tables


async def _disown(tables: Tables) -> None:
    """Remove the timer log of a former master: the new master sends the waiting messages."""
    if tables.timer.timer_log_position:
        return  # RocketMQ's, which a master takes over
    try:
        await tables.timer_files.retire()
    except OSError as error:
        logger.error("timer files of RocketMQ not retired err=%s", error)


def _unsaved(found: StoredTables) -> frozenset[str]:
    """Return the names of the tables that must be written, changed or not.

    A lost table of a slave is not written before the master has sent it. Topics are always written,
    because settings may have changed their template.
    """
    unsaved = (each.format.name for each in found if not (each.is_current or each.refusal))
    return frozenset((TOPICS.name, *unsaved))
