"""Reading batches of records as messages."""

from typing import Any

import pytest

from ternmq_model.compression import compress
from ternmq_model.errors import CorruptRecord
from ternmq_model.message_batch import decode_records
from ternmq_model.queue import MessageQueue
from ternmq_model.redelivered_message import RedeliveredMessage
from ternmq_model.stored_message import StoredMessage, decode_single
from tests.support.records import BORN_HOST, record, sizes_of

QUEUE = MessageQueue("flights", "a", 0)


FORMS = [
    {"body": b"plain"},
    {"body": b""},
    {"body": bytes(5000)},
    {"body": compress(b"text" * 50, "zlib", 5)[0], "sys_flag": 0x301},
    {"properties": {"UNIQ_KEY": "K" * 32, "TAGS": "t", "KEYS": "a b", "x": "y"}},
]
"""Arguments of records: short, empty, long and compressed bodies, and properties."""

ATTRIBUTES = [name for name, part in vars(StoredMessage).items() if isinstance(part, property)]


@pytest.mark.parametrize("forms", [*([form] * 3 for form in FORMS), FORMS])
@pytest.mark.parametrize("born_host", [BORN_HOST, bytes(16) + BORN_HOST[4:]])
@pytest.mark.parametrize("check_crc", [True, False])
def test_messages_of_a_batch_equal_the_messages_of_its_single_records(
    forms: list[dict[str, Any]], born_host: bytes, *, check_crc: bool
) -> None:
    records = [record(**form, born_host=born_host, reconsume_times=2) for form in forms]
    read = decode_records(b"".join(records), sizes_of(records), QUEUE, check_crc=check_crc)
    for message, data in zip(read, records, strict=True):
        alone = decode_single(data, "a")
        for name in ATTRIBUTES:
            assert getattr(message, name) == getattr(alone, name), name
        assert message.body is message.body
        moved = RedeliveredMessage.of(message, topic="other")
        assert (moved.topic, moved.body, moved.keys) == ("other", alone.body, alone.keys)


@pytest.mark.parametrize("body", [b"second", b"second" * 1000])
def test_checksum_of_an_empty_body_is_not_compared(body: bytes) -> None:
    records = [record(body=b"").replace(bytes(4), b"\1\2\3\4", 1), record(body=body)]
    assert records[0] != record(body=b"")
    read = decode_records(b"".join(records), sizes_of(records), QUEUE)
    assert [message.body for message in read] == [b"", body]


def test_records_of_several_layouts_are_read() -> None:
    records = [record(body=b"4"), record(body=b"6", born_host=bytes(16) + BORN_HOST[4:])]
    messages = decode_records(b"".join(records), sizes_of(records), QUEUE)
    assert [message.body for message in messages] == [b"4", b"6"]


def test_empty_buffer_has_no_records() -> None:
    assert decode_records(b"", sizes_of([]), QUEUE) == []


@pytest.mark.parametrize("first", [b"first", b"first" * 2000])
def test_flipped_bit_in_a_body_is_noticed_unless_verification_is_off(first: bytes) -> None:
    records = [record(body=first), record(body=b"second")]
    data = b"".join(records).replace(b"second", b"secood")
    with pytest.raises(CorruptRecord, match="checksum"):
        decode_records(data, sizes_of(records), QUEUE)
    assert len(decode_records(data, sizes_of(records), QUEUE, check_crc=False)) == 2


@pytest.mark.parametrize("cut", [1, 30, 100])
def test_inconsistent_sizes_are_refused(cut: int) -> None:
    data = record()
    with pytest.raises(CorruptRecord):
        decode_records(data[:-cut], sizes_of([data]), QUEUE)
    with pytest.raises(CorruptRecord):
        decode_records(data[:-cut], sizes_of([data[:-cut]]), QUEUE)
