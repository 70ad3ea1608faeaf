"""The applier of a master's tables, which replaces or merges the tables of a slave."""

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
        no_cleaning: Held while a topic is deleted: retention removes no files then.
        topic_gone: Called with each deleted topic, so that held pulls of it end.
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

    async def take(self, update: TableUpdate) -> None:
        """Apply one table, or hold it until the log has the deliveries that it describes.

        Raises:
            ProtocolBroken: The content is impossible; earlier tables are applied.
            TernError: The disk refused, or the store is busy; a repetition is safe.
        """
        if update.table in AFTER_THE_LOG and self._store.safe_offset < update.log_end:
            # The first update stays: if each newer one replaced it, the log would never reach the
            # end that an update waits for.
            later = [each for each in self._waiting if each.table == update.table][1:]
            for each in later:
                self._waiting.remove(each)
            self._waiting.append(update)
            return
        for older in [each for each in self._waiting if each.table == update.table]:
            self._waiting.remove(older)
        await self._apply(update)

    async def take_waiting(self) -> None:
        """Apply the held tables whose deliveries the log has reached."""
        safe = self._store.safe_offset
        for update in [each for each in self._waiting if each.log_end <= safe]:
            await self._apply(update)
            self._waiting.remove(update)

    def forget_waiting(self) -> Sequence[str]:
        """Drop held tables before another master is followed; return their names."""
        tables = [each.table for each in self._waiting]
        self._waiting.clear()
        return tables

    async def _apply(self, update: TableUpdate) -> None:
        take = self._takes.get(update.table)
        if take is None:
            return  # a table of a newer version of this program
        try:
            await take(update.content)
        except (ValueError, LookupError, TypeError, IllegalName) as error:
            raise ProtocolBroken(f"its table {update.table!r} is impossible: {error}") from error

    async def _deletions(self, content: Mapping[str, Any]) -> None:
        """Delete the records that the master deleted; later records of the log stay."""
        deleted: dict[PhysicalOffset, list[str]] = {}
        for topic, received in as_object(content.get("deletions", {}), "deletions").items():
            at = PhysicalOffset(as_int(received, f"deletion of {topic}"))
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
                await asyncio.sleep(0)  # yields to requests
            logger.info(
                "topics deleted, as on the master topics=%s count=%s created_before=%s",
                topics[:3],
                len(topics),
                at,
            )

    async def _topics(self, content: Mapping[str, Any]) -> None:
        tables = self._tables
        parse = partial(TopicTable.from_dict, content, now_ms=self._clock.wall_ms())
        received = await self._blocking.run(parse)
        before = tables.topics.version
        for topic in tables.topics.take_over(received):
            tables.offsets.remove_topic(topic)
            tables.filters.remove_topic(topic)
            self._topic_gone(topic)
            logger.info("topic deleted, as on the master topic=%s", topic)
        if tables.topics.version != before:
            self._topics_changed()

    async def _groups(self, content: Mapping[str, Any]) -> None:
        tables = self._tables
        received = await self._blocking.run(_groups_of, content, self._clock.wall_ms())
        for group in tables.groups.take_over(received):
            tables.offsets.remove_group(group)
            tables.filters.remove_group(group)
            logger.info("group deleted, as on the master group=%s", group)

    async def _filters(self, content: Mapping[str, Any]) -> None:
        received = await self._blocking.run(FilterTable.from_dict, content)
        for one in received:
            check_topic(one.topic)
            check_stored_group(one.group)
        now_ms, log_end = self._clock.wall_ms(), self._store.max_physical
        self._tables.filters.take_over(received, now_ms=now_ms, log_end=log_end)

    async def _delays(self, content: Mapping[str, Any]) -> None:
        now_ms = self._clock.wall_ms()
        self._tables.delays.take_over(DelayOffsets.from_dict(content, now_ms=now_ms))

    async def _transactions(self, content: Mapping[str, Any]) -> None:
        tables, marks = self._tables, parse_rows(content)
        tables.scan_offset.offset = ScanOffset.from_dict(content).offset
        for kept, _ in marks:
            if kept.group == GROUP:
                tables.offsets.merge(kept)

    async def _timer(self, content: Mapping[str, Any]) -> None:
        found: object = content.get("checkpoint")
        if not isinstance(found, list):
            raise ValueError("there is no checkpoint")
        numbers = [as_int(each, "checkpoint") for each in cast("list[object]", found)]
        look_behind = as_int(content.get("lookBehind", 0), "lookBehind")
        received = TimerCheckpoint._make((*numbers, look_behind))
        if min(received) < 0:
            raise ValueError(f"negative number in {received}")
        if received != self._tables.timer:
            await self._tables.save_timer(received)

    async def _offsets(self, content: Mapping[str, Any]) -> None:
        """Merge the master's offsets with offsets that were committed here."""
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
    received = GroupTable.from_dict(content, now_ms=now_ms)
    for each in received:
        group_settings_to_pb(each)
    return received
