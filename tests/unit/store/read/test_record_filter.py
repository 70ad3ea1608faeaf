import numpy as np
import pytest

from ternmq_model.properties import encode_properties
from ternmq_model.record.format import decode_record, read_properties
from ternmq_store.read import record_filter
from ternmq_store.read.record_filter import filter_rows, passes
from tests.support.records import record

V6 = bytes(range(16)) + (9).to_bytes(4, "big")


@pytest.mark.parametrize("born_host", [bytes(8), V6])
@pytest.mark.parametrize("store_host", [bytes(8), V6])
def test_properties_are_found_without_decoding_the_record(
    born_host: bytes, store_host: bytes
) -> None:
    data = record(
        "Topic", body=b"body", properties={"a": "1"}, born_host=born_host, store_host=store_host
    )
    view = memoryview(b"xyz" + data)
    assert read_properties(view, 3, len(data)) == encode_properties({"a": "1"})
    assert read_properties(view, 3, len(data) - 1) is None
    assert read_properties(view, 3, len(data) + 1) is None


def test_parsed_properties_are_the_records_own_whatever_bytes_change() -> None:
    data = record("T", body=b"some", properties={"a": "1", "b": "22"})
    for position in range(len(data)):
        for value in (0, 1, 127, 128, 255):
            changed = bytearray(data)
            changed[position] = value
            found = read_properties(memoryview(changed), 0, len(data))
            try:
                whole = decode_record(bytes(changed), check_crc=False)
            except Exception:
                whole = None
            if found is not None and whole is not None and whole.header.total_bytes == len(data):
                assert found == whole.properties


def test_unreadable_record_does_not_pass() -> None:
    data = record("T", properties={"a": "1"})
    assert passes(memoryview(data), 0, len(data), lambda _: True)
    assert not passes(memoryview(data), 0, len(data), lambda _: False)
    assert not passes(memoryview(data[:-1] + b"x"), 0, len(data) - 1, lambda _: True)


def inspected(count: int, *, messages_max: int, bytes_max: int) -> tuple[list[int], int]:
    data = [record("T", properties={"a": str(number % 2)}) for number in range(count)]
    sizes = np.array([len(each) for each in data], dtype=np.int64)
    starts = np.cumsum(sizes) - sizes
    kept = filter_rows(
        memoryview(b"".join(data)),
        0,
        starts,
        sizes,
        lambda found: b"a\x011" in found,
        messages_max=messages_max,
        bytes_max=bytes_max,
    )
    return kept.rows.tolist(), kept.inspected


def test_messages_are_tested_until_enough_match(monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(record("T", properties={"a": "1"}))
    assert inspected(6, messages_max=9, bytes_max=1 << 20) == ([1, 3, 5], 6)
    assert inspected(6, messages_max=2, bytes_max=1 << 20) == ([1, 3], 5)
    assert inspected(6, messages_max=9, bytes_max=2 * size) == ([1, 3], 5)
    assert inspected(6, messages_max=9, bytes_max=1) == ([1], 3)
    monkeypatch.setattr(record_filter, "FILTER_PROPERTY_BYTES_MAX", 10)
    assert inspected(6, messages_max=9, bytes_max=1 << 20) == ([1], 3)
