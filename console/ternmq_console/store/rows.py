"""Rows for the records, units and index entries of a store. Pure.

The keys are those of RocketMQ's own decoder and tools, so files of both brokers can be compared
line by line.
"""

from collections.abc import Collection, Generator, Mapping
from pathlib import Path
from typing import Final, cast

from ternmq_console.cli.admin_query import time_text
from ternmq_model.message_id import offset_message_id
from ternmq_model.printable_text import printable, printable_json
from ternmq_model.properties import KEYS, TAGS, decode_properties
from ternmq_model.record.format import crc31
from ternmq_store.inspection.index_inspection import FoundEntries
from ternmq_store.inspection.log_inspection import FoundRecord
from ternmq_store.inspection.queue_inspection import QueueFiles
from ternmq_store.queues.unit_files import FileUnits

RECORD_HEADING: Final = (
    f"{'offset':>14} {'size':>8}  {'stored':<24}  {'topic':<24} {'queue':>5} {'offset':>9}"
    "  tag and keys"
)
UNIT_HEADING: Final = (
    f"{'topic':<32} {'queue':>5} {'offset':>9} {'log offset':>14} {'size':>10} {'tag code':>20}"
)
INDEX_HEADING: Final = (
    f"{'file':<17} {'entry':>8} {'key hash':>10} {'log offset':>14} {'seconds':>10}"
    f" {'previous':>8} {'slot':>8}"
)

Row = Mapping[str, object]


def record_row(found: FoundRecord) -> Row:
    """Return every column of a record except its body."""
    header, body, topic, properties = found.record
    return {
        "kind": "record",
        "file": found.file.path.name,
        "physicalOffset": header.physical_offset,
        "size": header.total_bytes,
        "topic": topic.decode(errors="replace"),
        "queueId": header.queue_id,
        "queueOffset": header.queue_offset,
        "flag": header.flag,
        "sysFlag": header.sys_flag,
        "bodyCrc": header.body_crc,
        "bodyLength": header.body_bytes,
        "bodyCrcOfStored": crc31(body),
        "bornTimestamp": header.born_at_ms,
        "storeTimestamp": header.stored_at_ms,
        "reconsumeTimes": header.reconsume_times,
        "preparedTransactionOffset": header.prepared_offset,
        "msgId": offset_message_id(header.store_host, header.physical_offset),
        "properties": dict(sorted(decode_properties(properties).items())),
    }


def unit_rows(
    queue: QueueFiles, found: FileUnits, *, without: Collection[int] = ()
) -> Generator[Row]:
    """Yield the written units of a range, without those at some positions."""
    units = zip(
        *(found.units[name].tolist() for name in ("offset", "size", "tag_code")), strict=True
    )
    for place, (offset, size, tag_code) in enumerate(units, found.first):
        if size and place - found.first not in without:
            yield {
                "kind": "unit",
                "topic": queue.topic,
                "queueId": queue.queue_id,
                "queueOffset": place,
                "physicalOffset": offset,
                "size": size,
                "tagsCode": tag_code,
            }


def entry_rows(path: Path, slots: int, found: FoundEntries) -> Generator[Row]:
    """Yield the entries of a range."""
    fields = ("hash", "offset", "seconds", "previous")
    entries = zip(*(found.entries[name].tolist() for name in fields), strict=True)
    for number, (key_hash, offset, time_diff, previous) in enumerate(entries, found.first):
        yield {
            "kind": "index",
            "file": path.name,
            "entry": number,
            "keyHash": key_hash,
            "physicalOffset": offset,
            "timeDiff": time_diff,
            "previous": previous,
            "slot": key_hash % slots,
        }


def json_line(row: Row) -> str:
    """Return `row` as one line of JSON, in ASCII as RocketMQ's decoder writes it."""
    return printable_json(row, separators=(",", ":"), ensure_ascii=True)


def text_line(row: Row) -> str:
    """Return `row` as one line for people."""
    kind = row["kind"]
    if kind == "record":
        line = _record_line(row)
    elif kind == "unit":
        line = (
            f"{row['topic']!s:<32} {row['queueId']:>5} {row['queueOffset']:>9}"
            f" {row['physicalOffset']:>14} {row['size']:>10} {row['tagsCode']:>20}"
        )
    else:
        line = (
            f"{row['file']!s:<17} {row['entry']:>8} {row['keyHash']:>10}"
            f" {row['physicalOffset']:>14} {row['timeDiff']:>10} {row['previous']:>8}"
            f" {row['slot']:>8}"
        )
    return printable(line.rstrip())


def _record_line(row: Row) -> str:
    properties = cast("Mapping[str, str]", row["properties"])
    stored = cast("int", row["storeTimestamp"])
    words = " ".join(properties[name] for name in (TAGS, KEYS) if name in properties)
    return (
        f"{row['physicalOffset']:>14} {row['size']:>8}  {time_text(stored) or '':<24} "
        f" {row['topic']!s:<24} {row['queueId']:>5} {row['queueOffset']:>9}  {words}"
    )
