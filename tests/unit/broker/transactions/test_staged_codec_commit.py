"""Messages made of half messages' bytes are those that the longer way makes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq_broker.storage.internal_record import (
    InternalRecord,
    batches_of,
    encode_internal,
    internal_record_of,
)
from ternmq_broker.transactions.half_codec import TransactionIdentity, message_of, read_half
from ternmq_broker.transactions.staged_codec import PlainCommit, commit_batch, plain_commit
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.batch import RecordBatch
from ternmq_model.record.format import FLAG_COMPRESSED, decode_record
from ternmq_model.record.header_arrays import put_headers

HOST = bytes(8)
STAGED = {
    "TRAN_MSG": "true",
    "PGROUP": "sink",
    "TERNMQ_STAGED_FOR": "q/1",
    "CHECK_IMMUNITY_TIME_IN_SECONDS": "60",
    "__transactionId__": "k",
    "REAL_TOPIC": "flights",
    "REAL_QID": "3",
}
QUERY = TransactionIdentity("sink", "k", PhysicalOffset(0), "flights")

NOTHING: dict[str, str] = {}
ODDITIES: list[dict[str, str]] = [
    *[NOTHING] * 4,
    {"TERNMQ_STAGED_FOR": ""},
    {"CHECK_IMMUNITY_TIME_IN_SECONDS": ""},
    {"DELAY": "3"},
    {"TIMER_DELAY_MS": "5"},
    {"TRAN_BEGAN_MS": "5", "TRAN_PREPARED_QUEUE_OFFSET": "0"},
    {"TRANSACTION_CHECK_TIMES": "1"},
    {"REAL_TOPIC": "B"},
    {"REAL_QID": "x"},
    {"REAL_QID": ""},
    {"PGROUP": "others"},
    {"__transactionId__": "other"},
    {"later": "1"},
]
oddities = st.sampled_from(ODDITIES)
leads = st.dictionaries(
    st.sampled_from(["a", "TAGS", "KEYS", "row", "PGROUP", "x"]),
    st.sampled_from(["1", "b", "é", "UNIQ_KEY"]),
    max_size=4,
)


def half_of(
    lead: dict[str, str], further: dict[str, str], *, summed: bool, prepared: int = 0
) -> bytes:
    own = {"UNIQ_KEY": "k"} | {name: text for name, text in lead.items() if name not in STAGED}
    told = {name: text for name, text in (STAGED | further).items() if text}
    record = InternalRecord(
        topic="RMQ_SYS_TRANS_HALF_TOPIC",
        queue_id=0,
        body=b"body",
        properties=own | told,
        born_at_ms=7,
        born_host=b"\x01" * 8,
        flag=9,
        sys_flag=FLAG_COMPRESSED,
        prepared_offset=prepared,
    )
    return encode_internal(record, store_host=HOST, is_checksummed=summed)


def rows_of(batch: RecordBatch) -> list[object]:
    data = bytearray(batch.data)
    put_headers(np.frombuffer(data, dtype=np.uint8), batch.starts, batch.headers)  # as the log does
    rows: list[object] = []
    for number, start in enumerate(batch.starts.tolist()):
        record = decode_record(bytes(data[start : start + int(batch.sizes[number])]))
        assert record is not None
        assert bytes(data[int(batch.properties[number]) :]).startswith(record.properties)
        rows.append((record, int(batch.tag_codes[number])))
    queues = {(one.topic, one.queue_id): one.rows.tolist() for one in batch.queues}
    return [rows, queues, batch.is_checksummed, bytes(data)]


@given(
    st.lists(st.tuples(leads, oddities, st.booleans(), st.sampled_from([0, 0, 0, 5])), min_size=1),
    st.booleans(),
)
def test_fast_and_general_path_make_the_same_messages(
    told: list[tuple[dict[str, str], dict[str, str], bool, int]], is_checksummed: bool
) -> None:
    plain: list[PlainCommit] = []
    long: list[InternalRecord] = []
    for lead, further, summed, prepared in told:
        data = half_of(lead, further, summed=summed, prepared=prepared)
        found = plain_commit(data, QUERY)
        if found is None:
            continue
        record = decode_record(data)
        assert record is not None
        half = read_half(record, place_of=lambda _: None)
        assert half is not None
        assert half.staged_for
        assert not half.is_delayed
        assert (half.group, half.message_id, half.topic) == ("sink", "k", "flights")
        assert half.transaction == found.transaction
        plain.append(found)
        long.append(message_of(internal_record_of(record), half, queue_id=half.queue_id))
    if plain:
        (wanted,) = batches_of(long, store_host=HOST, is_checksummed=is_checksummed)
        assert rows_of(commit_batch(plain, is_checksummed=is_checksummed)) == rows_of(wanted)


@pytest.mark.parametrize("summed", [False, True])
def test_staged_half_takes_the_fast_path(summed: bool) -> None:
    found = plain_commit(half_of({"row": "1"}, {}, summed=summed), QUERY)
    assert found is not None
    assert (found.topic, found.queue_id, found.message_id) == ("flights", 3, "k")


@pytest.mark.parametrize(
    "query",
    [
        QUERY._replace(group="others"),
        QUERY._replace(message_id="j"),
        QUERY._replace(topic="B"),
        QUERY._replace(transaction=PhysicalOffset(8)),
    ],
)
def test_half_of_another_transaction_takes_the_general_path(query: TransactionIdentity) -> None:
    assert plain_commit(half_of({}, {}, summed=True), query) is None


def test_damaged_half_takes_the_general_path() -> None:
    good = half_of({"row": "1"}, {}, summed=True)
    whole = plain_commit(good, QUERY)
    assert whole is not None
    for at in (0, 4, 8, 28, 84, 88, 92, 93, 120):
        bad = bytearray(good)
        bad[at] ^= 0x40
        assert plain_commit(bytes(bad), QUERY) is None, at
    for length in range(0, len(good), 7):
        assert plain_commit(good[:length], QUERY) is None
