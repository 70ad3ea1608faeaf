"""Positions of the parts of many records, all found at once. Pure.

Source: RocketMQ `MessageDecoder`.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ternmq_model.arrays import Ints
from ternmq_model.record.format import MAGIC_V2
from ternmq_model.record.headers import Headers, header_type, take_headers

_IPV6_SHIFT: Final = 4
_IPV6_MORE: Final = 12
"""Bytes that an IPv6 host takes more than an IPv4 one."""


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """Positions of the parts of records whose sizes add up."""

    starts: Ints
    ends: Ints
    headers: Headers
    """Copies of the headers. With hosts of several lengths all have room for the longest, and the
    others are filled up with zeros."""

    bodies: Ints
    body_ends: Ints
    topics: Ints
    topic_bytes: Ints
    properties: Ints


def lay_out(
    data: bytes | memoryview, starts: Ints, ends: Ints, places: Ints | None
) -> RecordLayout | int:
    """Find the parts of records; or the first one whose sizes do not add up.

    Args:
        data: Holds them.
        starts: Where they begin in it; each has at least `OVERHEAD_BYTES`.
        ends: Where they end, all within `data`.
        places: The physical offsets that they must claim. None = any.
    """
    view = np.frombuffer(data, dtype=np.uint8)
    headers, head_bytes = _take_headers(data, starts, ends)
    if not len(headers):
        return int(np.argmax(starts + head_bytes > ends))
    long_topic = headers["magic"] == MAGIC_V2
    bodies = starts + head_bytes
    body_bytes = headers["body_bytes"].astype(np.int64)
    body_ends = bodies + body_bytes
    topics = body_ends + 1 + long_topic
    good = (body_bytes >= 0) & (topics + 2 <= ends)
    if places is not None:
        good &= headers["physical_offset"] == places
    if not good.all():
        return int(good.argmin())
    topic_bytes = view[topics - 1].astype(np.int64)
    if long_topic.any():
        topic_bytes = np.where(long_topic, _shorts(view, topics), topic_bytes)
    properties = topics + topic_bytes + 2
    good = (topic_bytes >= 1) & (properties <= ends)
    if not good.all():
        return int(good.argmin())
    properties_bytes = _shorts(view, properties)
    good = (properties_bytes >= 0) & (properties + properties_bytes == ends)
    if not good.all():
        return int(good.argmin())
    return RecordLayout(starts, ends, headers, bodies, body_ends, topics, topic_bytes, properties)


def _shorts(view: NDArray[np.uint8], ends: Ints) -> Ints:
    """Return the signed 16-bit numbers that end at `ends`."""
    return (view[ends - 2].astype(np.int8).astype(np.int64) << 8) | view[ends - 1]


def _take_headers(data: bytes | memoryview, starts: Ints, ends: Ints) -> tuple[Headers, Ints]:
    """Return copies of the headers and their lengths; no headers when one has no room."""
    shortest = take_headers(data, starts, header_type(8, 8))
    kinds = (shortest["sys_flag"].astype(np.int64) >> _IPV6_SHIFT) & 3
    if not kinds.any():
        return shortest, np.full(len(starts), shortest.itemsize, dtype=np.int64)
    head_bytes = shortest.itemsize + _IPV6_MORE * ((kinds & 1) + (kinds >> 1))
    if (starts + head_bytes > ends).any():
        return shortest[:0], head_bytes
    present: list[int] = np.unique(kinds).tolist()
    every = 0
    for kind in present:
        every |= kind
    headers = np.zeros(len(starts), dtype=_header_type(every))
    for kind in present:
        rows = np.flatnonzero(kinds == kind)
        some = take_headers(data, starts[rows], _header_type(kind))
        for name in headers.dtype.names or ():
            headers[name][rows] = some[name]
    return headers, head_bytes


def _header_type(kind: int) -> "np.dtype[np.void]":
    return header_type(20 if kind & 1 else 8, 20 if kind & 2 else 8)
