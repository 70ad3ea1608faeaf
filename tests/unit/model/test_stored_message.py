"""Reading one record as a message."""

import pytest

from ternmq_model.errors import CorruptRecord
from ternmq_model.queue import MessageQueue
from ternmq_model.record.format import encode_blank
from ternmq_model.stored_message import decode_single
from tests.support.records import STORE_HOST, record

QUEUE = MessageQueue("flights", "a", 0)


def test_message_shows_its_records_fields() -> None:
    pairs = {"UNIQ_KEY": "K" * 32, "TAGS": "t", "KEYS": "a b", "__SHARDINGKEY": "s", "x": "y"}
    data = record(body=b"hello", properties=pairs)
    message = decode_single(data, "a")
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
    message = decode_single(data, "a")
    assert message.message_id == message.offset_message_id
    assert message.keys == ()


def test_message_names_its_records_topic_and_queue_at_its_broker() -> None:
    message = decode_single(record("flights", 3, b"body", {"UNIQ_KEY": "m7"}), "a")
    assert message.queue == MessageQueue("flights", "a", 3)
    assert (message.message_id, message.body) == ("m7", b"body")


def test_flipped_bit_in_the_body_is_noticed_unless_verification_is_off() -> None:
    data = record(body=b"first").replace(b"first", b"fiest")
    with pytest.raises(CorruptRecord, match="checksum"):
        decode_single(data, "a")
    assert decode_single(data, "a", check_crc=False).body == b"fiest"


@pytest.mark.parametrize("data", [encode_blank(100), b"what", record() * 2, record()[:-1], b""])
def test_bytes_that_are_not_one_record_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptRecord):
        decode_single(data, "a")
