import zlib
from itertools import count

import pytest

from ternmq_model.errors import UsageError
from ternmq_pipeline.planning.partition_numbers import check_partition_numbers, partition_number


def test_partition_number_is_made_of_broker_name_and_queue_alone() -> None:
    assert partition_number("broker-a", 3) == ((zlib.crc32(b"broker-a") & 0x7FFF) << 16) + 3
    assert partition_number("broker-a", 0) == 1_917_845_504
    assert 0 <= partition_number("broker-b", 0xFFFF) < 1 << 31


def test_queue_beyond_16_bits_is_refused() -> None:
    with pytest.raises(UsageError, match="queue 65536 of broker-a"):
        partition_number("broker-a", 1 << 16)


def test_brokers_with_the_same_numbers_are_refused_by_name() -> None:
    wanted = partition_number("broker-a", 0)
    twin = next(f"b{number}" for number in count() if partition_number(f"b{number}", 0) == wanted)
    check_partition_numbers(["broker-a", "broker-a", "broker-b"])
    with pytest.raises(UsageError, match=f"brokers {twin} and broker-a"):
        check_partition_numbers(["broker-a", twin])
