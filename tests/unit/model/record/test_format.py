"""The record's bytes: what is written, what is accepted, what is refused."""

import pytest

from ternmq_model.errors import CorruptRecord
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.format import (
    FLAG_BORN_HOST_V6,
    FLAG_STORE_HOST_V6,
    MAGIC_V1,
    OVERHEAD_BYTES,
    decode_record,
    encode_blank,
    encode_record,
    read_header,
    read_ipv4_fields,
)
from tests.support.records import BORN_HOST, STORE_HOST, record


def test_empty_record_has_91_bytes_of_overhead() -> None:
    assert len(record("T", body=b"", properties={})) == OVERHEAD_BYTES + 1 == 92


def test_fields_lie_where_rocketmq_puts_them() -> None:
    data = encode_record(
        topic=b"TopicA",
        queue_id=3,
        body=b"hello",
        properties=b"TAGS\x01t\x02",
        born_at_ms=0x0102030405060708,
        born_host=BORN_HOST,
        store_host=STORE_HOST,
        flag=7,
        queue_offset=11,
        physical_offset=4096,
        stored_at_ms=13,
        reconsume_times=2,
        prepared_offset=17,
    )
    assert data[0:4] == len(data).to_bytes(4, "big")
    assert data[4:8] == bytes.fromhex("DAA320A7")
    assert data[8:12] == (0x3610A686).to_bytes(4, "big")  # CRC-32 of "hello"
    assert int.from_bytes(data[12:16], "big") == 3
    assert int.from_bytes(data[16:20], "big") == 7
    assert int.from_bytes(data[20:28], "big") == 11
    assert int.from_bytes(data[28:36], "big") == 4096
    assert int.from_bytes(data[36:40], "big") == 0
    assert int.from_bytes(data[40:48], "big") == 0x0102030405060708
    assert data[48:56] == BORN_HOST
    assert int.from_bytes(data[56:64], "big") == 13
    assert data[64:72] == STORE_HOST
    assert int.from_bytes(data[72:76], "big") == 2
    assert int.from_bytes(data[76:84], "big") == 17
    assert data[84:93] == b"\0\0\0\5hello"
    assert data[93:100] == b"\x06TopicA"
    assert data[100:] == b"\x00\x07TAGS\x01t\x02"


def test_fields_of_a_header_with_ipv4_hosts_equal_those_of_the_header() -> None:
    data = encode_record(
        topic=b"TopicA",
        queue_id=3,
        body=b"hello",
        properties=b"",
        born_at_ms=1,
        born_host=BORN_HOST,
        store_host=STORE_HOST,
        flag=7,
        sys_flag=8,
        queue_offset=11,
        physical_offset=4096,
        stored_at_ms=13,
        reconsume_times=2,
        prepared_offset=17,
    )
    header = read_header(data)
    assert read_ipv4_fields(data) == (
        header.total_bytes,
        header.magic,
        header.body_crc,
        header.physical_offset,
        header.sys_flag,
        header.reconsume_times,
        header.prepared_offset,
        header.body_bytes,
    )


@pytest.mark.parametrize("born", [BORN_HOST, bytes(16) + BORN_HOST[4:]])
@pytest.mark.parametrize("store", [STORE_HOST, bytes(16) + STORE_HOST[4:]])
def test_ipv4_and_ipv6_hosts_are_read_back(born: bytes, store: bytes) -> None:
    decoded = decode_record(record(born_host=born, store_host=store))
    assert decoded is not None
    assert (decoded.header.born_host, decoded.header.store_host) == (born, store)
    assert bool(decoded.header.sys_flag & FLAG_BORN_HOST_V6) == (len(born) == 20)
    assert bool(decoded.header.sys_flag & FLAG_STORE_HOST_V6) == (len(store) == 20)
    assert (decoded.topic, decoded.body, decoded.header.magic) == (b"flights", b"body", MAGIC_V1)


def test_record_lying_elsewhere_than_it_says_is_refused() -> None:
    with pytest.raises(CorruptRecord, match="contains the offset 0"):
        decode_record(record(), at=PhysicalOffset(4096))


def test_blank_record_is_none() -> None:
    assert decode_record(encode_blank(100) + bytes(92)) is None


@pytest.mark.parametrize("length", [0, 7, 8, 90])
def test_zeros_are_no_record(length: int) -> None:
    with pytest.raises(CorruptRecord):
        decode_record(bytes(length))


def test_every_truncated_record_is_refused() -> None:
    data = record()
    for length in range(len(data)):
        with pytest.raises(CorruptRecord):
            decode_record(data[:length])


def test_flipped_bit_in_the_body_is_noticed() -> None:
    data = bytearray(record())
    data[89] ^= 1
    with pytest.raises(CorruptRecord, match="checksum"):
        decode_record(bytes(data))
