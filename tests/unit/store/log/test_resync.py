"""Finding the next record behind damaged bytes."""

from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.format import (
    OFFSETS_BYTES,
    claimed_offset,
    encode_blank,
    encode_record,
    is_blank,
)
from ternmq_store.log.resync import lies_at, next_record
from tests.support.records import BORN_HOST, STORE_HOST

BASE = PhysicalOffset(1 << 20)


def record_at(offset: int, body: bytes = b"body") -> bytes:
    return encode_record(
        topic=b"A",
        queue_id=0,
        body=body,
        properties=b"",
        born_at_ms=1,
        born_host=BORN_HOST,
        store_host=STORE_HOST,
        physical_offset=offset,
    )


def file_with(*places: int, file_bytes: int = 4096) -> memoryview:
    file = bytearray(file_bytes)
    for place in places:
        data = record_at(BASE + place)
        file[place : place + len(data)] = data
    return memoryview(file)


def test_next_record_is_the_first_that_claims_its_place() -> None:
    file = file_with(100, 1000)
    assert next_record(file, 0, base=BASE) == 100
    assert next_record(file, 100, base=BASE) == 100
    assert next_record(file, 101, base=BASE) == 1000
    assert next_record(file, 1001, base=BASE) is None
    assert next_record(file, 0, base=PhysicalOffset(0)) is None


def test_record_inside_another_is_skipped_unless_it_names_its_place() -> None:
    file = bytearray(file_with(2000))
    outer = record_at(BASE + 1, body=record_at(BASE + 500))
    file[100 : 100 + len(outer)] = outer
    assert next_record(memoryview(file), 0, base=BASE) == 2000


def test_blank_record_counts_where_it_reaches_the_end_of_the_file() -> None:
    file = bytearray(4096)
    file[4000:4008] = encode_blank(96)
    file[3000:3008] = encode_blank(96)
    assert next_record(memoryview(file), 0, base=BASE) == 4000
    assert is_blank(memoryview(file), 4000, 96)
    assert not is_blank(memoryview(file), 3000, 1096)
    assert not is_blank(memoryview(file), 4092, 4)


def test_record_is_found_wherever_search_pieces_meet() -> None:
    for place in range((1 << 20) - 12, (1 << 20) + 2):
        file = file_with(place, file_bytes=(1 << 20) + 4096)
        assert next_record(file, 0, base=BASE) == place


def test_bytes_at_the_end_of_a_file_are_no_record() -> None:
    file = file_with(100)[:130]
    assert not lies_at(file, 100, base=BASE)
    assert next_record(file, 0, base=BASE) is None


def test_head_of_a_file_identifies_its_part_of_the_log() -> None:
    assert claimed_offset(bytes(file_with(0)[:OFFSETS_BYTES])) == BASE
    assert claimed_offset(bytes(OFFSETS_BYTES)) is None
    assert claimed_offset(b"") is None
