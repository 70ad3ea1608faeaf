"""Staged half messages by the batch become what each alone would become."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ternmq_broker.storage import routed_batch
from ternmq_broker.storage.routed_batch import NOT_STAGED, STAGED_OWN, RoutedBatch, reroute
from ternmq_broker.storage.staged_batch import stage_rows
from ternmq_broker.storage.system_topic_routing import RoutingRules
from ternmq_model.errors import refusal
from ternmq_model.properties import decode_properties
from ternmq_model.record.batch import RecordBatch
from ternmq_model.record.format import FLAG_COMPRESSED, decode_record
from ternmq_model.record.header_arrays import put_headers
from ternmq_model.response_code import ResponseCode
from tests.support.records import STORE_HOST, batch_of, record

RULES = RoutingRules(now_ms=1_700_000_000_000)
ENDS = "TRAN_MSG\x01true\x02PGROUP\x01sink\x02TERNMQ_STAGED_FOR\x01q/1\x02"

names = st.sampled_from(["a", "TAGS", "KEYS", "PGROUP", "DELAY", "TIMER_DELAY_MS", "x", "UNIQ_KEY"])
values = st.sampled_from(["1", "b", "é", "17", "TRAN_MSG", "q\x01r"])
leads = st.lists(st.tuples(names, values), max_size=4)
tails = st.sampled_from(
    [
        ENDS,
        ENDS + "CHECK_IMMUNITY_TIME_IN_SECONDS\x0160\x02",
        ENDS + "CHECK_IMMUNITY_TIME_IN_SECONDS\x0160\x02CLUSTER\x01c\x02",
        ENDS + "CHECK_IMMUNITY_TIME_IN_SECONDS\x01x\x02",
        ENDS + "DELAY\x013\x02",
        ENDS.replace("q/1", "q 1"),
        ENDS.replace("true", "false"),
        "TRAN_MSG\x01true\x02PGROUP\x01sink\x02",
    ]
)


def batch(
    rows: list[tuple[list[tuple[str, str]], str, int]], *, is_checksummed: bool
) -> RecordBatch:
    records = [
        record(
            "A" if queue_id else "Bee",
            queue_id,
            b"body %d" % number,
            {"UNIQ_KEY": f"{number:032X}"},
            sys_flag=FLAG_COMPRESSED if queue_id == 2 else 0,
            suffix=("".join(f"{name}\x01{value}\x02" for name, value in lead) + tail).encode(),
        )
        for number, (lead, tail, queue_id) in enumerate(rows)
    ]
    return batch_of(*records, is_checksummed=is_checksummed)


def told(done: RoutedBatch) -> list[object]:
    """Return all that a rerouted batch says."""
    if done.batch is None:
        return [done.rows.tolist(), done.refused]
    rows: list[object] = []
    kept, completed = done.batch, bytearray(done.batch.data)
    put_headers(
        np.frombuffer(completed, dtype=np.uint8), kept.starts, kept.headers
    )  # as the log does
    data = bytes(completed)
    for number, start in enumerate(kept.starts.tolist()):
        one = decode_record(data[start : start + int(kept.sizes[number])])
        assert one is not None
        assert data[int(kept.properties[number]) :].startswith(one.properties)
        head = kept.headers[number]
        rows.append(
            (
                *(one.topic, one.body, decode_properties(one.properties), one.header.body_crc),
                *(int(head["queue_id"]), int(head["sys_flag"])),
                *(int(head["born_at_ms"]), int(head["body_bytes"]), int(head["body_crc"])),
                *(int(kept.tag_codes[number]), int(done.staged_ms[number])),
            )
        )
    queues = {(queue.topic, queue.queue_id): queue.rows.tolist() for queue in kept.queues}
    return [rows, queues, done.rows.tolist(), done.refused, kept.is_checksummed]


rows_of_batches = st.lists(st.tuples(leads, tails, st.integers(0, 2)), min_size=1, max_size=14)


uniform = tails.flatmap(
    lambda tail: st.lists(
        st.tuples(leads, st.just(tail), st.integers(0, 2)), min_size=8, max_size=14
    )
)


@given(st.one_of(rows_of_batches, uniform), st.booleans())
@example([([("a", "1")], ENDS, number % 3) for number in range(9)], True)
def test_batch_is_rewritten_like_its_records_singly(
    rows: list[tuple[list[tuple[str, str]], str, int]], is_checksummed: bool
) -> None:
    checked = batch(rows, is_checksummed=is_checksummed)
    fast = reroute(checked, RULES, store_host=STORE_HOST)
    with mock.patch.object(routed_batch, "stage_rows", return_value=None):
        slow = reroute(checked, RULES, store_host=STORE_HOST)
    assert told(fast) == told(slow)


@pytest.mark.parametrize(
    ("further", "lasts_ms"),
    [("", STAGED_OWN), ("CHECK_IMMUNITY_TIME_IN_SECONDS\x0160\x02", 60_000)],
)
def test_plain_batch_takes_the_fast_path(further: str, lasts_ms: int) -> None:
    checked = batch(
        [([("a", str(n))], ENDS + further, n % 3) for n in range(20)], is_checksummed=True
    )
    assert stage_rows(checked, RULES) is not None
    assert reroute(checked, RULES, store_host=STORE_HOST).staged_ms.tolist() == [lasts_ms] * 20


def test_unstaged_halves_are_told_apart() -> None:
    mixed = batch(
        [([], ENDS, 1), ([], "TRAN_MSG\x01true\x02PGROUP\x01g\x02", 1)], is_checksummed=False
    )
    done = reroute(mixed, RULES, store_host=STORE_HOST)
    assert done.staged_ms.tolist() == [STAGED_OWN, NOT_STAGED]


def test_vectorized_reroute_refuses_transactions_when_none_may_begin() -> None:
    full = RoutingRules(
        now_ms=RULES.now_ms, no_transactions=refusal(ResponseCode.FLOW_CONTROL, "too many")
    )
    checked = batch([([], ENDS, 1) for _ in range(20)], is_checksummed=False)
    done = reroute(checked, full, store_host=STORE_HOST)
    assert done.batch is None
    assert len(done.refused) == 20
