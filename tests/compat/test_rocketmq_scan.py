"""A store that RocketMQ wrote, read as columns: every row is what RocketMQ's own decoder reads."""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ternmq_model.errors import StoreNotFound
from ternmq_model.stored_message import decode_single
from ternmq_model.subscription import parse_subscription
from ternmq_store.disk.filesystem import RealFileSystem
from ternmq_store.scan.directory import StoreDirectory
from ternmq_store.scan.scan_spec import ScanRange, ScanSpec, ScanStep
from ternmq_store.scan.user_topics import is_user_topic
from tests.support.rocketmq import Line, contents, manifest, unpack_store
from tests.support.rows import row_of, time_of

pytest.importorskip("pyarrow")

from ternmq_store.scan.partition_scan import plan_directory, scan_partition
from ternmq_store.scan.queue_scan import scan_queue
from ternmq_store.scan.raw_scan import plan_raw, scan_raw

Row = Mapping[str, Any]
ALL = ScanSpec()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a copy of the store."""
    return unpack_store(tmp_path)


@pytest.fixture
def directory(root: Path) -> StoreDirectory:
    """Return the store as it is read."""
    return StoreDirectory(RealFileSystem(), root, "broker-a")


def rows_of(scanned: Iterable[ScanStep]) -> list[Row]:
    """Return the rows of a scan that passed nothing over."""
    rows: list[Row] = []
    for each in scanned:
        assert each.damaged == 0
        rows.extend([] if each.batch is None else each.batch.to_pylist())
    return rows


def record_rows(root: Path) -> dict[int, Row]:
    """Return what each record of the manifest is as a row, by its place; from its own bytes."""
    log = b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))
    found: dict[int, Row] = {}
    for line in manifest(root, "record"):
        place = line["physicalOffset"]
        message = decode_single(log[place : place + line["size"]], "broker-a")
        found[place] = row_of(message)
        check(found[place], line)
    return found


def check(row: Row, line: Line) -> None:
    """Compare a row with what RocketMQ's decoder printed of its record."""
    assert (row["topic"], row["queueId"], row["queueOffset"]) == (
        line["topic"], line["queueId"], line["queueOffset"],
    )  # fmt: skip
    assert (row["sysFlag"], row["reconsumeTimes"]) == (line["sysFlag"], line["reconsumeTimes"])
    assert dict(row["properties"]) == line["properties"]
    assert [time_of(line["bornTimestamp"]), time_of(line["storeTimestamp"])] == [
        row["bornTimestamp"],
        row["storeTimestamp"],
    ]
    if not row["sysFlag"] & 1:
        assert len(row["body"]) == line["bodyLength"]
        assert zlib.crc32(row["body"]) & 0x7FFFFFFF == line["bodyCrcOfStored"]


def units_of(root: Path) -> Sequence[Line]:
    """Return the manifest's units in the order of topic, queue and number."""
    lines = manifest(root, "unit")
    return sorted(lines, key=lambda line: (line["topic"], line["queueId"], line["queueOffset"]))


def test_every_unit_gives_the_row_of_its_record(root: Path, directory: StoreDirectory) -> None:
    before, records = contents(root), record_rows(root)
    expected: dict[tuple[str, int], list[Row]] = {}
    for line in units_of(root):
        known = expected.setdefault((line["topic"], line["queueId"]), [])
        known.append(records[line["physicalOffset"]])
    queues = directory.queues()
    assert {(queue.topic, queue.queue_id) for queue in queues} == set(expected)
    for queue in queues:
        rows = rows_of(scan_queue(directory, queue, ALL))
        assert rows == expected[queue.topic, queue.queue_id]
    assert contents(root) == before


def test_scan_by_log_file_returns_user_messages_in_log_order(
    root: Path, directory: StoreDirectory
) -> None:
    records = record_rows(root)
    places = sorted(
        line["physicalOffset"] for line in units_of(root) if is_user_topic(line["topic"])
    )
    parts = plan_directory(directory)
    rows = [row for part in parts for row in rows_of(scan_partition(directory, part, ALL))]
    assert rows == [records[place] for place in places]
    assert {row["topic"] for row in rows} == {"Batch", "Big", "Later", "Orders", "Pay"}
    assert len(parts) > 1


def test_named_topics_are_read_whatever_their_kind(root: Path, directory: StoreDirectory) -> None:
    topics = {"%DLQ%CG_fail", "RMQ_SYS_TRANS_HALF_TOPIC"}
    rows = [
        row
        for part in plan_directory(directory, topics=topics)
        for row in rows_of(scan_partition(directory, part, ALL))
    ]
    assert len(rows) == sum(line["topic"] in topics for line in units_of(root)) > 0
    assert {row["topic"] for row in rows} == topics


def test_raw_scan_returns_every_record(root: Path, directory: StoreDirectory) -> None:
    rows = [row for part in plan_raw(directory) for row in rows_of(scan_raw(directory, part, ALL))]
    assert rows == list(record_rows(root).values())


def test_tags_are_filtered_by_hash_and_then_by_name(root: Path, directory: StoreDirectory) -> None:
    records = list(record_rows(root).values())
    tags = {row["tags"] for row in records if row["topic"] == "Orders" and row["tags"]}
    for tag in sorted(tags)[:3]:
        wanted = ScanSpec(subscription=parse_subscription("Orders", tag), columns=["msgId"])
        found = [
            row["msgId"]
            for queue in directory.queues()
            if queue.topic == "Orders"
            for row in rows_of(scan_queue(directory, queue, wanted))
        ]
        there = [row for row in records if row["topic"] == "Orders" and row["tags"] == tag]
        assert sorted(found) == sorted(row["msgId"] for row in there)
        assert found


def test_missing_store_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFound, match="nothing"):
        StoreDirectory(RealFileSystem(), tmp_path / "nothing")


def test_middle_range_has_exactly_the_rows_asked_for(directory: StoreDirectory) -> None:
    queue = next(queue for queue in directory.queues() if queue.topic == "Orders")
    middle = ScanRange(queue.topic, queue.queue_id, queue.begin + 3, queue.begin + 7)
    rows = rows_of(scan_queue(directory, middle, ALL))
    assert [row["queueOffset"] for row in rows] == list(range(middle.begin, middle.end))
