"""Whatever lies in the log: many records at once get the verdict that each gets by itself."""

from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ternmq_model.errors import CorruptRecord
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.checksum import (
    RESERVED_CHECKSUM,
    checksum_digits,
    checksum_of,
    verify_checksum,
)
from ternmq_model.record.fields import tag_code_of, topic_name
from ternmq_model.record.format import MAGIC_V2, Record, decode_record, encode_blank, encode_record
from ternmq_model.record.integrity import check_record
from ternmq_model.record.scanner import LogChunk, Verify, scan_records
from tests.support.examples import examples

HOSTS = st.sampled_from([bytes(8), bytes(range(20))])
PROPERTIES = st.sampled_from(
    [
        b"",
        b"TAGS\x01x\x02",
        b"UNIQ_KEY\x01" + b"u" * 32 + b"\x02KEYS\x01a b\x02TAGS\x01\xe8\xae\xa2\x02",
        b"k\x01a\0b\x02",
        b"k\x01" + b"v" * 600 + b"\x02",
        b"\xff\x01",
    ]
)


def to_v2(record: bytes, topic: bytes) -> bytes:
    """Return the record with the topic's length in two bytes."""
    topic_at = record.index(bytes((len(topic),)) + topic, 88)
    magic = (MAGIC_V2 & 0xFFFFFFFF).to_bytes(4, "big")
    total = (len(record) + 1).to_bytes(4, "big")
    return total + magic + record[8:topic_at] + b"\0" + record[topic_at:]


def with_checksum(record: bytes) -> bytes:
    """Return the record with its checksum, if it has room for one."""
    if not record.endswith(RESERVED_CHECKSUM):
        return record
    digits = checksum_digits(checksum_of(record))
    return record[: -len(digits) - 1] + digits + b"\x02"


@st.composite
def files(draw: st.DrawFn) -> tuple[bytearray, int]:
    """Draw a file of the log, at what offset it begins, and some bytes of it changed."""
    base = draw(st.sampled_from([0, 10_000]))
    data = bytearray()
    for _ in range(draw(st.integers(0, 8))):
        topic = draw(st.sampled_from([b"A", b"B-longer", b"b d", b"\xff", b"T" * 127, b"z\0"]))
        one = encode_record(
            topic=topic,
            queue_id=draw(st.sampled_from([0, 1, 70_000, -1])),
            body=draw(st.sampled_from([b"", b"body", bytes(700)])),
            properties=draw(PROPERTIES)
            + draw(st.sampled_from([b"", RESERVED_CHECKSUM, RESERVED_CHECKSUM])),
            born_at_ms=1,
            born_host=draw(HOSTS),
            store_host=draw(HOSTS),
            sys_flag=draw(st.sampled_from([0, 0, 4, 8, 12])),
            queue_offset=draw(st.sampled_from([0, 7, -1, 100, 110, 1 << 60])),
            physical_offset=base + len(data),
            stored_at_ms=1_700_000_000_000,
        )
        one = to_v2(one, topic) if draw(st.booleans()) else one
        data += with_checksum(one) if draw(st.booleans()) else one
    behind = draw(st.sampled_from([b"", bytes(8), bytes(40), b"blank", b"short"]))
    if behind == b"blank":
        behind = encode_blank(draw(st.sampled_from([30, 29]))) + bytes(22)
    data += behind
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        if data:
            data[draw(st.integers(0, len(data) - 1))] ^= draw(st.integers(1, 255))
    if data and draw(st.booleans()):
        del data[draw(st.integers(0, len(data) - 1)) :]
    return data, base


def one_by_one(
    view: memoryview, limit: int, base: int, records_max: int, verify: Verify
) -> tuple[Sequence[tuple[int, Record]], int, bool, str]:
    """Return the records, where they end, whether a blank one follows, and what is wrong there."""
    found: list[tuple[int, Record]] = []
    position = 0
    while position < limit and len(found) < records_max:
        at = PhysicalOffset(base + position)
        try:
            if verify:
                record = check_record(view, position, at=at, next_file=True)
                if record is not None and verify is Verify.WHOLE:
                    whole = view[position : position + record.header.total_bytes]
                    if not verify_checksum(whole, record.properties):
                        raise CorruptRecord(at, "the record's checksum is missing or differs")
            else:
                record = decode_record(view, position, at=at, check_crc=False)
        except CorruptRecord as error:
            return found, position, False, str(error)
        if record is None:
            return found, position, True, ""
        if position + record.header.total_bytes > limit:
            break
        found.append((position, record))
        position += record.header.total_bytes
    return found, position, False, ""


def check_rows(scan: LogChunk, found: Sequence[tuple[int, Record]]) -> None:
    """Compare a batch with the records it should hold."""
    batch = scan.batch
    if batch is None:
        assert not found
        return
    assert batch.starts.tolist() == [position for position, _ in found]
    assert batch.sizes.tolist() == [record.header.total_bytes for _, record in found]
    assert len(batch.data) == sum(batch.sizes.tolist())
    for name in ("queue_id", "queue_offset", "physical_offset", "sys_flag", "stored_at_ms"):
        assert batch.headers[name].tolist() == [getattr(r.header, name) for _, r in found]
    for row, (position, record) in enumerate(found):
        end = position + record.header.total_bytes
        assert batch.data[int(batch.properties[row]) : end] == record.properties
        assert int(batch.tag_codes[row]) == tag_code_of(record.properties)
    expected: dict[tuple[str, int], list[int]] = {}
    for row, (_, record) in enumerate(found):
        topic = topic_name(record.topic)
        header = record.header
        if topic is not None and header.queue_id >= 0 and header.queue_offset >= 0:
            expected.setdefault((topic, header.queue_id), []).append(row)
    assert {(q.topic, q.queue_id): q.rows.tolist() for q in batch.queues} == expected


@settings(max_examples=examples(400))
@given(
    file=files(),
    verify=st.sampled_from(Verify),
    limit_share=st.sampled_from([1.0, 1.0, 0.7]),
    records_max=st.sampled_from([100, 3, 0]),
)
def test_scan_of_many_records_agrees_with_scanning_each_alone(
    file: tuple[bytearray, int], verify: Verify, limit_share: float, records_max: int
) -> None:
    data, base = file
    view = memoryview(bytes(data))
    limit = int(len(data) * limit_share)
    found, end, is_blank, reason = one_by_one(view, limit, base, records_max, verify)

    scan = scan_records(
        view, 0, limit, at=PhysicalOffset(base), records_max=records_max, verify=verify
    )

    if limit == len(data):  # else the next record may be bad, but be no matter of this scan
        assert (scan.is_blank, str(scan.error or "")) == (is_blank, reason)
    assert scan.end == end
    check_rows(scan, found)


@given(position=st.integers(0, 40))
def test_scan_may_begin_anywhere_in_its_buffer(position: int) -> None:
    one = encode_record(
        topic=b"A",
        queue_id=0,
        body=b"body",
        properties=b"",
        born_at_ms=1,
        born_host=bytes(8),
        store_host=bytes(8),
        physical_offset=500,
    )
    view = memoryview(bytes(position) + one + bytes(8))
    scan = scan_records(
        view, position, len(view), at=PhysicalOffset(500), records_max=9, verify=Verify.BODY
    )
    assert scan.batch is not None
    assert scan.batch.data == one
    assert np.array_equal(scan.batch.starts, [0])
    assert scan.end == position + len(one)
    assert scan.error is not None  # zeros are no record
