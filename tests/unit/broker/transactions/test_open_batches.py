"""What operators are told of open transactions."""

import pytest

from ternmq_broker.transactions.half_codec import HalfRecord
from ternmq_broker.transactions.open_batches import BatchTable, OpenRow, add_to, matches
from ternmq_broker.transactions.table import OpenTimes
from ternmq_model.offsets import PhysicalOffset, QueueOffset


def row(staged_for: str, *, began_at_ms: int, due_at_ms: int | None, topic: str = "t") -> OpenRow:
    half = HalfRecord(
        transaction=PhysicalOffset(0),
        physical_offset=PhysicalOffset(0),
        queue_offset=QueueOffset(0),
        first_queue_offset=QueueOffset(0),
        group="g",
        message_id="m",
        transaction_id="m",
        topic=topic,
        queue_id=0,
        checks=0,
        immunity_ms=None,
        stored_at_ms=0,
        began_at_ms=0,
        staged_for=staged_for,
    )
    return OpenRow(half, OpenTimes(began_at_ms, due_at_ms))


@pytest.mark.parametrize(
    ("staged_for", "wanted", "is_so"),
    [
        ("", "", True),
        ("q/7", "", True),
        ("q/7", "q", True),
        ("q/7", "q/7", True),
        ("q", "q", True),
        ("q/70", "q/7", False),
        ("q1/7", "q", False),
        ("q", "q/7", False),
        ("", "q", False),
    ],
)
def test_query_means_all_its_batches_and_no_other(
    staged_for: str, wanted: str, is_so: bool
) -> None:
    assert matches(staged_for, wanted) is is_so


def test_open_transactions_are_counted_by_batch_with_their_times() -> None:
    rows = [
        row("q/1", began_at_ms=100, due_at_ms=900, topic="first"),
        row("", began_at_ms=150, due_at_ms=None),
        row("q/2", began_at_ms=200, due_at_ms=400),
        row("q/1", began_at_ms=300, due_at_ms=700),
        row("q/2", began_at_ms=600, due_at_ms=900),
    ]
    worked_on = {"q/1": 450, "q/2": 10, "": 0}
    found = BatchTable()
    add_to(found, rows[:2], worked_on.__getitem__, now_ms=500)
    add_to(found, rows[2:], worked_on.__getitem__, now_ms=500)
    assert [
        (one.staged_for, one.topic, one.count, one.oldest_ms, one.quiet_ms, one.left_ms)
        for one in found.values()
    ] == [
        ("q/1", "first", 2, 400, 50, 200),
        ("", "t", 1, 350, 350, -1),
        ("q/2", "t", 2, 300, 0, 0),
    ]
