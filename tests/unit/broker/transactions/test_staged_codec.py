import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ternmq_broker.storage.internal_record import InternalRecord, encode_internal
from ternmq_broker.transactions.half_codec import read_half
from ternmq_broker.transactions.staged_codec import staged_halves
from ternmq_model.record.format import decode_record

HOST = bytes(8)
STAGED = {
    "TRAN_MSG": "true",
    "PGROUP": "sink",
    "TERNMQ_STAGED_FOR": "q/1",
    "CHECK_IMMUNITY_TIME_IN_SECONDS": "60",
    "CLUSTER": "c",
    "__transactionId__": "k",
    "REAL_TOPIC": "flights",
    "REAL_QID": "3",
}

odd = st.sampled_from(
    [
        {},
        {"TERNMQ_STAGED_FOR": ""},
        {"CHECK_IMMUNITY_TIME_IN_SECONDS": ""},
        {"CHECK_IMMUNITY_TIME_IN_SECONDS": "x"},
        {"CHECK_IMMUNITY_TIME_IN_SECONDS": "99999999999"},
        {"TRAN_PREPARED_QUEUE_OFFSET": "0", "TRAN_BEGAN_MS": "5"},
        {"TRANSACTION_CHECK_TIMES": "2"},
        {"REAL_TOPIC": ""},
        {"DELAY": "3"},
        {"PGROUP": "other"},
    ]
)
leads = st.dictionaries(
    st.sampled_from(["a", "PGROUP", "TRAN_MSG", "__transactionId__", "KEYS"]),
    st.sampled_from(["1", "x", "é"]),
    max_size=3,
)
records = st.lists(
    st.tuples(leads, odd, st.sampled_from([0, 0, 0, 700]), st.booleans()), max_size=8
)


@given(records)
def test_vectorized_parsing_agrees_with_decoding_each_record(
    told: list[tuple[dict[str, str], dict[str, str], int, bool]],
) -> None:
    all_data = [
        encode_internal(
            InternalRecord(
                topic="RMQ_SYS_TRANS_HALF_TOPIC",
                queue_id=0,
                body=b"body",
                properties={"UNIQ_KEY": "k"}
                | {name: value for name, value in lead.items() if name not in STAGED}
                | {name: value for name, value in (STAGED | further).items() if value},
                born_at_ms=1,
                born_host=HOST,
                prepared_offset=prepared,
            ),
            store_host=HOST,
            is_checksummed=summed,
        )
        for lead, further, prepared, summed in told
    ]
    sizes = np.array([len(data) for data in all_data], dtype=np.int64)
    found = staged_halves(b"".join(all_data), np.cumsum(sizes) - sizes, sizes)
    assert len(found) == len(told)
    for one, data in zip(found, all_data, strict=True):
        record = decode_record(data)
        assert record is not None
        half = read_half(record, place_of=lambda _: None)
        if one is None:
            continue
        assert half is not None
        assert half.transaction == half.physical_offset == one.physical_offset
        assert (half.queue_offset, half.began_at_ms) == (one.queue_offset, one.stored_at_ms)
        assert (half.group, half.immunity_ms) == (one.group, one.immunity_ms)
        assert half.staged_for
        assert not half.checks


def test_staged_halves_parse_without_decoding_and_damaged_ones_are_skipped() -> None:
    good = encode_internal(
        InternalRecord(
            topic="RMQ_SYS_TRANS_HALF_TOPIC",
            queue_id=0,
            body=b"body",
            properties={"UNIQ_KEY": "k", "row": "7"} | STAGED,
            born_at_ms=1,
            born_host=HOST,
        ),
        store_host=HOST,
        is_checksummed=True,
    )
    bad = bytearray(good)
    bad[87] = 200  # the body's length
    sizes = np.array([len(good)] * 3, dtype=np.int64)
    data = good + bytes(bad) + good
    found = staged_halves(data, np.cumsum(sizes) - sizes, sizes)
    assert found[1] is None
    for one in (found[0], found[2]):
        assert one is not None
        assert (one.group, one.immunity_ms) == ("sink", 60_000)
    assert list(staged_halves(b"", sizes[:0], sizes[:0])) == []
