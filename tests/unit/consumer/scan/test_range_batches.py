"""Cuts of what was read."""

from hypothesis import given
from hypothesis import strategies as st

from ternmq_consumer.scan.range_batches import cut_records, split_schema
from tests.support.records import record, sizes_of
from tests.support.scripted_scans import numbered


@given(st.lists(st.integers(0, 9), max_size=8), st.integers(-1, 90))
def test_records_before_the_end_stay(gaps: list[int], end: int) -> None:
    offsets = [sum(gaps[: number + 1]) + number for number in range(len(gaps))]
    records = [numbered(record("T", body=b"x" * offset), offset) for offset in offsets]
    kept, sizes = cut_records(b"".join(records), sizes_of(records).tobytes(), end)
    wanted = [each for each, offset in zip(records, offsets, strict=True) if offset < end]
    assert kept == b"".join(wanted)
    assert sizes == sizes_of(wanted).tobytes()


def test_schema_is_split_at_its_declared_length() -> None:
    schema = b"\xff\xff\xff\xff\x03\0\0\0abc"
    assert split_schema(schema + b"rest") == (schema, b"rest")
