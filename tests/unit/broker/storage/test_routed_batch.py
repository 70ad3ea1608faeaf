"""Batches with records that lie elsewhere first."""

import pytest

from ternmq_broker.storage.routed_batch import reroute
from ternmq_broker.storage.system_topic_routing import RoutingRules
from ternmq_model.record.format import decode_record
from tests.support.records import STORE_HOST, batch_of, record

RULES = RoutingRules(now_ms=1_700_000_000_000)
MORE: tuple[dict[str, str], ...] = ({}, {"DELAY": "3"})


@pytest.mark.parametrize("is_checksummed", [False, True])
def test_rows_that_need_it_are_rerouted_and_order_stays(is_checksummed: bool) -> None:
    batch = batch_of(
        record("A", 0, b"0"),
        record("A", 1, b"1", {"DELAY": "3", "TAGS": "x"}),
        record("A", 0, b"2", {"DELAY": "0"}),
        record("B", 2, b"3", {"TRAN_MSG": "true", "PGROUP": "g"}),
        record("A", 0, b"4"),
        is_checksummed=is_checksummed,
    )
    done = reroute(batch, RULES, store_host=STORE_HOST)
    assert done.batch is not None
    assert not done.refused
    assert done.rows.tolist() == [0, 1, 2, 3, 4]
    found = [decode_record(done.batch.data, start) for start in done.batch.starts.tolist()]
    assert [(one.topic, one.header.queue_id, one.body) for one in found if one is not None] == [
        (b"A", 0, b"0"),
        (b"SCHEDULE_TOPIC_XXXX", 2, b"1"),
        (b"A", 0, b"2"),
        (b"RMQ_SYS_TRANS_HALF_TOPIC", 0, b"3"),
        (b"A", 0, b"4"),
    ]
    assert {(q.topic, q.queue_id): q.rows.tolist() for q in done.batch.queues} == {
        ("A", 0): [0, 2, 4],
        ("SCHEDULE_TOPIC_XXXX", 2): [1],
        ("RMQ_SYS_TRANS_HALF_TOPIC", 0): [3],
    }
    assert done.batch.is_checksummed is is_checksummed


def test_place_that_client_sent_on_is_taken_off() -> None:
    read = {"TERNMQ_SOURCE": "7", "TAGS": "x"}
    batch = batch_of(
        record("A", 0, b"0"), *(record("A", 0, b"1", {**read, **more}) for more in MORE)
    )
    assert batch.routed == (1, 2)
    done = reroute(batch, RULES, store_host=STORE_HOST)
    assert done.batch is not None
    assert not done.refused
    assert [(q.topic, q.rows.tolist()) for q in done.batch.queues] == [
        ("A", [0, 1]),
        ("SCHEDULE_TOPIC_XXXX", [2]),
    ]
    assert b"TERNMQ_SOURCE" not in done.batch.data
    assert done.batch.data.count(b"TAGS\x01x") == 2


def test_unroutable_or_oversized_rows_are_refused_and_others_kept() -> None:
    batch = batch_of(
        record("A", 0, b"0"),
        record("A", 0, b"1", {"DELAY": "x"}),
        record("A", 0, b"2", {"DELAY": "1", "long": "x" * 32_750}),
        record("A", 0, b"3", {"DELAY": "1"}),
    )
    done = reroute(batch, RULES, store_host=STORE_HOST)
    assert done.batch is not None
    assert done.rows.tolist() == [0, 3]
    assert [each.row for each in done.refused] == [1, 2]
    assert "'DELAY'='x'" in done.refused[0].remark
    assert "at most 32767" in done.refused[1].remark
    assert [(q.topic, q.rows.tolist()) for q in done.batch.queues] == [
        ("A", [0]),
        ("SCHEDULE_TOPIC_XXXX", [1]),
    ]


def test_batch_without_remaining_rows_is_none() -> None:
    done = reroute(batch_of(record(properties={"DELAY": "x"})), RULES, store_host=STORE_HOST)
    assert done.batch is None
    assert [each.row for each in done.refused] == [0]


def test_delays_are_those_of_waiting_records_with_their_real_topics() -> None:
    due_ms = RULES.now_ms + 90_000
    batch = batch_of(
        record("A", 0, b"0"),
        record("A", 1, b"1", {"DELAY": "3"}),
        record("B", 0, b"2", {"TIMER_DELIVER_MS": str(due_ms)}),
        record("B", 2, b"3", {"TRAN_MSG": "true", "PGROUP": "g", "DELAY": "3"}),
        record("B", 0, b"4", {"DELAY": "x"}),
    )
    done = reroute(batch, RULES, store_host=STORE_HOST)
    assert [each.row for each in done.refused] == [4]
    assert list(done.delays) == [("A", 10_000), ("B", 90_000)]
