"""Which bytes of the log are a record that nothing happened to."""

import pytest

from ternmq_model.errors import CorruptRecord
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.format import encode_blank, encode_record
from ternmq_model.record.integrity import SECTOR_BYTES, check_record, has_lost_sector
from tests.support.records import BORN_HOST, STORE_HOST

FILE_BYTES = 16_384


def file_with(position: int, *, properties: bytes, body: bytes = b"body") -> tuple[bytearray, int]:
    """Return a file with one record, and the record's length."""
    data = encode_record(
        topic=b"a-topic-of-some-length",
        queue_id=0,
        body=body,
        properties=properties,
        born_at_ms=1,
        born_host=BORN_HOST,
        store_host=STORE_HOST,
        physical_offset=position,
        stored_at_ms=2,
    )
    file = bytearray(FILE_BYTES)
    file[position : position + len(data)] = data
    return file, len(data)


@pytest.mark.parametrize("position", range(0, 700, 7))
def test_record_with_a_lost_sector_is_told_from_a_whole_one(position: int) -> None:
    body = bytes(range(1, 256)) * 3
    file, length = file_with(position, properties=b"k\x01" + b"v" * 1400 + b"\x02", body=body)
    assert check_record(memoryview(file), position, at=PhysicalOffset(position), next_file=True)
    for sector in range(position // SECTOR_BYTES, (position + length - 1) // SECTOR_BYTES + 1):
        torn = bytearray(file)
        torn[sector * SECTOR_BYTES : (sector + 1) * SECTOR_BYTES] = bytes(SECTOR_BYTES)
        if torn == file:  # what it had of the record was the zero in front of its size
            continue
        with pytest.raises(CorruptRecord):
            check_record(memoryview(torn), position, at=PhysicalOffset(position), next_file=True)


def test_truncated_record_is_told_from_a_whole_one() -> None:
    file, length = file_with(100, properties=b"k\x01value\x02")
    for kept in range(length):
        torn = bytearray(file)
        torn[100 + kept : 100 + length] = bytes(length - kept)
        with pytest.raises(CorruptRecord):
            check_record(memoryview(torn), 100, at=PhysicalOffset(100), next_file=True)


def test_zero_inside_a_property_is_no_loss() -> None:
    assert not has_lost_sector(b"k\x01a\0b\x02", 700)
    assert not has_lost_sector(b"", 512)
    assert has_lost_sector(b"k\x01ab\0", 700)
    assert has_lost_sector(bytes(3) + b"v\x02", 509)


def test_stale_record_from_elsewhere_is_refused() -> None:
    file, _ = file_with(100, properties=b"")
    with pytest.raises(CorruptRecord, match="contains the offset 100"):
        check_record(memoryview(file), 100, at=PhysicalOffset(8292), next_file=True)


def test_blank_record_counts_when_it_ends_its_file_and_another_follows() -> None:
    file = bytearray(200)
    file[150:158] = encode_blank(50)
    at = PhysicalOffset(150)
    assert check_record(memoryview(file), 150, at=at, next_file=True) is None
    with pytest.raises(CorruptRecord, match="no file follows"):
        check_record(memoryview(file), 150, at=at, next_file=False)
    file[150:158] = encode_blank(49)
    with pytest.raises(CorruptRecord, match="does not end"):
        check_record(memoryview(file), 150, at=at, next_file=True)
