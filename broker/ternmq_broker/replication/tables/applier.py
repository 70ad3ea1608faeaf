"""The applier of a master's tables: it replaces or merges those that are here."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, cast

from ternmq_broker.replication.protocol import ProtocolBroken
from ternmq_broker.replication.tables.table_contents import (
    AFTER_THE_LOG,
    DELAY_OFFSETS,
    DELETIONS,
    FILTERS,
    GROUPS,
    OFFSETS,
    TIMER,
    TOPICS,
    TRANSACTIONS,
    parse_rows,
)
from ternmq_broker.replication.tables.table_reader import TableUpdate
from ternmq_broker.state.delay_offsets import DelayOffsets
from ternmq_broker.state.fastjson import as_int
from ternmq_broker.state.filters import FilterTable
from ternmq_broker.state.groups import GroupTable
from ternmq_broker.state.tables import Tables
from ternmq_broker.state.timer_checkpoint import TimerCheckpoint
from ternmq_broker.state.topics import DELETED_AT_ONCE_MAX, TopicTable
from ternmq_broker.state.transaction_scan_offset import GROUP, ScanOffset
from ternmq_model.errors import IllegalName
from ternmq_model.json_checksum import as_object
from ternmq_model.names import check_stored_group, check_topic
from ternmq_model.offsets import PhysicalOffset
from ternmq_remoting.converters import group_settings_to_pb
from ternmq_remoting.environment import Environment
from ternmq_store.message_store import MessageStore

logger = logging.getLogger(__name__)


class TableApplier:
    """Applier of a master's tables. Owned by `TableSynchronizer`.

    Tables from the wire are checked like tables from a file: names, shapes, ranges. Large ones are
    parsed in the blocking pool, where they delay no caller.

    Args:
        env: Clock and blocking calls.
        store: Store of the slave.
        tables: Tables of the slave.
        no_cleaning: Held while a topic is deleted: retention removes no files then.
        topics_changed: Called after topics changed.
        topic_gone: Called with each topic that was deleted, so that its readers are told.
    """

    def __init__(
        self,
        env: Environment,
        store: MessageStore,
        tables: Tables,
        *,
        no_cleaning: AbstractAsyncContextManager[object],
        topics_changed: Callable[[], None],
        topic_gone: Callable[[str], None],
    ) -> None:
        self._clock = env.clock
        self._blocking = env.blocking
        self._store = store
        self._tables = tables
        self._no_cleaning = no_cleaning
        self._topics_changed = topics_changed
        self._topic_gone = topic_gone
        self._waiting: deque[TableUpdate] = deque()
        self._takes: Mapping[str, Callable[[Mapping[str, Any]], Awaitable[None]]] = {
            DELETIONS: self._deletions,
            TOPICS: self._topics,
            GROUPS: self._groups,
            FILTERS: self._filters,
            DELAY_OFFSETS: self._delays,
            TRANSACTIONS: self._transactions,
            TIMER: self._timer,
            OFFSETS: self._offsets,
        }

    async def take(self, told: TableUpdate) -> None:
        """Apply one table, or keep it until the log has what it speaks of.

        Raises:
            ProtocolBroken: It cannot be such a table; those that came before are applied.
            TernError: The disk refused, or the store is busy; a repetition is safe.
        """
        if told.table in AFTER_THE_LOG and self._store.safe_offset < told.log_end:
            # The first one waits for its end of the log, and the newest one comes after it: if the
            # newest took the place of the first each time, none would ever be reached.
            later = [each for each in self._waiting if each.table == told.table][1:]
            for each in later:
                self._waiting.remove(each)
            self._waiting.append(told)
            return
        for older in [each for each in self._waiting if each.table == told.table]:
            self._waiting.remove(older)
        await self._apply(told)

    async def take_waiting(self) -> None:
        """Apply what waits for the log and need not any more."""
        safe = self._store.safe_offset
        for told in [each for each in self._waiting if each.log_end <= safe]:
            await self._apply(told)
            self._waiting.remove(told)

    def forget_waiting(self) -> Sequence[str]:
        """Drop tables that wait, because another master may follow; return their names."""
        tables = [each.table for each in self._waiting]
        self._waiting.clear()
        return tables

    async def _apply(self, told: TableUpdate) -> None:
        take = self._takes.get(told.table)
        if take is None:
            return  # of a newer version of this program
        try:
            await take(told.content)
        except (ValueError, LookupError, TypeError, IllegalName) as error:
            raise ProtocolBroken(f"its table {told.table!r} cannot be: {error}") from error

    async def _deletions(self, content: Mapping[str, Any]) -> None:
        """Delete from the queues what the master deleted: what comes later in the log stays."""
        deleted: dict[PhysicalOffset, list[str]] = {}
        for topic, told in as_object(content.get("deletions", {}), "deletions").items():
            at = PhysicalOffset(as_int(told, f"deletion of {topic}"))
            check_topic(topic)
            if self._store.deletions.get(topic) != at and at > self._store.min_physical:
                deleted.setdefault(at, []).append(topic)
        for at, topics in deleted.items():
            for first in range(0, len(topics), DELETED_AT_ONCE_MAX):
                some = topics[first : first + DELETED_AT_ONCE_MAX]
                async with self._no_cleaning:
                    self._store.delete_topic(*some, at=at)
                for topic in some:
                    self._topic_gone(topic)
                await asyncio.sleep(0)  # others' turn
            logger.info(
                "topics deleted as at the master topics=%s of %s before=%s",
                topics[:3],
                len(topics),
                at,
            )

    async def _topics(self, content: Mapping[str, Any]) -> None:
        tables = self._tables
        parse = partial(TopicTable.from_dict, content, now_ms=self._clock.wall_ms())
        told = await self._blocking.run(parse)
        before = tables.topics.version
        for topic in tables.topics.take_over(told):
            tables.offsets.remove_topic(topic)
            tables.filters.remove_topic(topic)
            self._topic_gone(topic)
            logger.info("topic gone as at the master topic=%s", topic)
        if tables.topics.version != before:
            self._topics_changed()

    async def _groups(self, content: Mapping[str, Any]) -> None:
        tables = self._tables
        told = await self._blocking.run(_groups_of, content, self._clock.wall_ms())
        for group in tables.groups.take_over(told):
            tables.offsets.remove_group(group)
            tables.filters.remove_group(group)
            logger.info("group gone as at the master group=%s", group)

    async def _filters(self, content: Mapping[str, Any]) -> None:
        told = await self._blocking.run(FilterTable.from_dict, content)
        for one in told:
            check_topic(one.topic)
            check_stored_group(one.group)
        now_ms, log_end = self._clock.wall_ms(), self._store.max_physical
        self._tables.filters.take_over(told, now_ms=now_ms, log_end=log_end)

    async def _delays(self, content: Mapping[str, Any]) -> None:
        now_ms = self._clock.wall_ms()
        self._tables.delays.take_over(DelayOffsets.from_dict(content, now_ms=now_ms))

    async def _transactions(self, content: Mapping[str, Any]) -> None:
        tables, marks = self._tables, parse_rows(content)
        tables.scan_offset.put(ScanOffset.from_dict(content).offset)
        for kept, _ in marks:
            if kept.group == GROUP:
                tables.offsets.merge(kept)

    async def _timer(self, content: Mapping[str, Any]) -> None:
        found: object = content.get("checkpoint")
        if not isinstance(found, list):
            raise ValueError("there is no checkpoint")
        numbers = [as_int(each, "checkpoint") for each in cast("list[object]", found)]
        look_behind = as_int(content.get("lookBehind", 0), "lookBehind")
        told = TimerCheckpoint._make((*numbers, look_behind))
        if min(told) < 0:
            raise ValueError(f"negative number in {told}")
        if told != self._tables.timer:
            await self._tables.save_timer(told)

    async def _offsets(self, content: Mapping[str, Any]) -> None:
        """Merge what the master keeps with what was committed here."""
        offsets = self._tables.offsets
        for kept, was_removed in await self._blocking.run(parse_rows, content):
            if was_removed:
                offsets.merge(kept._replace(offset=None))
            if kept.offset is not None:
                offsets.merge(kept)
        tokens_end = as_int(content.get("lockTokensEnd", 0), "lockTokensEnd")
        offsets.versions.raise_tokens(tokens_end)


def _groups_of(content: Mapping[str, Any], now_ms: int) -> GroupTable:
    """Return the groups of a master, each checked to fit the wire."""
    told = GroupTable.from_dict(content, now_ms=now_ms)
    for each in told:
        group_settings_to_pb(each)
    return told
