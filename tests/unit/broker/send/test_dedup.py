"""What of a retried batch can be looked up, and how its answer is put together."""

import numpy as np

from ternmq_broker.send.dedup import (
    DuplicateRecord,
    RetriedRow,
    duplicate_of,
    join_results,
    queue_ids_of,
    rest_of,
    retried_rows,
)
from ternmq_broker.send.message_writer import PutResult
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.batch import RefusedRecord
from ternmq_model.record.format import decode_record
from tests.support.records import record, sizes_of


def keyed(key: str, **others: str) -> bytes:
    return record("A", 0, b"x", {"UNIQ_KEY": key, **others} if key else {"TAGS": "t"})


def test_record_is_looked_up_under_its_topic_and_waiting_topics() -> None:
    records = [
        keyed("plain"),
        keyed("level", DELAY="3"),
        keyed("half", TRAN_MSG="true"),
        keyed("timed", TIMER_DELAY_MS="5"),
        keyed("both", TRAN_MSG="true", DELAY="1"),
        keyed(""),
        b"\0" * 120,
    ]
    rows = retried_rows(b"".join(records), sizes_of(records))
    assert {row.key: row.topics for row in rows} == {
        "plain": ("A",),
        "level": ("A", "SCHEDULE_TOPIC_XXXX"),
        "half": ("A", "RMQ_SYS_TRANS_HALF_TOPIC"),
        "timed": ("A", "rmq_sys_wheel_timer"),
        "both": ("A", "RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"),
    }
    assert [row.row for row in rows] == [0, 1, 2, 3, 4]
    assert [row.is_half for row in rows] == [False, False, True, False, True]


def test_lying_sizes_are_left_to_the_record_check() -> None:
    good = keyed("a")
    assert retried_rows(good, np.array([len(good) + 1], dtype="<i4")) == []
    assert retried_rows(good, np.array([-1, len(good) + 1], dtype="<i4")) == []
    assert retried_rows(b"", np.array([], dtype="<i4")) == []


def test_transaction_is_found_at_its_first_half() -> None:
    header = decode_record(record("A", 3, prepared_offset=77))
    assert header is not None
    half = RetriedRow(0, "k", ("A", "RMQ_SYS_TRANS_HALF_TOPIC"), True)
    assert duplicate_of(half, "RMQ_SYS_TRANS_HALF_TOPIC", header.header).physical_offset == 77
    assert duplicate_of(half, "RMQ_SYS_TRANS_HALF_TOPIC", header.header).queue_id == -1
    plain = RetriedRow(0, "k", ("A",), False)
    place = duplicate_of(plain, "A", header.header)
    assert (place.queue_id, place.physical_offset) == (3, 0)


def test_places_are_answered_in_the_order_of_the_request() -> None:
    records = [record("A", queue_id, b"x" * queue_id) for queue_id in range(4)]
    sizes = sizes_of(records)
    found = {1: DuplicateRecord(1, 50, 500, 9, 600), 3: DuplicateRecord(0, 70, 700, 8, 800)}
    rest, rest_sizes, rows = rest_of(b"".join(records), sizes, found)
    assert rest == records[0] + records[2]
    assert rest_sizes.tolist() == [len(records[0]), len(records[2])]
    stored = PutResult(
        np.array([5, -1], dtype=np.int64),
        np.array([50, -1], dtype=np.int64),
        10,
        PhysicalOffset(60),
        [RefusedRecord(1, 13, "no")],
    )
    sent = queue_ids_of(b"".join(records), sizes)
    assert sent == [0, 1, 2, 3]
    joined = join_results(4, sent, found, rows, stored)
    assert joined.queue_offsets.tolist() == [5, 50, -1, 70]
    assert joined.physical_offsets.tolist() == [50, 500, -1, 700]
    assert (joined.end, joined.stored_at_ms) == (800, 10)
    assert joined.refused == [RefusedRecord(2, 13, "no")]
    assert joined.queue_ids is not None
    assert joined.queue_ids.tolist() == [0, 1, 2, 0]
    all_found = {row: DuplicateRecord(-1, row, row, 1, row + 1) for row in range(4)}
    nothing_left = join_results(4, sent, all_found, np.array([], dtype=np.int64), None)
    assert nothing_left.queue_ids is None
    assert nothing_left.end == 4
