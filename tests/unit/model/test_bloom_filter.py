"""Which bits a consumer has, and what a bit map says of it."""

import pytest

from ternmq_model.bloom_filter import BloomFilter, murmur3_128


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("", 0, 0),
        ("hello", 0xCBD8A7B341BD9B02, 0x5B1E906A48AE1D19),
        ("hello, world", 0x342FAC623A5EBC8E, 0x4CDCBC079642414D),
        ("19 Jan 2038 at 3:14:07 AM", 0xB89E5988B737AFFC, 0x664FC2950231B2CB),
        (
            "The quick brown fox jumps over the lazy dog.",
            0xCD99481F9EE902C9,
            0x695DA1A38987B6E7,
        ),
    ],
)
def test_hash_is_murmur3(text: str, low: int, high: int) -> None:
    assert murmur3_128(text.encode()) == (low, high)


def test_bloom_filter_dimensions_equal_rocketmqs() -> None:
    bloom = BloomFilter()
    assert (bloom.hashes, bloom.bits) == (3, 112)
    assert (BloomFilter(1, 1000).hashes, BloomFilter(1, 1000).bits) == (7, 9592)


def test_positions_come_from_the_two_halves_of_the_first_64_bits() -> None:
    bloom = BloomFilter()
    code = murmur3_128(b"group#topic")[0]
    first, second = code & 0xFFFFFFFF, code >> 32
    expected: list[int] = []
    for number in (1, 2, 3):
        value = (first + number * second) & 0xFFFFFFFF
        expected.append((value if value < 1 << 31 else 0xFFFFFFFF - value) % 112)
    assert bloom.positions("group", "topic") == expected
    assert all(0 <= position < 112 for position in bloom.positions("öther", "topic"))


def test_bit_map_has_the_bits_of_its_positions() -> None:
    bloom = BloomFilter()
    ones, others = bloom.positions("one", "T"), bloom.positions("other", "T")
    data, rest = bloom.bit_map(ones), bloom.bit_map(others)
    assert len(data) == 14
    assert bloom.bit_map([0, 9]) == b"\x01\x02" + bytes(12)
    both = bytes(a | b for a, b in zip(data, rest, strict=True))
    assert bloom.bit_map([*ones, *others]) == both != data
