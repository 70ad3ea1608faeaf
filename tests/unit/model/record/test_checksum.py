"""The checksum of a whole record: its place, its digits, what it covers."""

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq_model.properties import decode_properties
from ternmq_model.record.batch import conform_checksums, select_rows
from ternmq_model.record.checksum import (
    RESERVED_CHECKSUM,
    checksum_digits,
    crc31_of_ranges,
    has_checksum,
    match_checksums,
    put_checksums,
    strip_checksum,
    verify_checksum,
)
from ternmq_model.record.format import PROPERTIES_BYTES_MAX, crc31, decode_record
from tests.support.records import batch_of, record
from tests.unit.model.record.test_batch import check


def test_digits_begin_with_the_least_significant_and_end_with_zeros() -> None:
    assert checksum_digits(1_234) == b"4321000000"
    assert checksum_digits(0x7FFFFFFF) == b"7463847412"


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (RESERVED_CHECKSUM, True),
        (b"a\x01b\x02" + RESERVED_CHECKSUM, True),
        (b"a\x01b\x02__CRC32#\x011234567890\x02", True),
        (b"", False),
        (RESERVED_CHECKSUM[:-1], False),
        (b"a\x01b" + RESERVED_CHECKSUM, False),
        (b"__CRC32#\x01123456789x\x02", False),
        (RESERVED_CHECKSUM + b"a\x01b\x02", False),
    ],
)
def test_checksum_is_recognized_only_in_its_place(properties: bytes, expected: bool) -> None:
    assert has_checksum(properties) is expected
    assert strip_checksum(properties) == (properties[:-20] if expected else properties)


@pytest.mark.parametrize("length", [1, 512, 513, 2048, 2049])
@pytest.mark.parametrize("gaps", [(9, 9), (9, 10)])
@pytest.mark.parametrize("more", [0, 1])
def test_ranges_have_their_own_checksums(length: int, gaps: tuple[int, int], more: int) -> None:
    data = bytes(n * n % 251 for n in range(7_000))
    starts = np.array([4, 4 + length + gaps[0], 4 + 2 * length + sum(gaps)])
    ends = starts + length + np.array([0, 0, more])
    pieces = [data[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    assert crc31_of_ranges(data, starts, ends).tolist() == list(map(crc31, pieces))
    assert crc31_of_ranges(data, starts[:1], ends[:1]).tolist() == [crc31(pieces[0])]


@given(bodies=st.lists(st.binary(max_size=200), min_size=1, max_size=5))
def test_checksums_cover_everything_before_them(bodies: list[bytes]) -> None:
    batch = batch_of(
        *(record(body=body, suffix=RESERVED_CHECKSUM) for body in bodies), is_checksummed=True
    )
    data = np.frombuffer(batch.data, dtype=np.uint8).copy()
    put_checksums(data, batch.starts, batch.sizes)
    ends = batch.starts + batch.sizes
    assert match_checksums(data.tobytes(), batch.starts, batch.properties, ends).all()
    for start, end in zip(batch.starts.tolist(), ends.tolist(), strict=True):
        whole = data[start:end].tobytes()
        found = decode_record(whole)
        assert found is not None
        assert verify_checksum(whole, found.properties)
        digits = decode_properties(found.properties)["__CRC32#"]
        assert int(digits[::-1]) == zlib.crc32(whole[:-20]) & 0x7FFFFFFF


def test_any_changed_byte_is_noticed() -> None:
    batch = batch_of(
        record(body=b"a", suffix=RESERVED_CHECKSUM),
        record(body=b"bb", suffix=RESERVED_CHECKSUM),
        is_checksummed=True,
    )
    good = np.frombuffer(batch.data, dtype=np.uint8).copy()
    put_checksums(good, batch.starts, batch.sizes)
    starts, ends = batch.starts, batch.starts + batch.sizes
    for place in range(len(good)):
        bad = good.copy()
        bad[place] ^= 1
        row = int(np.searchsorted(ends, place, side="right"))
        matches = match_checksums(bad.tobytes(), starts, batch.properties, ends)
        assert matches.tolist() == [row != 0, row != 1], place
        properties = bad[batch.properties[row] : ends[row]].tobytes()
        assert not verify_checksum(bad[starts[row] : ends[row]].tobytes(), properties)


@pytest.mark.parametrize("is_checksummed", [True, False])
def test_batch_has_space_for_checksums_everywhere_or_nowhere(is_checksummed: bool) -> None:
    suffix = RESERVED_CHECKSUM if is_checksummed else b""
    mixed = (
        record("A", 1, suffix=RESERVED_CHECKSUM),
        record("B", properties={"TAGS": "x"}),
        record("A", 1, suffix=RESERVED_CHECKSUM),
    )
    batch = batch_of(*mixed, is_checksummed=is_checksummed)
    wanted = (
        record("A", 1, suffix=suffix),
        record("B", properties={"TAGS": "x"}, suffix=suffix),
        record("A", 1, suffix=suffix),
    )
    same = batch_of(*wanted, is_checksummed=is_checksummed)
    assert batch.data == same.data
    assert batch.is_checksummed is is_checksummed
    assert batch.headers.tobytes() == same.headers.tobytes()
    for left, right in (
        (batch.starts, same.starts),
        (batch.sizes, same.sizes),
        (batch.properties, same.properties),
        (batch.tag_codes, same.tag_codes),
    ):
        assert left.tolist() == right.tolist()
    kept, _ = select_rows(batch, batch.queues[:1])
    assert kept.is_checksummed is is_checksummed


def test_conforming_batch_is_left_alone() -> None:
    batch = batch_of(record())
    assert conform_checksums(batch, is_checksummed=False) is batch
    longer = conform_checksums(batch, is_checksummed=True)
    assert longer.data == record(suffix=RESERVED_CHECKSUM)
    assert conform_checksums(longer, is_checksummed=False).data == batch.data


def test_properties_without_space_for_a_checksum_are_refused_where_needed() -> None:
    fits = record(properties={"k": "v" * (PROPERTIES_BYTES_MAX - 3 - 20)})
    over = record(properties={"k": "v" * (PROPERTIES_BYTES_MAX - 3 - 19)})
    assert len(batch_of(fits, over)) == 2
    checked = check(fits, over, is_checksummed=True)
    assert checked.indexes.tolist() == [0]
    assert "with their checksum" in checked.refused[0].remark


@pytest.mark.parametrize("is_checksummed", [True, False])
@pytest.mark.parametrize(
    "bad",
    [
        record(suffix=b"__CRC32#\x010000000001\x02"),
        record(suffix=RESERVED_CHECKSUM + b"a\x01b\x02"),
        record(suffix=RESERVED_CHECKSUM + RESERVED_CHECKSUM),
        record(properties={"__CRC32#": "1"}),
        record(properties={"__CRC32#": "1"}, suffix=RESERVED_CHECKSUM),
        record(properties={"REAL_TOPIC": "A"}, suffix=RESERVED_CHECKSUM),
    ],
)
def test_checksums_set_by_clients_are_refused(bad: bytes, is_checksummed: bool) -> None:
    checked = check(record(), bad, is_checksummed=is_checksummed)
    assert [one.row for one in checked.refused] == [1]
    assert "property" in checked.refused[0].remark
