"""Record that is pulled alone: its message, or its error, is the one that it has among others."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ternmq_model.compression import compress
from ternmq_model.errors import CorruptRecord, TernError
from ternmq_model.message_batch import decode_records
from ternmq_model.queue import MessageQueue
from ternmq_model.record.format import encode_record
from tests.support.examples import examples
from tests.support.records import BORN_HOST, STORE_HOST, sizes_of

QUEUE = MessageQueue("orders", "broker-a", 3)


@st.composite
def records(draw: st.DrawFn) -> bytes:
    """Draw a record, with one changed byte in half of the cases."""
    body, flags = draw(st.sampled_from([b"", b"body", b"x" * 5000])), 0
    if draw(st.booleans()):
        body, flags = compress(b"text " * 100, "zlib", 1)
    record = encode_record(
        topic=b"orders",
        queue_id=3,
        body=body,
        properties=draw(st.sampled_from([b"", b"TAGS\x01Aa\x02"])),
        born_at_ms=1_700_000_000_000,
        born_host=draw(st.sampled_from([BORN_HOST, bytes(range(20))])),
        store_host=STORE_HOST,
        sys_flag=flags,
        queue_offset=7,
        physical_offset=7000,
        stored_at_ms=1_700_000_000_001,
    )
    if draw(st.booleans()):
        at = draw(st.integers(0, min(len(record), 130) - 1))
        changed = record[at] ^ draw(st.integers(1, 255))
        record = record[:at] + bytes((changed,)) + record[at + 1 :]
    return record


def decoded(parts: Sequence[bytes], *, check_crc: bool) -> tuple[Any, ...]:
    """Return kind, offset and body of the first message; the kind alone of an error."""
    try:
        message = decode_records(b"".join(parts), sizes_of(parts), QUEUE, check_crc=check_crc)[0]
    except CorruptRecord:
        return (CorruptRecord,)
    try:
        body: object = message.body
    except TernError as error:
        body = type(error)
    return type(message), message.queue_offset, message.header, message.properties, body


@given(records(), st.booleans())
@settings(max_examples=examples(400))
def test_record_alone_is_decoded_as_beside_its_copy(record: bytes, check_crc: bool) -> None:
    alone = decoded([record], check_crc=check_crc)
    assert alone == decoded([record, record], check_crc=check_crc)
