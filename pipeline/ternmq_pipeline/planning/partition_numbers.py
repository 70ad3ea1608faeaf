"""Partition numbers of queues for the Kafka view. Pure.

The upper half of a number comes from the broker's name, so numbers do not change when other brokers
come and go.
"""

from collections.abc import Iterable
from typing import Final

from ternmq_model.crc32 import crc32
from ternmq_model.errors import UsageError

QUEUE_BITS: Final = 16
BROKER_MASK: Final = 0x7FFF


def partition_number(broker_name: str, queue_id: int) -> int:
    """Return `((CRC-32 of the broker's name) & 0x7FFF) << 16 | queue_id`.

    Raises:
        UsageError: The queue's id has more than 16 bits.
    """
    if not 0 <= queue_id < 1 << QUEUE_BITS:
        raise UsageError(f"queue {queue_id} of {broker_name}: view=kafka has numbers to 65535")
    return (crc32(broker_name.encode()) & BROKER_MASK) << QUEUE_BITS | queue_id


def check_partition_numbers(broker_names: Iterable[str]) -> None:
    """Refuse brokers with equal partition numbers.

    Raises:
        UsageError: Two brokers have equal numbers. The error names both.
    """
    by_number: dict[int, str] = {}
    for broker_name in sorted(set(broker_names)):
        other = by_number.setdefault(partition_number(broker_name, 0), broker_name)
        if other != broker_name:
            raise UsageError(
                f"view=kafka: brokers {other} and {broker_name} would have the same partition "
                "numbers: read them with view=ternmq, or one by one with assign"
            )
