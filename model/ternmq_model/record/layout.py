"""Positions of the parts of many records. Pure.

Source: RocketMQ `MessageDecoder`.
"""

from dataclasses import dataclass

import numpy as np

from ternmq_model.arrays import Ints
from ternmq_model.record.format import FLAG_HOSTS_MASK, MAGIC_V1, MAGIC_V2, read_sys_flag
from ternmq_model.record.header_arrays import Headers, header_type, read_lengths, take_headers


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """Positions of the parts of records with valid sizes."""

    starts: Ints
    ends: Ints
    headers: Headers
    """Copies of the headers. If the lengths of hosts differ, shorter hosts are padded by zeros."""

    bodies: Ints
    body_ends: Ints
    topics: Ints
    topic_bytes: Ints
    properties: Ints


def lay_out(
    data: bytes | memoryview, starts: Ints, ends: Ints, places: Ints | None
) -> RecordLayout | int:
    """Return the positions of the parts of records; or the index of one with invalid sizes.

    Checksums are not verified.

    Args:
        data: Buffer with the records.
        starts: Begin of each record in `data`, at least one; each has at least `OVERHEAD_BYTES`.
        ends: End of each record, inside `data`.
        places: Expected physical offsets in the headers. None = any.
    """
    alike = _lay_out_alike(data, starts, ends, places)
    if alike is not None:
        return alike
    view = np.frombuffer(data, dtype=np.uint8)
    headers, head_bytes = _take_headers(data, starts, ends)
    if not len(headers):
        return int(np.argmax(starts + head_bytes > ends))
    long_topic = headers["magic"] == MAGIC_V2
    bodies = starts + head_bytes
    body_bytes = headers["body_bytes"].astype(np.int64)
    body_ends = bodies + body_bytes
    topics = body_ends + 1 + long_topic
    good = (body_bytes >= 0) & (topics + 2 <= ends) & (headers["total_bytes"] == ends - starts)
    good &= long_topic | (headers["magic"] == MAGIC_V1)
    if places is not None:
        good &= headers["physical_offset"] == places
    if not good.all():
        return int(good.argmin())
    topic_bytes = view[topics - 1].astype(np.int64)
    if long_topic.any():
        topic_bytes = np.where(long_topic, read_lengths(view, topics), topic_bytes)
    properties = topics + topic_bytes + 2
    good = (topic_bytes >= 1) & (properties <= ends)
    if not good.all():
        return int(good.argmin())
    properties_bytes = read_lengths(view, properties)
    good = (properties_bytes >= 0) & (properties + properties_bytes == ends)
    if not good.all():
        return int(good.argmin())
    return RecordLayout(starts, ends, headers, bodies, body_ends, topics, topic_bytes, properties)


def _lay_out_alike(
    data: bytes | memoryview, starts: Ints, ends: Ints, places: Ints | None
) -> RecordLayout | None:
    """Return the positions of V1 records with hosts of one length, in half the time.

    None = a record has another form, or invalid sizes.
    """
    hosts = read_sys_flag(data, int(starts[0])) & FLAG_HOSTS_MASK
    kind = header_type(hosts)
    if hosts and int(starts.max()) + kind.itemsize > len(data):
        return None
    headers = take_headers(data, starts, kind)
    bodies = starts + kind.itemsize
    body_ends = bodies + headers["body_bytes"]
    good = headers["magic"] == MAGIC_V1
    good &= headers["total_bytes"] == ends - starts
    good &= (headers["sys_flag"] & FLAG_HOSTS_MASK) == hosts
    good &= bodies <= body_ends
    good &= body_ends + 3 <= ends
    if places is not None:
        good &= headers["physical_offset"] == places
    if np.count_nonzero(good) < len(starts):
        return None
    view = np.frombuffer(data, dtype=np.uint8)
    topics = body_ends + 1
    topic_bytes = view[body_ends].astype(np.int64)
    properties = topics + topic_bytes + 2
    left = ends - properties
    good = left >= 0
    good &= topic_bytes >= 1
    good &= read_lengths(view, np.minimum(properties, ends)) == left
    if np.count_nonzero(good) < len(starts):
        return None
    return RecordLayout(starts, ends, headers, bodies, body_ends, topics, topic_bytes, properties)


def _take_headers(data: bytes | memoryview, starts: Ints, ends: Ints) -> tuple[Headers, Ints]:
    """Return copies of the headers and their lengths; no headers if one exceeds its record."""
    shortest = take_headers(data, starts, header_type(0))
    flags = shortest["sys_flag"].astype(np.int64) & FLAG_HOSTS_MASK
    if not flags.any():
        return shortest, np.full(len(starts), shortest.itemsize, dtype=np.int64)
    present: list[int] = np.unique(flags).tolist()
    head_bytes = np.zeros(len(starts), dtype=np.int64)
    hosts = 0
    for kind in present:
        hosts |= kind
        head_bytes[flags == kind] = header_type(kind).itemsize
    if (starts + head_bytes > ends).any():
        return shortest[:0], head_bytes
    headers = np.zeros(len(starts), dtype=header_type(hosts))
    for kind in present:
        rows = np.flatnonzero(flags == kind)
        some = take_headers(data, starts[rows], header_type(kind))
        for name in headers.dtype.names or ():
            headers[name][rows] = some[name]
    return headers, head_bytes
