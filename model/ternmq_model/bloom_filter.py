"""Bloom filter of the consumers whose filter a message may pass, tested before a read. Pure.

Each consumer of a topic has a few bits of a short bit map. A message's bit map has the bits of all
consumers whose filter the message passes. If one of a consumer's bits is missing, the message does
not match; if all bits are there, it may match.

Source: RocketMQ `BloomFilter`, `BitsArray`.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

_BYTE_BITS: Final = 8
_MASK: Final = (1 << 64) - 1
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F
_BLOCK_BYTES: Final = 16


@dataclass(frozen=True)
class BloomFilter:
    """Sizes of a bloom filter. RocketMQ's defaults give 3 bits of 112 for a consumer."""

    error_percent: int = 20
    """Rate of false positives of a consumer, percent; 1 to 99."""

    consumers: int = 32
    """Number of consumers up to which that rate holds; at least 1."""

    @cached_property
    def hashes(self) -> int:
        """Number of bits that a consumer has."""
        return math.ceil(math.log(self.error_percent / 100) / math.log(0.5))

    @cached_property
    def bits(self) -> int:
        """Number of bits of a bit map: a multiple of 8."""
        least = math.ceil(
            self.consumers * math.log(100 / self.error_percent, 2) * math.log(math.e, 2)
        )
        return _BYTE_BITS * math.ceil(least / _BYTE_BITS)

    def positions(self, group: str, topic: str) -> Sequence[int]:
        """Return the bits of a group that filters messages of `topic`.

        Source: RocketMQ `BloomFilter.calcBitPositions`, `BloomFilterData`.
        """
        code = murmur3_128(f"{group}#{topic}".encode())[0]
        first, second = _int32(code), _int32(code >> 32)
        combined = [_int32(first + number * second) for number in range(1, self.hashes + 1)]
        return [(value if value >= 0 else ~value) % self.bits for value in combined]

    def bit_map(self, positions: Iterable[int]) -> bytes:
        """Return a bit map with these bits set."""
        data = bytearray(self.bits // _BYTE_BITS)
        for position in positions:
            data[position // _BYTE_BITS] |= 1 << position % _BYTE_BITS
        return bytes(data)

    def pack(self, bits: int) -> bytes:
        """Return the bit map of a number. Its lowest bit is the first one of the map."""
        return bits.to_bytes(self.bits // _BYTE_BITS, "little")


def murmur3_128(data: bytes) -> tuple[int, int]:
    """Return the two halves of the MurmurHash3 of `data`, x64, 128 bits, with seed 0."""
    low = high = 0
    whole = len(data) - len(data) % _BLOCK_BYTES
    for position in range(0, whole, _BLOCK_BYTES):
        low ^= _mix_low(int.from_bytes(data[position : position + 8], "little"))
        low = (_rotate(low, 27) + high) * 5 + 0x52DCE729 & _MASK
        high ^= _mix_high(int.from_bytes(data[position + 8 : position + 16], "little"))
        high = (_rotate(high, 31) + low) * 5 + 0x38495AB5 & _MASK
    rest = data[whole:]
    low ^= _mix_low(int.from_bytes(rest[:8], "little")) ^ len(data)
    high ^= _mix_high(int.from_bytes(rest[8:], "little")) ^ len(data)
    low = low + high & _MASK
    high = high + low & _MASK
    low, high = _finish(low), _finish(high)
    low = low + high & _MASK
    return low, high + low & _MASK


def _mix_low(word: int) -> int:
    return _rotate(word * _C1 & _MASK, 31) * _C2 & _MASK


def _mix_high(word: int) -> int:
    return _rotate(word * _C2 & _MASK, 33) * _C1 & _MASK


def _rotate(word: int, count: int) -> int:
    return (word << count | word >> 64 - count) & _MASK


def _finish(word: int) -> int:
    word = (word ^ word >> 33) * 0xFF51AFD7ED558CCD & _MASK
    word = (word ^ word >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return word ^ word >> 33


def _int32(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value
