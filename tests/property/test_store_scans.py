"""Whatever happens to a store's bytes: a scan gives what was stored, or says what is damaged."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ternmq_model.columns.column_names import COLUMNS
from ternmq_model.errors import MessageDamaged
from ternmq_model.stored_message import decode_single
from ternmq_model.subscription import parse_subscription
from ternmq_store.config import StoreConfig
from ternmq_store.message_store import MessageStore
from ternmq_store.scan.directory import StoreDirectory
from ternmq_store.scan.scan_spec import ScanRange, ScanSpec, ScanStep
from ternmq_testing.memory.memory_files import MemoryFileSystem
from tests.support.examples import examples
from tests.support.records import batch_of, record
from tests.support.rows import row_of
from tests.support.stores import ROOT, append, drain, open_store, settle

pytest.importorskip("pyarrow")

from ternmq_store.scan.partition_scan import plan_directory, plan_ranges, scan_partition
from ternmq_store.scan.queue_scan import scan_queue
from ternmq_store.scan.raw_scan import plan_raw, scan_raw

CONFIG = StoreConfig(
    commit_log_file_bytes=16_384, consume_queue_file_units=20, index_slots=20, index_entries=40
)
QUEUES = (("A", 0), ("A", 1), ("B", 0))
COUNT = 150

Row = Mapping[str, Any]
Rows = dict[tuple[str, int, int], Row]

WANTED = st.builds(
    ScanSpec,
    batch_rows_max=st.sampled_from([1, 7, 10_000]),
    batch_bytes_max=st.sampled_from([1, 3_000, 8 << 20]),
    columns=st.one_of(
        st.just(COLUMNS), st.lists(st.sampled_from(COLUMNS), min_size=1, unique=True)
    ),
    subscription=st.sampled_from(
        [
            None,
            parse_subscription("A", "t1"),
            parse_subscription("A", "Aa || nobody"),
            parse_subscription("A", "n > 3", "SQL92"),
        ]
    ),
    keys=st.sampled_from([frozenset[str](), frozenset(["k1"]), frozenset(["k1", "both", "x"])]),
)


def fill(store: MessageStore) -> None:
    """Store messages of several queues; two of their tags have one hash."""
    for number in range(COUNT):
        topic, queue_id = QUEUES[number % len(QUEUES)]
        properties = {"UNIQ_KEY": f"{number:032d}", "n": str(number % 7)}
        if number % 5:
            properties["TAGS"] = ["t1", "t2", "Aa", "BB"][number % 4]
        if number % 4:
            properties["KEYS"] = f"k{number % 3} both"
        body = b"%04d" % number * (number % 9)
        append(store, batch_of(record(topic, queue_id, body, properties)))
    settle(store)


@cache
def filled() -> tuple[MemoryFileSystem, Rows]:
    """Return a store that was closed, and its messages as rows."""
    files = MemoryFileSystem()
    store = open_store(files, config=CONFIG)
    fill(store)
    rows: Rows = {
        (topic, queue_id, offset): row_of(decode_single(data, "b"))
        for topic, queue_id in QUEUES
        for offset, data in drain(store, topic, queue_id)
    }
    store.close()
    assert len(rows) == COUNT
    return files, rows


def is_wanted(row: Row, wanted: ScanSpec) -> bool:
    """Tell what a scan must decide."""
    if wanted.subscription is not None and not wanted.subscription.matches(row["properties"]):
        return False
    return not wanted.keys or bool(wanted.keys & set(row["keys"]))


def whole(row: Row) -> Row:
    """Return a row whose properties can be asked for by name."""
    return {**row, "properties": dict(row["properties"])}


def expected(rows: Iterable[Row], wanted: ScanSpec) -> list[Row]:
    """Return what a scan of these must give."""
    return [
        {name: row[name] for name in wanted.columns}
        for row in rows
        if is_wanted(whole(row), wanted)
    ]


def collected(scan: Iterable[ScanStep], wanted: ScanSpec) -> list[Row]:
    """Return the rows of a scan, and hold its batches to their limits."""
    rows: list[Row] = []
    last = -1
    for each in scan:
        assert each.damaged == 0
        assert each.next_offset >= last
        last = each.next_offset
        if each.batch is not None:
            assert 0 < each.batch.num_rows <= wanted.batch_rows_max
            rows.extend(each.batch.to_pylist())
    return rows


@given(WANTED, st.sampled_from(QUEUES), st.integers(0, 50), st.integers(0, 50), st.booleans())
@settings(max_examples=examples(50))
def test_scanned_range_equals_the_stored_messages(
    wanted: ScanSpec, queue: tuple[str, int], begin: int, end: int, is_open: bool
) -> None:
    files, rows = filled()
    store = open_store(files, config=CONFIG) if is_open else None
    directory = StoreDirectory(files, ROOT, "b")
    assert directory.is_in_use is is_open
    scan_range = ScanRange(*queue, begin, max(begin, end))
    found = collected(scan_queue(directory, scan_range, wanted), wanted)
    there = [rows[*queue, offset] for offset in range(scan_range.begin, scan_range.end)]
    assert found == expected(there, wanted)
    if store is not None:
        store.close()


@given(WANTED, st.sampled_from([None, ["A"], ["B", "nobody"]]), st.booleans())
@settings(max_examples=examples(50))
def test_parts_of_a_log_are_its_messages_in_order(
    wanted: ScanSpec, topics: Sequence[str] | None, is_raw: bool
) -> None:
    files, rows = filled()
    directory = StoreDirectory(files, ROOT, "b")
    there = sorted(rows.values(), key=lambda row: row["msgId"])
    found: list[Row] = []
    if is_raw:
        for raw in plan_raw(directory):
            found += collected(scan_raw(directory, raw, wanted), wanted)
    else:
        there = [row for row in there if topics is None or row["topic"] in topics]
        for part in plan_directory(directory, topics=topics):
            found += collected(scan_partition(directory, part, wanted), wanted)
    assert found == expected(there, wanted)


@given(st.data())
@settings(max_examples=examples(50))
def test_parts_of_ranges_equal_the_ranges(data: st.DataObject) -> None:
    directory = StoreDirectory(filled()[0], ROOT)
    ranges = [
        queue._replace(begin=begin, end=data.draw(st.integers(begin, queue.end)))
        for queue in directory.queues()
        for begin in [data.draw(st.integers(queue.begin, queue.end))]
    ]
    numbers = [
        (queue.topic, queue.queue_id, offset)
        for part in plan_ranges(directory, ranges)
        for queue in part.ranges
        for offset in range(queue.begin, queue.end)
    ]
    assert sorted(numbers) == sorted(
        (queue.topic, queue.queue_id, offset)
        for queue in ranges
        for offset in range(queue.begin, queue.end)
    )


def change_a_byte(files: MemoryFileSystem, data: st.DataObject) -> bool:
    """Change one byte of log or queues; tell whether it was one of the log."""
    paths = sorted(
        path for path in files.nodes if {"commitlog", "consumequeue"} & set(Path(path).parts)
    )
    path = data.draw(st.sampled_from(paths))
    node = files.nodes[path]
    position = data.draw(st.integers(0, len(node.data) - 1))
    node.data[position] ^= data.draw(st.integers(1, 255))
    return "commitlog" in path.parts


@given(st.data(), st.sampled_from([4, 20, 10_000]))
@settings(max_examples=examples(60))
def test_changed_byte_of_the_log_alone_loses_its_message_and_is_reported(
    data: st.DataObject, rows_max: int
) -> None:
    files, rows = copy.deepcopy(filled()[0]), filled()[1]
    is_log = change_a_byte(files, data)
    directory = StoreDirectory(files, ROOT, "b")
    skipping = ScanSpec(batch_rows_max=rows_max, skips_damaged=True)
    passed_over = 0
    for topic, queue_id in QUEUES:
        scan_range = ScanRange(topic, queue_id, 0, COUNT // 3)
        steps = list(scan_queue(directory, scan_range, skipping))
        found = [row for each in steps if each.batch is not None for row in each.batch.to_pylist()]
        assert steps[-1].next_offset == scan_range.end
        assert all(row == rows[topic, queue_id, row["queueOffset"]] for row in found)
        assert len(found) + steps[-1].damaged == COUNT // 3
        passed_over += steps[-1].damaged
        strict = ScanSpec(batch_rows_max=rows_max)
        scan = scan_queue(directory, scan_range, strict)
        if not steps[-1].damaged:
            assert collected(scan, strict) == found
            continue
        with pytest.raises(MessageDamaged) as raised:
            collected(scan, strict)
        assert (raised.value.topic, raised.value.queue_id) == (topic, queue_id)
        assert raised.value.offset not in {row["queueOffset"] for row in found}
    assert passed_over <= is_log


@given(st.data(), st.sampled_from([4, 20, 10_000]), st.booleans())
@settings(max_examples=examples(60))
def test_changed_byte_hides_no_other_message_of_the_log(
    data: st.DataObject, rows_max: int, is_raw: bool
) -> None:
    files, rows = copy.deepcopy(filled()[0]), filled()[1]
    change_a_byte(files, data)
    directory = StoreDirectory(files, ROOT, "b")
    skipping = ScanSpec(batch_rows_max=rows_max, skips_damaged=True)
    if is_raw:
        scans = [scan_raw(directory, part, skipping) for part in plan_raw(directory)]
    else:
        scans = [scan_partition(directory, part, skipping) for part in plan_directory(directory)]
    found: list[Row] = []
    damaged = 0
    for steps in map(list, scans):
        found += [row for each in steps if each.batch is not None for row in each.batch.to_pylist()]
        damaged += steps[-1].damaged
    assert all(row == rows[row["topic"], row["queueId"], row["queueOffset"]] for row in found)
    assert len({row["msgId"] for row in found}) == len(found) >= COUNT - 1
    assert damaged or is_raw or len(found) == COUNT
