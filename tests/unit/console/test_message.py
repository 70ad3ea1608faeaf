"""Telling the two ids of a message apart."""

import pytest

from ternmq_console.message import check_is_no_producers_id
from ternmq_model.address import Address
from ternmq_model.errors import UsageError
from ternmq_model.message_id import UniqueKeys, host_bytes, offset_message_id
from ternmq_model.offsets import PhysicalOffset

ADDRESSES = ("127.0.0.1", "::1")


@pytest.mark.parametrize("size", [4, 16])
@pytest.mark.parametrize("salt", [0, 0x7FFF, 0xFFFF])
def test_a_producers_id_is_known(size: int, salt: int) -> None:
    keys = UniqueKeys(address=bytes(size), process_id=4711, salt=salt)
    with pytest.raises(UsageError, match="producer's message id: give the offset message id"):
        check_is_no_producers_id(keys.next(1_700_000_000_000).decode())


@pytest.mark.parametrize("host", ADDRESSES)
@pytest.mark.parametrize("port", [1, 10911, 65535])
def test_an_offset_message_id_is_not_taken_for_one(host: str, port: int) -> None:
    store_host = host_bytes(Address(host, port))
    check_is_no_producers_id(offset_message_id(store_host, PhysicalOffset(1 << 40)))


@pytest.mark.parametrize("text", ["", "xyz", "7F" * 15])
def test_what_is_no_id_at_all_is_left_to_others(text: str) -> None:
    check_is_no_producers_id(text)
