"""Batches of staged half messages alone, rewritten without an object for each message. Pure.

Such batches have up to ten thousand messages. Their records begin with different properties and end
with equal ones. `reroute` handles all other batches by the same rules.
"""

from itertools import repeat
from typing import Final, NamedTuple

import numpy as np

from ternmq_broker.storage.half_form import (
    KEY_NAME,
    TOPIC_FIELD,
    encode_real_queue,
    join_half_properties,
    shared_part,
)
from ternmq_broker.storage.internal_record import InternalRecord
from ternmq_broker.storage.system_topic_routing import (
    SPARE_BYTES,
    RoutingRules,
    check_producer_group,
    check_staged,
)
from ternmq_model.errors import RefusedError
from ternmq_model.names import DEAD_LETTER_PREFIX, HALF_TOPIC, RETRY_PREFIX
from ternmq_model.properties import (
    CHECK_IMMUNITY_S,
    PAIR_END_BYTE,
    PRODUCER_GROUP,
    STAGED_FOR,
    TRANSACTION_PREPARED,
    UNIQUE_KEY,
    decode_properties,
    encode_properties,
)
from ternmq_model.record.batch import RecordBatch
from ternmq_model.record.checksum import RESERVED_CHECKSUM
from ternmq_model.record.fields import QueueRows, cut_out
from ternmq_model.record.format import LENGTH_BYTES, PROPERTIES_BYTES_MAX
from ternmq_model.record.header_arrays import pack_lengths
from ternmq_model.record.property_rules import is_plain

_ROWS_MIN: Final = 8
"""Fewer rows are faster rewritten one by one."""

_KEY_AGAIN: Final = PAIR_END_BYTE + KEY_NAME
_MARKS: Final = frozenset({TRANSACTION_PREPARED, STAGED_FOR})


class StagedBatch(NamedTuple):
    """A batch of staged half messages in its stored form."""

    batch: RecordBatch
    immunity_s: int | None
    """Immunity time of all records; None = the setting of the broker."""


def stage_rows(batch: RecordBatch, rules: RoutingRules) -> StagedBatch | None:
    """Return `batch` in the stored form of staged half messages; None when it has other records.

    Args:
        batch: Checked batch.
        rules: Current routing rules of this broker.
    """
    if len(batch) < _ROWS_MIN or len(batch.routed) < len(batch) or rules.no_transactions:
        return None
    if any(queue.topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)) for queue in batch.queues):
        return None
    ends = batch.starts + batch.sizes
    parts = cut_out(batch.data, batch.properties, ends)
    tail = _common_tail(parts, is_checksummed=batch.is_checksummed)
    if tail is None:
        return None
    leads = [part.removesuffix(tail) for part in parts]
    joined = b"".join(leads)
    if len(joined) != sum(map(len, parts)) - len(tail) * len(parts):
        return None  # some parts have another end
    has_one_key = (PAIR_END_BYTE + joined).count(_KEY_AGAIN) == len(leads)
    if not is_plain(joined) or not has_one_key or not all(map(_begins_with_key, leads)):
        return None
    shared = _shared_properties(tail.removesuffix(RESERVED_CHECKSUM), rules)
    return None if shared is None else _rewritten(batch, leads, tail, shared)


def _common_tail(parts: list[bytes], *, is_checksummed: bool) -> bytes | None:
    """Return the common end of the first and the last of `parts`; None without one."""
    first, last = parts[0], parts[-1]
    tail = shared_part(first)
    if (
        tail is None
        or tail.endswith(RESERVED_CHECKSUM) is not is_checksummed
        or not last.endswith(tail)
    ):
        return None
    return tail


def _begins_with_key(lead: bytes) -> bool:
    return lead.startswith(KEY_NAME)


class _TailProperties(NamedTuple):
    """Values of the properties that all records of a batch share."""

    immunity_s: int | None
    """None = the setting of the broker."""


def _shared_properties(tail: bytes, rules: RoutingRules) -> _TailProperties | None:
    """Return the values that all records share; None when that is for the longer way."""
    pairs = decode_properties(tail)
    if STAGED_FOR not in pairs or len(tail.split(PAIR_END_BYTE)) != len(pairs) + 1:
        return None
    others = {name: value for name, value in pairs.items() if name not in _MARKS}
    if UNIQUE_KEY in others or not is_plain(encode_properties(others)):
        return None
    one = InternalRecord(
        topic="any",
        queue_id=0,
        body=b"",
        properties=pairs | {UNIQUE_KEY: "any"},
        born_at_ms=0,
        born_host=b"",
    )
    try:
        check_producer_group(pairs[PRODUCER_GROUP], rules)
        check_staged(one, rules)
    except RefusedError:
        return None
    immunity = pairs.get(CHECK_IMMUNITY_S)
    return _TailProperties(None if immunity is None else int(immunity))


def _rewritten(
    batch: RecordBatch, leads: list[bytes], tail: bytes, shared: _TailProperties
) -> StagedBatch | None:
    count = len(leads)
    room = RESERVED_CHECKSUM if batch.is_checksummed else b""
    real_queues: list[bytes] = [b""] * count
    for topic, queue_id, rows in batch.queues:
        real_queue = encode_real_queue(topic, queue_id) + room
        for row in rows.tolist():
            real_queues[row] = real_queue
    wholes = join_half_properties(leads, tail.removesuffix(room), real_queues)
    lengths = np.fromiter(map(len, wholes), dtype=np.int64, count=count)
    if int(lengths.max()) + SPARE_BYTES[HALF_TOPIC] > PROPERTIES_BYTES_MAX:
        return None
    bodies_end = batch.starts + batch.headers.dtype.itemsize + batch.headers["body_bytes"]
    fronts = cut_out(batch.data, batch.starts, bodies_end)
    data = b"".join(
        [
            part
            for row in zip(fronts, repeat(TOPIC_FIELD), pack_lengths(lengths), wholes, strict=False)
            for part in row
        ]
    )
    sizes = (bodies_end - batch.starts) + len(TOPIC_FIELD) + LENGTH_BYTES + lengths
    starts = np.cumsum(sizes) - sizes
    headers = batch.headers.copy()
    headers["total_bytes"] = sizes
    headers["queue_id"] = 0
    half = RecordBatch(
        data,
        starts,
        sizes,
        headers,
        batch.tag_codes,
        (QueueRows(HALF_TOPIC, 0, np.arange(count, dtype=np.int64)),),
        starts + sizes - lengths,
        batch.is_checksummed,
    )
    return StagedBatch(half, shared.immunity_s)
