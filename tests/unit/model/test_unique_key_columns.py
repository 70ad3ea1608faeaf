"""Columns of unique keys."""

import pytest

from ternmq_model.message_id import UniqueKeys
from ternmq_model.unique_key_columns import next_keys

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize("address_bytes", [4, 16])
def test_keys_at_once_equal_keys_one_by_one_also_past_the_last_counter(address_bytes: int) -> None:
    at_once, singly = (
        UniqueKeys(address=bytes(range(address_bytes)), process_id=0x1_2345, salt=0xCAFE)
        for _ in range(2)
    )
    for count in (1, 300, 65_536, 1000):
        made = next_keys(at_once, count, NOW_MS).tolist()
        assert made == [singly.next(NOW_MS) for _ in range(count)]
