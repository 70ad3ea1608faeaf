"""Unique keys and offset message ids."""

import pytest

from ternmq_model.address import Address
from ternmq_model.errors import UsageError
from ternmq_model.message_id import (
    UniqueKeys,
    host_bytes,
    host_text,
    offset_message_id,
    parse_offset_message_id,
)
from ternmq_model.offsets import PhysicalOffset

NOW_MS = 1_700_000_000_000


def keys() -> UniqueKeys:
    return UniqueKeys(address=bytes((10, 0, 0, 7)), process_id=0x1_2345, salt=0xCAFE)


def test_key_is_32_upper_case_digits_of_host_process_salt_time_and_counter() -> None:
    key = keys().next(NOW_MS).decode()
    assert len(key) == 32
    assert key.startswith("0A0000072345" + "0000CAFE")
    assert key.endswith("0001")
    assert key == key.upper()


def test_keys_of_one_millisecond_differ() -> None:
    maker = keys()
    made = [maker.next(NOW_MS), maker.next(NOW_MS)]
    prefix, counter = maker.reserve(1000, NOW_MS)
    made += [prefix + b"%04X" % (counter + index) for index in range(1000)]
    assert len({*made, maker.next(NOW_MS)}) == 1003


def test_time_in_a_key_counts_from_the_months_beginning() -> None:
    maker = keys()
    first, later = maker.next(NOW_MS), maker.next(NOW_MS + 5_000)
    assert int(later[20:28], 16) - int(first[20:28], 16) == 5_000
    assert maker.next(NOW_MS + 32 * 86_400_000)[20:28] != first[20:28]


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_offset_id_names_host_and_place(host: str) -> None:
    store_host = host_bytes(Address(host, 10911))
    message_id = offset_message_id(store_host, PhysicalOffset(4096))
    assert len(message_id) == (56 if ":" in host else 32)
    assert parse_offset_message_id(message_id) == (store_host, 4096)
    assert host_text(store_host) == str(Address(host, 10911))


@pytest.mark.parametrize("text", ["", "xyz", "0" * 31, "0" * 34, "F" * 32, "0 " * 16])
def test_malformed_message_id_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="message id"):
        parse_offset_message_id(text)
