"""Formats of the tables in `config/`, and the loss to users without each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from ternmq_broker.state.delay_offsets import DelayOffsets
from ternmq_broker.state.fastjson import parse_json, write_json
from ternmq_broker.state.filters import FilterTable
from ternmq_broker.state.groups import GroupTable
from ternmq_broker.state.offset_versions import OffsetVersions
from ternmq_broker.state.offsets import OffsetTable
from ternmq_broker.state.replication_record import ReplicationRecord, replication_record_from_dict
from ternmq_broker.state.table_generations import (
    StoredTable,
    TableFormat,
    config_folder,
    find_table,
)
from ternmq_broker.state.timer_checkpoint import (
    TimerCheckpoint,
    strip_timer_checksum,
    verify_timer_checksum,
)
from ternmq_broker.state.topics import TopicTable
from ternmq_broker.state.transaction_scan_offset import ScanOffset
from ternmq_model.json_checksum import CHECKSUM_MEMBER, verify_checksum
from ternmq_store.disk.filesystem import FileSystem

T = TypeVar("T")


def parse_table(data: bytes) -> dict[str, Any]:
    """Return the content of a JSON table without its checksum, which is not verified.

    Raises:
        ValueError: The data is no JSON object.
    """
    content = parse_json(data.decode())
    content.pop(CHECKSUM_MEMBER, None)
    return content


def _json_table(
    name: str,
    parse: Callable[[Mapping[str, Any], int], T],
    *,
    older: str,
    absent: str,
    is_replicated: bool = True,
) -> TableFormat[T]:
    def parse_file(data: bytes, now_ms: int) -> T:
        return parse(parse_table(data), now_ms)

    return TableFormat(
        name,
        older,
        absent,
        is_replicated,
        verify_checksum,
        lambda data: write_json(parse_table(data)).encode(),
        parse_file,
    )


TOPICS: Final = _json_table(
    "topics.json",
    TopicTable.from_dict,
    older="topics created since are found by their queues",
    absent="settings of topics, and topics without a queue on the disk",
)
GROUPS: Final = _json_table(
    "subscriptionGroup.json",
    GroupTable.from_dict,
    older="groups that were first used since are created again",
    absent="settings of groups",
)
OFFSETS: Final = _json_table(
    "consumerOffset.json",
    OffsetTable.from_dict,
    older="groups consume again what they committed since",
    absent="offsets of all groups: each begins like a new group, most at the end of a queue",
)
VERSIONS: Final = _json_table(
    "offsetVersions.json",
    lambda content, _: OffsetVersions.from_dict(content),
    older="versions are copied from the members that know them",
    absent="resets of offsets: a member that was away may commit its old offsets",
)
DELAYS: Final = _json_table(
    "delayOffset.json",
    DelayOffsets.from_dict,
    older="delayed messages delivered since are delivered again",
    absent="progress of delayed messages: stored ones are delivered again",
)
FILTERS: Final = _json_table(
    "consumerFilter.json",
    lambda content, _: FilterTable.from_dict(content),
    older="filters sent since are sent again by their consumers",
    absent="filters, which consumers send again",
)
TRANSACTIONS: Final = _json_table(
    "transactions.json",
    lambda content, _: ScanOffset.from_dict(content),
    older="the start reads more of the log",
    absent="the scan offset of transactions: the start reads more of the log",
)
TIMER: Final = TableFormat(
    "timercheck",
    "timed messages delivered since are delivered again",
    "progress of timed messages: stored ones are delivered again",
    True,
    verify_timer_checksum,
    strip_timer_checksum,
    lambda data, _: TimerCheckpoint.decode(data),
)
REPLICATION: Final = _json_table(
    "replication.json",
    lambda content, _: replication_record_from_dict(content),
    older="epochs and members reported since are reported again",
    absent="role and epochs of the member: one that had slaves begins with an empty"
    " data directory instead",
    is_replicated=False,
)


_ALL: Final[Sequence[TableFormat[Any]]] = (
    TOPICS,
    GROUPS,
    OFFSETS,
    VERSIONS,
    DELAYS,
    FILTERS,
    TRANSACTIONS,
    TIMER,
    REPLICATION,
)


def table_paths(root: Path) -> Sequence[Path]:
    """Return the paths of all tables of a data directory."""
    return [config_folder(root) / each.name for each in _ALL]


class StoredTables(NamedTuple):
    """All tables of a data directory, as a start finds them."""

    topics: StoredTable[TopicTable]
    groups: StoredTable[GroupTable]
    offsets: StoredTable[OffsetTable]
    versions: StoredTable[OffsetVersions]
    delays: StoredTable[DelayOffsets]
    filters: StoredTable[FilterTable]
    transactions: StoredTable[ScanOffset]
    timer: StoredTable[TimerCheckpoint]
    replication: StoredTable[ReplicationRecord]


def find_tables(
    files: FileSystem, root: Path, *, noted: Sequence[str], now_ms: int
) -> StoredTables:
    """Return every table of a data directory; nothing is changed. Blocks.

    Args:
        files: The file system.
        root: The data directory.
        noted: Names of tables in the notes of the store.
        now_ms: Wall clock, for tables without a version.
    """

    def find(table: TableFormat[Any]) -> StoredTable[Any]:
        was_there = table.name in noted
        return find_table(files, config_folder(root), table, was_there=was_there, now_ms=now_ms)

    found = StoredTables(*(find(each) for each in _ALL))
    tables = (found.topics, found.groups, found.offsets, found.delays, found.filters)
    # RocketMQ writes the timer's checkpoint through a map, and leaves the checksum behind it.
    is_foreign = any(each.taken and not each.taken.has_checksum for each in tables)
    return found._replace(timer=find(replace(TIMER, verify=_has_none))) if is_foreign else found


def _has_none(_: bytes) -> bool:
    return False
