"""Any records as columns: every row says what `StoredMessage` says of its record."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ternmq_model.compression import compress
from ternmq_model.errors import CorruptBody, CorruptRecord
from ternmq_model.record.checksum import RESERVED_CHECKSUM
from ternmq_model.record.format import MAGIC_V2, encode_record
from ternmq_model.stored_message import decode_single
from tests.support.examples import examples
from tests.support.rows import row_of

pytest.importorskip("pyarrow")

from ternmq_model.columns.batches import arrow_schema, build_rows
from ternmq_model.columns.column_names import COLUMNS

HOSTS = st.sampled_from(
    [bytes((127, 0, 0, 1, 0, 0, 1, 1)), bytes((10, 0, 0, 9, 0, 0, 2, 2)), bytes(range(20))]
)
TIMES = st.sampled_from([0, 1_700_000_000_123, -1, -62_135_596_800_001, 1 << 62, -(1 << 63)])
NAMES = st.sampled_from(
    [b"TAGS", b"KEYS", b"UNIQ_KEY", b"__CRC32#", b"colour", b"\xe8\xae\xa2", b"\xff", b""]
)
VALUES = st.sampled_from(
    [b"a b", b"a", b" x  y ", b"", b"v" * 40, b"a\x01b", "é".encode(), b"\xe8\xae", b"\x80", b"\0"]
)
SEPARATORS = st.sampled_from([b"\x02"] * 6 + [b"", b"\x02\x02", b"\x01"])


@st.composite
def encoded_properties(draw: st.DrawFn) -> bytes:
    """Draw properties as anybody may have written them."""
    made = b""
    for _ in range(draw(st.integers(0, 5))):
        made += draw(NAMES) + draw(st.sampled_from([b"\x01"] * 8 + [b""])) + draw(VALUES)
        made += draw(SEPARATORS)
    return made + draw(st.sampled_from([b"", RESERVED_CHECKSUM]))


def to_v2(record: bytes, topic: bytes) -> bytes:
    """Return the record with the topic's length in two bytes."""
    topic_at = record.rindex(bytes((len(topic),)) + topic)
    magic = (MAGIC_V2 & 0xFFFFFFFF).to_bytes(4, "big")
    total = (len(record) + 1).to_bytes(4, "big")
    return total + magic + record[8:topic_at] + b"\0" + record[topic_at:]


@st.composite
def records(draw: st.DrawFn) -> bytes:
    """Draw a record, whole."""
    topic = draw(st.sampled_from([b"A", b"A", b"longer-name", b"\xff\xfe", b"\xe8\xae\xa2"]))
    body = draw(st.sampled_from([b"", b"body", b"x" * 700]))
    flags = draw(st.sampled_from([0, 0, 0, 8, 0x1, 0x101, 0x201, 0x701]))
    if flags & 1 and draw(st.integers(0, 3)):
        body, flags = compress(b"text " * 100, draw(st.sampled_from(["zlib", "lz4", "zstd"])), 1)
    one = encode_record(
        topic=topic,
        queue_id=draw(st.sampled_from([0, 7, 70_000, -1])),
        body=body,
        properties=draw(encoded_properties()),
        born_at_ms=draw(TIMES),
        born_host=draw(HOSTS),
        store_host=draw(HOSTS),
        sys_flag=flags,
        queue_offset=draw(st.sampled_from([0, 5, 1 << 40, -1])),
        physical_offset=draw(st.sampled_from([0, 1 << 41])),
        stored_at_ms=draw(TIMES),
        reconsume_times=draw(st.sampled_from([0, 3, -1])),
    )
    return to_v2(one, topic) if draw(st.integers(0, 4)) == 0 else one


@st.composite
def laid_out(draw: st.DrawFn) -> tuple[bytes, Sequence[int], Sequence[bytes]]:
    """Draw a buffer with records in any order and other bytes between; where; and the records."""
    drawn = draw(st.lists(records(), max_size=8))
    order = draw(st.permutations(range(len(drawn)))) if draw(st.booleans()) else range(len(drawn))
    data, starts = b"", [0] * len(drawn)
    for row in order:
        data += draw(st.sampled_from([b"", b"", b"\x01\x02", b"junk"]))
        starts[row] = len(data)
        data += drawn[row]
    return data, starts, drawn


COLUMN_LISTS = st.one_of(
    st.just(COLUMNS), st.lists(st.sampled_from(COLUMNS), min_size=1, unique=True)
)


@given(laid_out(), COLUMN_LISTS, st.booleans())
@settings(max_examples=examples(300))
def test_rows_equal_their_messages(
    drawn: tuple[bytes, Sequence[int], Sequence[bytes]], columns: Sequence[str], is_view: bool
) -> None:
    data, starts, originals = drawn
    sizes = np.array([len(each) for each in originals], dtype=np.int64)
    built = build_rows(
        memoryview(data) if is_view else data,
        np.array(starts, dtype=np.int64),
        sizes,
        broker_name="broker-a",
        columns=columns,
    )
    assert built.batch.schema.equals(arrow_schema(columns), check_metadata=True)
    built.batch.validate(full=True)
    expected: list[tuple[int, Mapping[str, object]]] = []
    broken: list[int] = []
    for row, record in enumerate(originals):
        try:
            expected.append((row, row_of(decode_single(record, "broker-a"), columns)))
        except CorruptBody:
            broken.append(row)
    assert built.rows.tolist() == [row for row, _ in expected]
    assert built.batch.to_pylist() == [each for _, each in expected]
    assert [damage.row for damage in built.damaged] == broken
    assert all(type(damage.error) is CorruptBody for damage in built.damaged)
    assert built.inspected == len(originals)


@given(laid_out(), st.data())
@settings(max_examples=examples(200))
def test_damaged_records_are_left_out_and_others_become_rows(
    drawn: tuple[bytes, Sequence[int], Sequence[bytes]], data: st.DataObject
) -> None:
    original, starts, originals = drawn
    buffer = bytearray(original)
    for _ in range(data.draw(st.integers(0, 3))):
        if buffer:
            buffer[data.draw(st.integers(0, len(buffer) - 1))] ^= data.draw(st.integers(1, 255))
    built = build_rows(
        bytes(buffer),
        np.array(starts, dtype=np.int64),
        np.array([len(each) for each in originals], dtype=np.int64),
        broker_name="broker-a",
        columns=["queueOffset", "msgId", "keys", "properties"],
    )
    damaged: list[int] = []
    for row, (start, record) in enumerate(zip(starts, originals, strict=True)):
        now = bytes(buffer[start : start + len(record)])
        try:
            decode_single(now, "broker-a")
            ok = int.from_bytes(now[:4], "big") == len(now)
        except (CorruptRecord, AssertionError):
            ok = False
        if not ok:
            damaged.append(row)
    assert [each.row for each in built.damaged] == damaged
    assert built.rows.tolist() == [row for row in range(len(starts)) if row not in damaged]
