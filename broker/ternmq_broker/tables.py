"""The broker's tables together with the files that keep them."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from ternmq_broker.config import BrokerConfig
from ternmq_broker.consumer_filters import FilterTable
from ternmq_broker.consumer_offsets import OffsetTable
from ternmq_broker.delay_offsets import DelayOffsets
from ternmq_broker.groups import GroupTable
from ternmq_broker.offset_versions import FILE_NAME as VERSIONS_FILE
from ternmq_broker.offset_versions import OffsetVersions
from ternmq_broker.state_files import StateFile, read_table
from ternmq_broker.timer.checkpoint import TimerCheckpoint
from ternmq_broker.topics import TopicTable
from ternmq_broker.transactions.progress import FILE_NAME as TRANSACTIONS_FILE
from ternmq_broker.transactions.progress import GROUP as TRANSACTIONS_GROUP
from ternmq_broker.transactions.progress import ScanOffset
from ternmq_model.data_version import DataVersion
from ternmq_model.errors import StoreError
from ternmq_model.names import TRACE_TOPIC
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.route import READ_WRITE, TopicConfig
from ternmq_remoting.environment import Blocking
from ternmq_runtime.service import Job
from ternmq_runtime.whole_calls import run_whole
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.state_file import read_generations, replace_file

T = TypeVar("T")

TOPICS_JOB: Final = "save-topics"
GROUPS_JOB: Final = "save-groups"
OFFSETS_JOB: Final = "save-offsets"
VERSIONS_JOB: Final = "save-offset-versions"
TIMER_FILE: Final = "timercheck"
DELAYS_JOB: Final = "save-delay-offsets"
FILTERS_JOB: Final = "save-filters"
TRANSACTIONS_JOB: Final = "save-transactions"

_RETRY_PAUSE_S: Final = 1.0
_DELAYS_INTERVAL_S: Final = 1.0
"""What was delivered since comes twice after a crash. (RocketMQ: 10 s.)"""

_SLOW_INTERVAL_S: Final = 10.0
"""How often RocketMQ saves filters."""


class Tables:
    """Topics, groups, offsets and filters, loaded and saved. Owned by the broker's loop.

    Make it with `load_tables`. Topics and groups are saved when they change, the others at an
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
        wake: Callable[[str], None],
    ) -> None:
        folder = config_folder(config.data)
        self.topics = topics
        self.groups = groups
        self.offsets = offsets
        self.delays = delays
        self.filters = filters
        self.scan_offset = scan_offset
        self.timer = TimerCheckpoint()
        """How far timed messages are delivered, as last kept."""
        self._timer_path = folder / TIMER_FILE
        self._disk = (files, blocking)
        self._offsets_interval_s = config.offsets_interval_ms / 1000

        def state_file(
            name: str,
            job: str,
            changes: Callable[[], object],
            to_dict: Callable[[], dict[str, Any]],
        ) -> StateFile:
            return StateFile(
                *(folder / name, files, blocking),
                changes=changes,
                to_dict=to_dict,
                wake=lambda: wake(job),
            )

        versions = offsets.versions
        self.topics_file = state_file(
            "topics.json", TOPICS_JOB, lambda: topics.version, topics.to_dict
        )
        self.groups_file = state_file(
            "subscriptionGroup.json", GROUPS_JOB, lambda: groups.version, groups.to_dict
        )
        self.offsets_file = state_file(
            "consumerOffset.json", OFFSETS_JOB, lambda: offsets.changes, offsets.to_dict
        )
        self.versions_file = state_file(
            VERSIONS_FILE, VERSIONS_JOB, lambda: versions.changes, versions.to_dict
        )
        self.delays_file = state_file(
            "delayOffset.json", DELAYS_JOB, lambda: delays.changes, delays.to_dict
        )
        self.filters_file = state_file(
            "consumerFilter.json", FILTERS_JOB, lambda: filters.changes, filters.to_dict
        )
        self.transactions_file = state_file(
            TRANSACTIONS_FILE, TRANSACTIONS_JOB, lambda: scan_offset.offset, scan_offset.to_dict
        )
        for file in self._files():
            if file is not self.topics_file:
                file.mark_saved()

    def _files(self) -> tuple[StateFile, ...]:
        return (
            self.topics_file,
            self.groups_file,
            self.offsets_file,
            self.versions_file,
            self.delays_file,
            self.filters_file,
            self.transactions_file,
        )

    def jobs(self) -> tuple[Job, ...]:
        """Return the jobs that save what changed."""
        return (
            Job(name=TOPICS_JOB, interval_s=_RETRY_PAUSE_S, step=self.topics_file.step),
            Job(name=GROUPS_JOB, interval_s=_RETRY_PAUSE_S, step=self.groups_file.step),
            Job(name=OFFSETS_JOB, interval_s=self._offsets_interval_s, step=self.offsets_file.step),
            Job(name=VERSIONS_JOB, interval_s=_RETRY_PAUSE_S, step=self.versions_file.step),
            Job(name=DELAYS_JOB, interval_s=_DELAYS_INTERVAL_S, step=self.delays_file.step),
            Job(name=FILTERS_JOB, interval_s=_SLOW_INTERVAL_S, step=self.filters_file.step),
            Job(
                name=TRANSACTIONS_JOB,
                interval_s=self._offsets_interval_s,
                step=self.transactions_file.step,
            ),
        )

    async def cut(self, end_of: Callable[[str, int], QueueOffset]) -> None:
        """Forget what was known of messages that were cut from the log. Durable when it returns.

        How far messages were delivered and transactions done with was told by what was cut as well
        as by what stays, so none of it counts: the master tells it, and who is promoted before that
        does it again.

        Args:
            end_of: Returns the end of a topic's queue.

        Raises:
            StoreError: The disk refused; it is to be done again.
        """
        self.delays.forget()
        self.scan_offset.put(PhysicalOffset(0))
        self.offsets.remove_group(TRANSACTIONS_GROUP)
        self.offsets.cut_to(end_of)
        await self.save_timer(TimerCheckpoint())
        await self.save()

    async def save_timer(self, checkpoint: TimerCheckpoint) -> None:
        """Keep how far timed messages are delivered, durably. One call at a time.

        Raises:
            StoreError: The disk refused; what was kept before can still be read.
        """
        files, blocking = self._disk
        write = partial(replace_file, files, self._timer_path, checkpoint.encode())
        outcome: list[OSError | None] = []
        await run_whole(blocking.run, write, outcome.append)
        if outcome[0] is not None:
            raise StoreError(f"{self._timer_path} not saved: {outcome[0]}") from outcome[0]
        self.timer = checkpoint

    async def save(self) -> None:
        """Save what changed since the jobs ended.

        Raises:
            StoreError: Names every table that could not be saved; the others are.
        """
        errors = [error for file in self._files() if (error := await file.save()) is not None]
        if errors:
            raise StoreError("; ".join(map(str, errors)))


def config_folder(data: Path) -> Path:
    """Return where the tables lie, beside the store's folders."""
    return data / "config"


async def load_tables(
    config: BrokerConfig,
    files: FileSystem,
    blocking: Blocking,
    *,
    end_of: Callable[[str, int], QueueOffset] | None,
    was_clean: bool = True,
    now_ms: int,
    wake: Callable[[str], None],
) -> Tables:
    """Return the tables that lie in the data directory; empty ones where there are none.

    A crash may have left offsets of a topic that was deleted: what points beyond its queue's end,
    which `end_of` tells, or into a topic that does not exist, is left out. Without `end_of` all
    stay. When the store was not closed in order (`was_clean`) its log may have lost its end, so
    what points beyond a queue's end goes there.

    Raises:
        StoreError: A file is there and cannot be read.
        OSError: The disk failed.
    """
    folder = config_folder(config.data)
    await blocking.run(files.make_folder, folder)

    async def load(name: str, parse: Callable[[Mapping[str, Any]], T]) -> T | None:
        return await blocking.run(read_table, files, folder / name, parse)

    version = DataVersion(now_ms)
    topics = await load("topics.json", partial(TopicTable.from_dict, now_ms=now_ms))
    groups = await load("subscriptionGroup.json", partial(GroupTable.from_dict, now_ms=now_ms))
    offsets = await load("consumerOffset.json", partial(OffsetTable.from_dict, now_ms=now_ms))
    versions = await load(VERSIONS_FILE, OffsetVersions.from_dict)
    delays = await load("delayOffset.json", partial(DelayOffsets.from_dict, now_ms=now_ms))
    filters = await load("consumerFilter.json", FilterTable.from_dict)
    scan_offset = await load(TRANSACTIONS_FILE, ScanOffset.from_dict)
    if topics is None:
        topics = TopicTable(version)
    if offsets is None:
        offsets = OffsetTable(version)
    offsets.versions = versions or OffsetVersions()
    topics.set_template(
        queues=config.default_topic_queues, is_allowed=config.auto_create_topics, now_ms=now_ms
    )
    if config.trace_topic_enabled and topics.get(TRACE_TOPIC) is None:
        topics.put(TopicConfig(TRACE_TOPIC, 1, 1, READ_WRITE), now_ms=now_ms)
    tables = Tables(
        config,
        files,
        blocking,
        topics,
        groups or GroupTable(version),
        offsets,
        delays or DelayOffsets(version),
        filters or FilterTable(),
        scan_offset or ScanOffset(PhysicalOffset(0)),
        wake=wake,
    )
    timer = await blocking.run(read_generations, files, folder / TIMER_FILE, TimerCheckpoint.decode)
    tables.timer = timer or tables.timer
    if end_of is None:
        return tables
    ends = end_of
    offsets.versions.keep_topics(lambda topic: topics.get(topic) is not None)
    offsets.keep_up_to(
        lambda topic, queue_id: None if topics.get(topic) is None else ends(topic, queue_id),
        was_clean=was_clean,
    )
    return tables
