"""Keys found for a whole batch are those that reading one record after the other finds."""

from dataclasses import replace

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from ternmq_model.index_keys import find_keys, key_hash
from ternmq_model.properties import decode_properties
from ternmq_model.record.batch import RecordBatch
from ternmq_model.record.fields import QueueRows
from ternmq_model.record.format import decode_record, encode_record
from ternmq_model.record.header_arrays import header_type, take_headers
from tests.support.records import BORN_HOST, STORE_HOST

PIECES = st.sampled_from(
    [
        *(b"\x01", b"\x02", b" ", b"UNIQ_KEY", b"KEYS", b"KEYS\x01a b", b"\xe4"),
        *(b"\x02UNIQ_KEY\x01", b"UNIQ_KEY\x01k"),
    ]
) | st.binary(max_size=6)
PROPERTIES = st.lists(PIECES, max_size=12).map(b"".join) | st.integers(0, 300).map(
    lambda length: b"KEYS\x01x\x02UNIQ_KEY\x01" + b"k" * length + b"\x02"
)
RECORDS = st.tuples(st.sampled_from(["A", "Topic"]), PROPERTIES, st.sampled_from([0, 4, 8, 12]))


def bare_batch(records: list[tuple[str, bytes, int]]) -> RecordBatch:
    """Return a batch of records with properties that no check has seen."""
    encoded = [
        encode_record(
            topic=topic.encode(),
            queue_id=0,
            body=b"\x02KEYS\x01body\x02",
            properties=properties,
            born_at_ms=0,
            born_host=BORN_HOST,
            store_host=STORE_HOST,
            sys_flag=flag,
        )
        for topic, properties, flag in records
    ]
    data = b"".join(encoded)
    sizes = np.array([len(one) for one in encoded], dtype=np.int64)
    starts = np.cumsum(sizes) - sizes
    begins = np.cumsum(sizes) - np.array([len(one) for _, one, _ in records])
    rows = {
        topic: np.flatnonzero([one == topic for one, _, _ in records]) for topic in ("A", "Topic")
    }
    queues = tuple(QueueRows(topic, 0, mine) for topic, mine in rows.items() if len(mine))
    headers = take_headers(data, starts, header_type(0))
    return RecordBatch(data, starts, sizes, headers, sizes, queues, begins)


def read_keys(batch: RecordBatch) -> list[tuple[int, int]]:
    """Return row and hash of every key, read the long way."""
    found: list[tuple[int, int]] = []
    for row, start in enumerate(batch.starts.tolist()):
        record = decode_record(batch.data, start)
        assert record is not None
        pairs = decode_properties(record.properties)
        keys = [pairs.get("UNIQ_KEY", ""), *pairs.get("KEYS", "").split(" ")]
        if record.header.sys_flag & 0xC != 0xC:
            found += [(row, key_hash(record.topic.decode(), key)) for key in keys if key]
    return found


@given(st.lists(RECORDS, min_size=1, max_size=5))
@example([("A", b"KEYS\x01a  b \x02UNIQ_KEY\x01u\x02KEYS\x01\x02", 0), ("A", b"", 0)])
@example([("A", "KEYS\x01é x€y 😀\x02".encode(), 0), ("Topic", b"UNIQ_KEY\x01a b\x01c", 4)])
@example([("A", b"UNIQ_KEY\x01a\x02UNIQ_KEY\x01b\x02", 0)])
@example([("A", b"UNIQ_KEY\x01a\x02KEYS\x01b\x02", 0)])
@example([("A", b"UNIQ_KEY\x01\x02", 0), ("A", b"UNIQ_KEY\x01\xff\x02", 0)])
def test_keys_of_a_batch_are_those_of_its_records_read_singly(
    records: list[tuple[str, bytes, int]],
) -> None:
    # Few are read one by one by `find_keys` as well, more are not.
    for batch in (bare_batch(records), bare_batch(records * 9)):
        keys = find_keys(batch)
        assert list(zip(keys.rows.tolist(), keys.hashes.tolist(), strict=True)) == read_keys(batch)


def test_records_without_a_queue_have_no_keys() -> None:
    batch = bare_batch([("A", b"KEYS\x01a\x02", 0), ("Topic", b"KEYS\x01a\x02", 0)])
    keys = find_keys(replace(batch, queues=batch.queues[1:]))
    assert keys.rows.tolist() == [1]
    assert keys.hashes.tolist() == [key_hash("Topic", "a")]


def test_hash_without_positive_counterpart_counts_as_zero() -> None:
    assert key_hash("polygenelubricants", "") >= 0
    text = min_value_key()
    assert key_hash("T", text) == 0
    assert find_keys(bare_batch([("A", b"", 0)])).hashes.tolist() == []


def min_value_key() -> str:
    """Return a key whose hash under topic T is the least Java integer."""
    target, prefix = 1 << 31, 0
    for code in b"T#":
        prefix = (prefix * 31 + code) & 0xFFFFFFFF
    inverse = [pow(31, power, 1 << 32) for power in range(7)]
    rest = (target - prefix * inverse[6]) % (1 << 32)
    codes: list[int] = []
    for power in range(5, -1, -1):
        code = min(rest // inverse[power] if power < 6 else 0, 0x7E)
        codes.append(code)
        rest -= code * inverse[power]
    return "".join(map(chr, codes))
