"""What operators are told of open transactions."""

import pytest

from ternmq_broker.transactions.half import Half
from ternmq_broker.transactions.listing import OpenBatch, OpenRow, batches_of, is_meant
from ternmq_broker.transactions.table import Sighting
from ternmq_model.offsets import PhysicalOffset, QueueOffset


def row(staged_for: str, *, began_at_ms: int, due_at_ms: int | None, topic: str = "t") -> OpenRow:
    half = Half(
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
    return OpenRow(half, Sighting(began_at_ms, due_at_ms))


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
    assert is_meant(staged_for, wanted) is is_so


def test_open_transactions_are_counted_by_batch_with_their_times() -> None:
    rows = [
        row("q/1", began_at_ms=100, due_at_ms=900, topic="first"),
        row("", began_at_ms=150, due_at_ms=None),
        row("q/2", began_at_ms=200, due_at_ms=400),
        row("q/1", began_at_ms=300, due_at_ms=700),
    ]
    worked_on = {"q/1": 450, "q/2": 10, "": 0}
    assert batches_of(rows, worked_on.__getitem__, now_ms=500) == [
        OpenBatch("q/1", "g", "first", 2, 400, 200, quiet_ms=50, left_ms=200),
        OpenBatch("", "g", "t", 1, 350, 350, quiet_ms=350, left_ms=-1),
        OpenBatch("q/2", "g", "t", 1, 300, 300, quiet_ms=300, left_ms=0),
    ]
