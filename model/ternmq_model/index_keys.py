"""Keys in the properties of a batch, and their hashes for the index. Pure.

A message is found by its unique key and by each of its KEYS. A large batch needs a few passes of
numpy over its contiguous properties, or over its keys alone if these have the same places in all
records. For a few records, reading each one alone is faster:

    padding 0x02 properties 0x02 properties 0x02 … 0x02 padding

Source: RocketMQ `IndexService.buildIndex`, `IndexFile.indexKeyHashMethod`.
"""

from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ternmq_model.arrays import Bytes, Ints, cut_equal
from ternmq_model.properties import (
    KEY_SEPARATOR,
    KEYS,
    PAIR_END_BYTE,
    PAIR_END_CODE,
    UNIQUE_KEY,
    decode_properties,
    encode_name,
    java_hash,
)
from ternmq_model.record.batch import RecordBatch
from ternmq_model.record.fields import cut_out
from ternmq_model.record.format import FLAG_ROLLBACK

Hashes = NDArray[np.int32]
_Words = NDArray[np.uint32]

_SPACE: Final = ord(KEY_SEPARATOR)
_UNIQUE_PAIR: Final = encode_name(UNIQUE_KEY)
_KEYS_PAIR: Final = encode_name(KEYS)
_WORD_BYTES: Final = 8
_UNIQUE_WORD: Final = np.uint64(int.from_bytes(_UNIQUE_PAIR[:_WORD_BYTES], "little"))
_KEYS_WORD: Final = np.uint64(int.from_bytes(_KEYS_PAIR, "little"))
_KEYS_MASK: Final = np.uint64((1 << 8 * len(_KEYS_PAIR)) - 1)
assert len(_UNIQUE_PAIR) == _WORD_BYTES + 1

_WIDTH: Final = 16
_WIDTH_MAX: Final = 64
"""Longest key that is hashed with others, in windows of 16, 32, 48 or 64 bytes."""

_FEW_RECORDS: Final = 8
"""Most records whose properties are read one by one, which is faster than the passes."""

_HEAD: Final = bytes(_WIDTH_MAX - 1) + PAIR_END_BYTE
_TAIL: Final = PAIR_END_BYTE + bytes(_WORD_BYTES)


def _powers(count: int) -> _Words:
    powers = np.full(count, 31, dtype=np.uint32)
    powers[0] = 1
    return np.cumprod(powers, dtype=np.uint32)


_POWERS: Final = _powers(1 << 16)
_FALLING: Final = _POWERS[_WIDTH_MAX - 1 :: -1].copy()


class KeyRows(NamedTuple):
    """Keys of a batch, in their order in the index."""

    rows: Ints
    """Record of each key, ascending."""
    hashes: Hashes
    """Hash of each key in the index, at least 0."""


def key_hash(topic: str, key: str) -> int:
    """Return the hash of a key in the index: 31 bits of the Java hash of `topic#key`.

    Source: RocketMQ `IndexFile.indexKeyHashMethod`.
    """
    code = abs(java_hash(key, after=_prefix(topic)))
    return code if code < 1 << 31 else 0


def keys_in(properties: bytes) -> list[str]:
    """Return the keys in one record's encoded properties, as `find_keys` does for a batch."""
    if properties.startswith(_UNIQUE_PAIR) and properties.count(_UNIQUE_PAIR) == 1:
        # Most messages of a producer have their unique key first, and no others.
        unique_key = properties[len(_UNIQUE_PAIR) :].partition(PAIR_END_BYTE)[0]
        if _KEYS_PAIR not in properties and unique_key.isalnum():
            return [unique_key.decode()]
    found = decode_properties(properties)
    unique, keys = found.get(UNIQUE_KEY, ""), found.get(KEYS, "")
    return [key for key in (unique, *keys.split(KEY_SEPARATOR)) if key]


def find_keys(batch: RecordBatch) -> KeyRows:
    """Return the keys of every record: its unique key, then each of its KEYS.

    The keys equal those of `decode_properties`. Records that roll a transaction back, and records
    outside the batch's queues, have no keys.
    """
    return _keys_of_few(batch) if len(batch) <= _FEW_RECORDS else _keys_of_many(batch)


def _keys_of_few(batch: RecordBatch) -> KeyRows:
    topics = [(row, queue.topic) for queue in batch.queues for row in queue.rows.tolist()]
    topics.sort()
    flags: list[int] = batch.headers["sys_flag"].tolist()
    begins, ends = batch.properties.tolist(), (batch.starts + batch.sizes).tolist()
    rows: list[int] = []
    hashes: list[int] = []
    for row, topic in topics:
        if flags[row] & FLAG_ROLLBACK == FLAG_ROLLBACK:
            continue
        for key in keys_in(batch.data[begins[row] : ends[row]]):
            rows.append(row)
            hashes.append(key_hash(topic, key))
    return KeyRows(np.array(rows, dtype=np.int64), np.array(hashes, dtype=np.int32))


def _keys_of_many(batch: RecordBatch) -> KeyRows:
    prefixes, is_kept = _prefixes(batch)
    found = _keys_of_one_form(batch, prefixes) if batch.has_one_form else None
    rows, hashes = found or _keys_of_any_form(batch, prefixes)
    if not is_kept.all():
        kept = is_kept[rows]
        rows, hashes = rows[kept], hashes[kept]
    return KeyRows(rows, np.maximum(np.abs(hashes.view(np.int32)), 0))


def _prefixes(batch: RecordBatch) -> tuple[_Words, NDArray[np.bool_]]:
    """Return the hash of each record's topic as a prefix, and whether the record has keys."""
    prefixes = np.zeros(len(batch), dtype=np.uint32)
    is_kept = (batch.headers["sys_flag"] & FLAG_ROLLBACK) != FLAG_ROLLBACK
    is_known = np.zeros(len(batch), dtype=bool)
    for queue in batch.queues:
        prefixes[queue.rows] = _prefix(queue.topic)
        is_known[queue.rows] = True
    return prefixes, is_kept & is_known


def _keys_of_one_form(batch: RecordBatch, prefixes: _Words) -> tuple[Ints, _Words] | None:
    """Return rows and hashes of the keys, which have the same places; None = not all are ASCII."""
    joined, firsts = _join(batch, 1)
    _, begins, ends = _tokens(np.frombuffer(joined, dtype=np.uint8), firsts)
    hashes = np.empty((len(batch), len(begins)), dtype=np.uint32)
    for column, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
        length = end - begin
        codes = cut_equal(batch.data, batch.properties + (begin - firsts[0]), length)
        if (codes > 0x7F).any():
            return None
        hashes[:, column] = codes.astype(np.uint32) @ _POWERS[:length][::-1]
        hashes[:, column] += prefixes * _POWERS[length]
    return np.repeat(np.arange(len(batch)), len(begins)), hashes.reshape(-1)


def _keys_of_any_form(batch: RecordBatch, prefixes: _Words) -> tuple[Ints, _Words]:
    """Return rows and hashes of the keys."""
    joined, firsts = _join(batch, len(batch))
    rows, begins, ends = _tokens(np.frombuffer(joined, dtype=np.uint8), firsts)
    hashes = _hashes(joined, begins, ends)
    hashes += (
        prefixes[rows] * _POWERS[ends - begins]
        if joined.isascii()
        else _shifted(joined, prefixes[rows], begins, ends)
    )
    return rows, hashes


def _join(batch: RecordBatch, count: int) -> tuple[bytes, Ints]:
    """Return properties of `count` records, with a 0x02 around those of each, and their begins."""
    begins = batch.properties[:count]
    ends = (batch.starts + batch.sizes)[:count]
    joined = b"".join((_HEAD, PAIR_END_BYTE.join(cut_out(batch.data, begins, ends)), _TAIL))
    lengths = ends - begins + 1
    return joined, np.cumsum(lengths) - lengths + len(_HEAD)


def _tokens(buffer: Bytes, firsts: Ints) -> tuple[Ints, Ints, Ints]:
    """Return every key's row, begin and end, in the order of the index."""
    marks = np.flatnonzero(buffer == PAIR_END_CODE)
    starts = marks[:-1] + 1
    words = np.ndarray((len(buffer) - _WORD_BYTES + 1,), "<u8", buffer, strides=(1,))[starts]
    is_unique = (words == _UNIQUE_WORD) & (buffer[starts + _WORD_BYTES] == _UNIQUE_PAIR[-1])
    is_keys = (words & _KEYS_MASK) == _KEYS_WORD
    unique_rows, *unique = _values(
        starts[is_unique] + len(_UNIQUE_PAIR), marks[1:][is_unique], firsts
    )
    rows, begins, ends = _values(starts[is_keys] + len(_KEYS_PAIR), marks[1:][is_keys], firsts)
    if len(begins):
        rows, begins, ends = _split(buffer, rows, begins, ends, firsts)
    ranks = np.concatenate((unique_rows * 2, rows * 2 + 1))
    order = np.argsort(ranks, kind="stable")
    begins, ends = np.concatenate((unique[0], begins)), np.concatenate((unique[1], ends))
    return ranks[order] >> 1, begins[order], ends[order]


def _values(begins: Ints, ends: Ints, firsts: Ints) -> tuple[Ints, Ints, Ints]:
    """Return rows, begins and ends of the values that count: the last non-empty one of a record."""
    filled = begins < ends
    if not filled.all():
        begins, ends = begins[filled], ends[filled]
    rows = np.searchsorted(firsts, begins, side="right") - 1
    if len(rows) > 1:
        last = np.append(rows[1:] != rows[:-1], True)
        if not last.all():
            return rows[last], begins[last], ends[last]
    return rows, begins, ends


def _split(
    buffer: Bytes, rows: Ints, begins: Ints, ends: Ints, firsts: Ints
) -> tuple[Ints, Ints, Ints]:
    """Return the non-empty tokens between blanks."""
    spaces = np.flatnonzero(buffer == _SPACE)
    value = np.searchsorted(begins, spaces, side="right") - 1
    spaces = spaces[(value >= 0) & (spaces < ends[value])]
    if not len(spaces):
        return rows, begins, ends
    begins = np.sort(np.concatenate((begins, spaces + 1)))
    ends = np.sort(np.concatenate((ends, spaces)))
    filled = begins < ends
    if not filled.all():
        begins, ends = begins[filled], ends[filled]
    return np.searchsorted(firsts, begins, side="right") - 1, begins, ends


def _hashes(joined: bytes, begins: Ints, ends: Ints) -> _Words:
    """Return every token's own hash."""
    hashes = np.zeros(len(begins), dtype=np.uint32)
    lengths = ends - begins
    widths = -(-lengths // _WIDTH) * _WIDTH
    longest = int(widths.max(initial=0))
    is_ascii = joined.isascii()
    for width in range(_WIDTH, min(longest, _WIDTH_MAX) + 1, _WIDTH):
        members = np.flatnonzero(widths == width)
        if len(members):
            codes = _windows(joined, ends[members], lengths[members], width)
            hashes[members] = codes @ _FALLING[-width:]
            if not is_ascii:
                for member in members[(codes > 0x7F).any(axis=1)].tolist():
                    hashes[member] = _hash(joined[begins[member] : ends[member]])
    if longest > _WIDTH_MAX:
        for member in np.flatnonzero(widths > _WIDTH_MAX).tolist():
            hashes[member] = _hash(joined[begins[member] : ends[member]])
    return hashes


def _windows(joined: bytes, ends: Ints, lengths: Ints, width: int) -> _Words:
    """Return the tokens' bytes, each token at the end of a row of `width`, behind zeros."""
    codes = cut_equal(joined, ends - width, width).astype(np.uint32)
    if int(lengths.min()) < width:
        codes[np.arange(width) < (width - lengths)[:, None]] = 0
    return codes


def _units(token: bytes) -> NDArray[np.integer]:
    """Return the UTF-16 code units over which Java hashes the text in `token`."""
    if token.isascii():
        return np.frombuffer(token, dtype=np.uint8)
    text = token.decode("utf-8", "replace")
    return np.frombuffer(text.encode("utf-16-le", "surrogatepass"), dtype="<u2")


def _hash(token: bytes) -> int:
    units = _units(token).astype(np.uint32)
    return int((units * _POWERS[len(units) - 1 :: -1][: len(units)]).sum(dtype=np.uint32))


def _shifted(joined: bytes, prefixes: _Words, begins: Ints, ends: Ints) -> _Words:
    """Return the parts of the prefixes in the hashes, if some tokens are not ASCII."""
    counts = [
        end - begin if joined[begin:end].isascii() else len(_units(joined[begin:end]))
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
    ]
    return prefixes * _POWERS[counts]


@lru_cache(maxsize=16_384)
def _prefix(topic: str) -> int:
    """Return the hash of `topic#`, in 32 bits without a sign."""
    return java_hash(f"{topic}#") & 0xFFFFFFFF
