"""Snapshots of a broker's tables, each with a revision that changes with the table.

A revision names the term of the broker that sent it, so that revisions of two terms differ.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ternmq_broker.replication.tables.table_contents import (
    DELAY_OFFSETS,
    DELETIONS,
    FILTERS,
    GROUPS,
    OFFSETS,
    TIMER,
    TOPICS,
    TRANSACTIONS,
    offset_row,
)
from ternmq_broker.state.offsets import VersionedOffset
from ternmq_broker.state.tables import Tables
from ternmq_broker.state.timer_checkpoint import TimerCheckpoint
from ternmq_broker.state.transaction_scan_offset import GROUP
from ternmq_model.crc32 import crc32
from ternmq_model.data_version import DataVersion
from ternmq_model.names import HALF_TOPIC, OP_TOPIC
from ternmq_model.offsets import PhysicalOffset

OFFSETS_MAX: Final = 4096
"""Most offsets of one snapshot: a few milliseconds of the loop."""


_Content = Callable[[], Mapping[str, Any]]


class TableSnapshot(NamedTuple):
    """One table as it was at one moment."""

    table: str
    revision: str
    content: _Content
    """Returns the content of the table; any thread may call it."""

    more: bool = False
    """True when the next snapshot continues this one."""


class TableSnapshots:
    """Source of snapshots of the tables. Owns nothing.

    Args:
        deletions: Returns the offsets before which records of deleted topics do not count.
        incarnation: Random text that names the term.
    """

    def __init__(
        self,
        tables: Tables,
        deletions: Callable[[], Mapping[str, PhysicalOffset]],
        incarnation: str,
    ) -> None:
        self._tables = tables
        self._deletions = deletions
        self._incarnation = incarnation
        self._whole: Mapping[str, tuple[Callable[[], str], Callable[[], _Content]]] = {
            DELETIONS: (self._deletions_token, lambda: _now({"deletions": dict(deletions())})),
            TOPICS: (
                lambda: _token(tables.topics.version),
                lambda: tables.topics.copy().to_dict,
            ),
            GROUPS: (
                lambda: _token(tables.groups.version),
                lambda: tables.groups.copy().to_dict,
            ),
            FILTERS: (
                lambda: str(tables.filters.changes),
                lambda: tables.filters.copy().to_dict,
            ),
            DELAY_OFFSETS: (
                lambda: str(tables.delays.changes),
                lambda: _now(tables.delays.to_dict()),
            ),
            TRANSACTIONS: (self._transactions_token, self._transactions),
            TIMER: (
                lambda: ".".join(map(str, tables.timer)),
                lambda: _now(_timer_content(tables.timer)),
            ),
        }

    def changed(
        self, revisions: Mapping[str, str], requested: frozenset[str]
    ) -> Sequence[TableSnapshot]:
        """Return the present state of each changed table, in the order to apply them.

        Args:
            revisions: Revisions of the reader's tables.
            requested: Names of the requested tables; empty = all tables.
        """
        found: list[TableSnapshot] = []
        for table, (token, content) in self._whole.items():
            if requested and table not in requested:
                continue
            revision = f"{self._incarnation}:{token()}"
            if revisions.get(table) != revision:
                found.append(TableSnapshot(table, revision, content()))
        if not requested or OFFSETS in requested:
            found += self.offsets(revisions.get(OFFSETS, ""))
        return found

    def offsets(self, revision: str) -> Sequence[TableSnapshot]:
        """Return the offsets that changed since `revision`, at most `OFFSETS_MAX` at once.

        Only changes of offsets are sent: the table is large and changes every second.
        """
        incarnation, _, token = revision.partition(":")
        number = token.partition(".")[0]
        is_ours = incarnation == self._incarnation and number.isascii() and number.isdigit()
        offsets = self._tables.offsets
        rows, newest, more = offsets.changed_since(int(number) if is_ours else 0, most=OFFSETS_MAX)
        now = f"{self._incarnation}:{newest}.{offsets.versions.tokens_end}"
        if now == revision:
            return ()
        content = {
            "lockTokensEnd": offsets.versions.tokens_end,
            "offsets": [
                offset_row(kept, was_removed=was_removed)
                for kept, was_removed in rows
                if kept.group != GROUP
            ],
        }
        return (TableSnapshot(OFFSETS, now, _now(content), more),)

    def _transactions_token(self) -> str:
        rows = "".join(map(str, self._transaction_rows()))
        return f"{self._tables.scan_offset.offset}.{crc32(rows.encode())}"

    def _transactions(self) -> _Content:
        rows = self._transaction_rows()
        return _now({**self._tables.scan_offset.to_dict(), "offsets": rows})

    def _transaction_rows(self) -> Sequence[Sequence[str | int]]:
        offsets, rows = self._tables.offsets, list[Sequence[str | int]]()
        for topic in (HALF_TOPIC, OP_TOPIC):
            offset, version = offsets.query(GROUP, topic, 0), offsets.version(GROUP, topic, 0)
            if offset is not None:
                rows.append(
                    offset_row(VersionedOffset(GROUP, topic, 0, offset, version), was_removed=False)
                )
        return rows

    def _deletions_token(self) -> str:
        lines = "".join(f"{at} {topic}\n" for topic, at in sorted(self._deletions().items()))
        return str(crc32(lines.encode()))


def _now(content: Mapping[str, Any]) -> _Content:
    """Return a function that returns `content`, which is small enough to be built on the loop."""
    return lambda: content


def _timer_content(timer: TimerCheckpoint) -> Mapping[str, Any]:
    """Return RocketMQ's numbers, which older versions read, and the number of this program."""
    return {"checkpoint": list(timer[:-1]), "lookBehind": timer.look_behind}


def _token(version: DataVersion) -> str:
    return f"{version.state_version}.{version.counter}.{version.timestamp_ms}"
