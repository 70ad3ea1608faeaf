"""Fields of many records, at their arrival or in the log. Pure.

The records are contiguous bytes, and arrays have the begins and ends of their parts. All values of
consume queues and indexes come from this module, so that appends and scans of the log agree.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from ternmq_model.arrays import Ints, cut_equal
from ternmq_model.errors import IllegalName
from ternmq_model.names import check_topic
from ternmq_model.properties import PAIR_END_BYTE, TAGS, decode_properties, encode_name, tag_code

_TAGS: Final = encode_name(TAGS)
_TAGS_PAIR: Final = PAIR_END_BYTE + _TAGS


class QueueRows(NamedTuple):
    """Rows of a batch for one queue."""

    topic: str
    queue_id: int
    rows: Ints
    """Ascending row numbers in the batch."""


class BatchTopics(NamedTuple):
    """Distinct topics of a batch."""

    names: Sequence[bytes]
    of_rows: Ints | None
    """Index of each row's topic; None = all rows have the first topic."""


def cut_out(records: bytes, begins: Ints, ends: Ints) -> list[bytes]:
    """Return the bytes from each of `begins` to its end."""
    return [records[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]


def tag_codes_of(properties: Sequence[bytes]) -> Ints:
    """Return the tag code of each record's properties for its consume queue."""
    return np.array([tag_code_of(part) for part in properties], dtype=np.int64)


def tag_code_of(properties: bytes) -> int:
    """Return the tag code of a record's properties for its consume queue; 0 = no tag.

    Appended records and records read from the log have equal codes.
    """
    _, found, rest = properties.rpartition(_TAGS_PAIR)
    if found and (value := rest.partition(PAIR_END_BYTE)[0]):
        return _tag_code(value)
    if _TAGS not in properties:
        return 0
    # A tag that comes first, is empty, or stands inside a value is rare, so it is read slowly.
    return tag_code(decode_properties(properties).get(TAGS, ""))


@lru_cache(maxsize=16_384)
def _tag_code(value: bytes) -> int:
    return tag_code(value.decode("utf-8", "replace"))


@lru_cache(maxsize=16_384)
def topic_name(topic: bytes) -> str | None:
    """Return the topic as text; None = an illegal name."""
    try:
        return check_topic(topic.decode("ascii"))
    except (UnicodeDecodeError, IllegalName):
        return None


def find_topics(records: bytes, topics: Ints, topic_bytes: Ints) -> BatchTopics:
    """Return the distinct topics, which begin at `topics`, of at least one record."""
    begin, length = int(topics[0]), int(topic_bytes[0])
    first = records[begin : begin + length]
    if len(topics) == 1 or (
        (topic_bytes == length).all()
        and (cut_equal(records, topics, length) == np.frombuffer(first, dtype=np.uint8)).all()
    ):
        return BatchTopics((first,), None)
    numbers: dict[bytes, int] = {}
    rows = np.empty(len(topics), dtype=np.int64)
    for row, (at, size) in enumerate(zip(topics.tolist(), topic_bytes.tolist(), strict=True)):
        rows[row] = numbers.setdefault(records[at : at + size], len(numbers))
    return BatchTopics(tuple(numbers), rows)


def queues_of(
    names: Sequence[str], topic_of: Ints | None, queue_ids: Ints
) -> tuple[QueueRows, ...]:
    """Sort rows by queue.

    Args:
        names: Distinct topics.
        topic_of: Index of each row's topic; None = all rows have the first topic.
        queue_ids: Queue id of each row, at least 0.
    """
    keys = queue_ids if topic_of is None else (topic_of << 32) | queue_ids
    first = int(keys[0])
    if len(keys) == 1 or (keys == first).all():
        return (QueueRows(names[first >> 32], first & 0xFFFFFFFF, np.arange(len(keys))),)
    order = np.argsort(keys, kind="stable")
    sorted_keys = keys[order]
    cuts = (np.flatnonzero(sorted_keys[1:] != sorted_keys[:-1]) + 1).tolist()
    begins = [0, *cuts]
    firsts: list[int] = sorted_keys[begins].tolist()
    return tuple(
        QueueRows(names[key >> 32], key & 0xFFFFFFFF, order[begin:end])
        for key, begin, end in zip(firsts, begins, [*cuts, len(order)], strict=True)
    )
