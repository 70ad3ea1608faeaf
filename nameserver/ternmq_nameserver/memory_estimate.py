"""Estimate of a registration's memory, so that callers cannot fill a NameServer. Pure.

Each topic of a broker name counts 512 bytes and its name, each member 1 KiB and its texts, each
endpoint 256 bytes and its host. Measured with 80,000 topics: 486 bytes for a topic that one broker
has, 246 for one that another has too; 770 for a broker name with a member and an endpoint.
"""

from collections.abc import Iterable
from typing import Final

from ternmq_model.address import Address
from ternmq_model.route import TopicConfig

BYTES_MAX: Final = 256 << 20
"""Default limit for all registrations: half a million topics."""

_TOPIC_BYTES: Final = 512
_ROW_BYTES_MAX: Final = 64
_MEMBER_BYTES: Final = 1_024
_ENDPOINT_BYTES: Final = 256


def topics_bytes(topics: Iterable[TopicConfig]) -> int:
    """Return the bytes that the topics of one broker name count for."""
    return sum(_TOPIC_BYTES + len(config.topic) for config in topics)


def is_cacheable_row(row: bytes, config: TopicConfig) -> bool:
    """Return whether a row is short enough to be cached: longer rows have unknown fields."""
    return len(row) <= len(config.topic) + _ROW_BYTES_MAX


def member_bytes(texts: Iterable[str], endpoints: Iterable[Address]) -> int:
    """Return the bytes that one member of a broker name counts for."""
    hosts = sum(_ENDPOINT_BYTES + len(endpoint.host) for endpoint in endpoints)
    return _MEMBER_BYTES + sum(map(len, texts)) + hosts
