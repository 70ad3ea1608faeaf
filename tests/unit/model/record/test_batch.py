"""Checking what clients send, a batch at a time."""

import re

import numpy as np
import pytest

from ternmq_model.properties import tag_code
from ternmq_model.record.batch import CheckedRecords, check_records, select_rows
from ternmq_model.record.checksum import RESERVED_CHECKSUM
from ternmq_model.record.fields import tag_code_of
from ternmq_model.record.format import FLAG_COMMIT, FLAG_COMPRESSED, decode_record
from tests.support.records import BORN_HOST, STORE_HOST, batch_of, record, sizes_of


def check(*records: bytes, is_checksummed: bool = False) -> CheckedRecords:
    return check_records(
        b"".join(records),
        sizes_of(records),
        born_host_bytes=8,
        store_host_bytes=8,
        is_checksummed=is_checksummed,
    )


def test_good_records_are_sorted_by_queue_in_their_order() -> None:
    batch = batch_of(
        record("A", 1, properties={"TAGS": "x"}),
        record("B", 1),
        record("A", 0, properties={"TAGS": "y"}),
        record("A", 1),
    )
    assert {(q.topic, q.queue_id): q.rows.tolist() for q in batch.queues} == {
        ("A", 0): [2],
        ("A", 1): [0, 3],
        ("B", 1): [1],
    }
    assert batch.tag_codes.tolist() == [tag_code("x"), 0, tag_code("y"), 0]


def test_topics_of_one_length_are_told_apart() -> None:
    assert [q.topic for q in batch_of(record("A"), record("B")).queues] == ["A", "B"]


def test_compressed_bodies_are_taken() -> None:
    assert len(batch_of(record(sys_flag=FLAG_COMPRESSED | 0x200))) == 1


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (record(sys_flag=FLAG_COMMIT), "sys flag"),
        (record(reconsume_times=1), "reconsume"),
        (record(prepared_offset=1), "prepared"),
        (record(queue_id=-1), "queue id"),
        (record("a/b"), "legal name"),
        (record("T" * 128), "legal name"),
        (record("%RETRY%" + "g" * 121), "128 bytes"),
        (record(properties={"REAL_TOPIC": "3"}), "REAL_TOPIC"),
        (record(properties={"a": "b", "TIMER_OUT_MS": "3"}), "TIMER_OUT_MS"),
        (record(properties={"__CRC32#": "0123456789"}), "CRC32"),
        (record(properties={"__RMQ.TRANSIENT.x": "1"}), "TRANSIENT"),
        (record(born_host=bytes(20)), "sys flag"),
        (record(body=b"x" * 100)[:-1], "fit|add up|length"),
        (record(body=b"x" * 100).replace(b"x", b"y", 1), "checksum"),
        (b"\0" * 120, "magic"),
        (record(properties={"k": "v"})[:-1] + b"v", "0x02"),
    ],
)
def test_bad_record_is_refused_and_its_neighbours_are_kept(bad: bytes, reason: str) -> None:
    checked = check(record(body=b"first"), bad, record(body=b"last"))
    assert checked.batch is not None
    assert checked.indexes.tolist() == [0, 2]
    assert [one.row for one in checked.refused] == [1]
    assert re.search(reason, checked.refused[0].remark)
    assert checked.batch.data == record(body=b"first") + record(body=b"last")


def test_property_resembling_a_served_one_is_accepted() -> None:
    assert not check(record(properties={"TIMEZONE": "UTC"})).refused
    assert not check(record(properties={"TIMER_OF_MINE": "UTC"})).refused


@pytest.mark.parametrize("plain", [1, 20])
def test_rows_that_may_be_rerouted_are_flagged(plain: int) -> None:
    batch = batch_of(
        *[record(body=b"%d" % number) for number in range(plain)],
        record("other", properties={"a": "b", "TRAN_MSG": "true"}),
        record(properties={"DELAYED": "3", "TIMER_OF_MINE": "UTC"}),
        record(properties={"DELAY": "3"}),
        record(properties={"TIMER_DELAY_SEC": "3"}, suffix=RESERVED_CHECKSUM),
        is_checksummed=True,
    )
    assert batch.routed == (plain, plain + 2, plain + 3)
    kept, rows = select_rows(batch, [q for q in batch.queues if q.topic != "other"])
    assert rows.tolist() == [*range(plain), plain + 1, plain + 2, plain + 3]
    assert kept.routed == (plain + 1, plain + 2)
    assert batch_of(record(), record()).routed == ()


def test_bad_records_alone_make_no_batch() -> None:
    checked = check(b"\0" * 120)
    assert checked.batch is None
    assert len(checked.refused) == 1


@pytest.mark.parametrize("sizes", [[], [0], [-5], [119, 2], [1 << 30]])
def test_impossible_lengths_are_refused_as_a_whole(sizes: list[int]) -> None:
    with pytest.raises(ValueError, match="add up"):
        check_records(
            bytes(120), np.array(sizes, dtype="<i4"), born_host_bytes=8, store_host_bytes=8
        )


def test_selection_keeps_rows_and_queues_together() -> None:
    batch = batch_of(
        record("A", 0, b"0"), record("B", 0, b"1"), record("A", 1, b"2"), record("A", 0, b"3")
    )
    kept, rows = select_rows(batch, [q for q in batch.queues if q.topic == "A"])
    assert rows.tolist() == [0, 2, 3]
    assert kept.data == record("A", 0, b"0") + record("A", 1, b"2") + record("A", 0, b"3")
    assert [(q.queue_id, q.rows.tolist()) for q in kept.queues] == [(0, [0, 2]), (1, [1])]


def test_completion_fills_in_offsets_hosts_and_time() -> None:
    batch = batch_of(record(body=b"one", born_host=bytes(8)), record(body=b"three"))
    target = bytearray(batch.data)
    batch.complete(
        memoryview(target),
        queue_offsets=np.array([7, 8]),
        physical_offsets=batch.starts + 1000,
        stored_at_ms=42,
        born_host=BORN_HOST,
        store_host=STORE_HOST,
    )
    second = decode_record(bytes(target), int(batch.starts[1]))
    assert second is not None
    header = second.header
    assert (header.queue_offset, header.physical_offset) == (8, batch.starts[1] + 1000)
    assert (header.stored_at_ms, header.born_host) == (42, BORN_HOST)
    assert second.body == b"three"


@pytest.mark.parametrize(
    ("properties", "tag"),
    [
        (b"", ""),
        (b"TAGS\x01a\x02", "a"),
        (b"k\x01v\x02TAGS\x01a\x02", "a"),
        (b"MYTAGS\x01a\x02", ""),
        (b"k\x01TAGS\x01a\x02", ""),
        (b"TAGS\x01a\x02k\x01TAGS\x01b\x02", "a"),
        (b"TAGS\x01a\x02TAGS\x01b\x02", "b"),
        (b"TAGS\x01\x02", ""),
        (b"TAGS\x01a", "a"),
    ],
)
def test_tags_are_found_as_rocketmq_reads_them(properties: bytes, tag: str) -> None:
    assert tag_code_of(properties) == tag_code(tag)
