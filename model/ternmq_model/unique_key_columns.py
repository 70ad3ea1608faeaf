"""Unique keys of many messages as one array."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ternmq_model.message_id import UniqueKeys

KeyColumn = NDArray[np.bytes_]
"""Array of unique keys of one length."""

NO_UNIQUE_KEYS: Final[KeyColumn] = np.zeros(0, dtype="S1")
"""Column without a key, compared by identity."""

_DIGIT_PAIRS: Final = np.array([b"%02X" % number for number in range(256)])


def next_keys(keys: UniqueKeys, count: int, now_ms: int) -> KeyColumn:
    """Return `count` new keys, at most 65,536: more keys in a millisecond would repeat."""
    prefix, first = keys.reserve(count, now_ms)
    counters = np.arange(first, first + count)
    kind = np.dtype([("prefix", f"S{len(prefix)}"), ("high", "S2"), ("low", "S2")])
    column = np.empty(count, kind)
    column["prefix"] = prefix
    column["high"] = _DIGIT_PAIRS[counters >> 8 & 0xFF]
    column["low"] = _DIGIT_PAIRS[counters & 0xFF]
    return column.view(f"S{kind.itemsize}")
