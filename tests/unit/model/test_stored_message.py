"""Reading records as messages."""

import pytest

from ternmq_model.errors import CorruptRecord
from ternmq_model.queue import MessageQueue
from ternmq_model.stored_message import decode_records
from tests.support.records import BORN_HOST, STORE_HOST, record, sizes_of

QUEUE = MessageQueue("flights", "a", 0)


def test_message_shows_its_records_fields() -> None:
    pairs = {"UNIQ_KEY": "K" * 32, "TAGS": "t", "KEYS": "a b", "__SHARDINGKEY": "s", "x": "y"}
    data = record(body=b"hello", properties=pairs)
    (message,) = decode_records(data, sizes_of([data]), QUEUE)
    assert (message.topic, message.queue, message.queue_offset) == ("flights", QUEUE, 0)
    assert (message.body, message.tags, message.keys) == (b"hello", "t", ["a", "b"])
    assert (message.sharding_key, message.message_id) == ("s", "K" * 32)
    assert dict(message.properties) == pairs
    assert (message.born_host, message.store_host) == ("127.0.0.1:40000", "127.0.0.1:10911")
    assert message.offset_message_id == STORE_HOST.hex().upper() + "0" * 16
    assert (message.born_at_ms, message.stored_at_ms) == (1_700_000_000_000, 0)
    assert (message.flag, message.sys_flag, message.reconsume_times) == (0, 0, 0)
    assert message.record_bytes == len(data)
    assert "flights@a:0" in repr(message)


def test_message_without_a_unique_key_is_identified_by_its_offset_id() -> None:
    data = record(properties={})
    (message,) = decode_records(data, sizes_of([data]), QUEUE)
    assert message.message_id == message.offset_message_id
    assert message.keys == ()


def test_records_of_several_layouts_are_read() -> None:
    records = [record(body=b"4"), record(body=b"6", born_host=bytes(16) + BORN_HOST[4:])]
    messages = decode_records(b"".join(records), sizes_of(records), QUEUE)
    assert [message.body for message in messages] == [b"4", b"6"]


def test_empty_buffer_has_no_records() -> None:
    assert decode_records(b"", sizes_of([]), QUEUE) == []


def test_flipped_bit_in_a_body_is_noticed_unless_verification_is_off() -> None:
    records = [record(body=b"first"), record(body=b"second")]
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
