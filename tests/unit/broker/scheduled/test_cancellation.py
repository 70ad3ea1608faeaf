"""Timed messages that cancel others."""

import numpy as np
import pytest

from ternmq_broker.scheduled.cancellation import Cancellations
from ternmq_broker.scheduled.timer_wheel import DueMessages
from ternmq_model.record.format import Record, decode_record
from tests.support.records import record

DUE_MS = 1_800_000_000_000


def timed(key: str, topic: str = "A", cancels: str = "") -> Record:
    more = {"TIMER_DEL_UNIQKEY": cancels} if cancels else {}
    found = decode_record(
        record(properties={"UNIQ_KEY": key, "REAL_TOPIC": topic, "REAL_QID": "0", **more})
    )
    assert found is not None
    return found


def due(*rows: tuple[int, int, int]) -> DueMessages:
    return DueMessages(*(np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)))


@pytest.mark.parametrize("cancels", ["one", "A+one"])
def test_cancelling_message_names_a_key_with_its_topic_or_without(cancels: str) -> None:
    records = [timed("c", cancels=cancels), timed("one"), timed("two"), timed("one", "B")]
    batch = due((7, DUE_MS, 1), (1, DUE_MS, 0), (2, DUE_MS, 0), (3, DUE_MS, 0))
    assert Cancellations().without_cancelled(records, batch) == records[2:]


def test_cancelling_by_topic_key_and_tick_is_idempotent() -> None:
    cancelling = Cancellations()
    records = [timed("c", cancels="one"), timed("one"), timed("one", "B"), timed("two"), None]
    batch = due(
        (7, DUE_MS, 1), (1, DUE_MS, 0), (2, DUE_MS, 0), (3, DUE_MS, 0), (4, DUE_MS, 0), (5, 1, 0)
    )
    for _ in range(2):
        assert cancelling.without_cancelled(records, batch) == [records[2], records[3]]
    other = due((8, DUE_MS + 100, 0))
    assert cancelling.without_cancelled([timed("one")], other) == [timed("one")]
    assert cancelling.without_cancelled([timed("one")], due((9, DUE_MS, 0))) == []


def test_cancellation_is_kept_until_its_tick_is_over() -> None:
    cancelling = Cancellations()
    batch = due((7, DUE_MS, 1), (5, DUE_MS + 100, 1))
    cancelling.without_cancelled([timed("c", cancels="x"), timed("d", cancels="y")], batch)
    assert cancelling.first_offset == 5
    cancelling.forget(DUE_MS - 100)
    assert cancelling.without_cancelled([timed("x")], due((9, DUE_MS, 0))) == []
    cancelling.forget(DUE_MS)
    assert cancelling.without_cancelled([timed("x")], due((9, DUE_MS, 0))) == [timed("x")]
    cancelling.forget(DUE_MS + 100)
    assert cancelling.first_offset is None


def test_cancelling_messages_are_told_until_they_are_forgotten() -> None:
    cancelling = Cancellations()
    assert not len(cancelling.waiting())
    cancelling.without_cancelled([timed("c", cancels="one")], due((7, DUE_MS, 1)))
    for _ in range(2):
        assert [column.tolist() for column in cancelling.waiting()] == [[7], [DUE_MS], [1]]
    cancelling.forget(DUE_MS)
    assert not len(cancelling.waiting())
