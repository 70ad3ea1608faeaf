import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq_model.arrays import Ints
from ternmq_model.record.format import encode_record, header_struct, host_flags, read_header
from ternmq_model.record.header_arrays import (
    has_size_and_offset,
    have_sizes_and_offsets,
    header_type,
    put_headers,
    take_headers,
)
from tests.support.records import BORN_HOST, STORE_HOST

FIRST, SECOND = (
    encode_record(
        topic=b"T",
        queue_id=0,
        body=body,
        properties=b"",
        born_at_ms=0,
        born_host=BORN_HOST,
        store_host=STORE_HOST,
        queue_offset=queue_offset,
    )
    for body, queue_offset in ((b"one", 7), (b"second", 8))
)
DATA = FIRST + SECOND
STARTS = np.array([0, len(FIRST)])
SIZES = np.array([len(FIRST), len(SECOND)])
STEP = np.array([0, 1])


@pytest.mark.parametrize("born", [8, 20])
@pytest.mark.parametrize("store", [8, 20])
def test_array_header_has_the_fields_of_the_scalar_header(born: int, store: int) -> None:
    flags = host_flags(born, store)
    layout = header_struct(flags)
    data = layout.pack(
        1,
        2,
        3,
        4,
        5,
        6,
        7,
        flags,
        8,
        BORN_HOST.rjust(born, b"x"),
        9,
        STORE_HOST.rjust(store, b"y"),
        10,
        11,
        12,
    )
    [header] = take_headers(data, np.array([0]), header_type(flags))
    expected = read_header(data)._asdict()
    for name in ("born_host", "store_host"):
        assert header[name].tobytes() == expected.pop(name)
    assert {name: int(header[name]) for name in expected} == expected
    target = bytearray(len(data))
    put_headers(target, np.array([0]), take_headers(data, np.array([0]), header_type(flags)))
    assert target == data


@pytest.mark.parametrize(
    ("starts", "sizes", "queue_offsets", "is_true"),
    [
        (STARTS, SIZES, [7, 8], True),
        (STARTS, SIZES, [7, 9], False),
        (STARTS, SIZES + STEP, [7, 8], False),
        (STARTS + STEP, SIZES, [7, 8], False),
        (STARTS + STEP * len(DATA), SIZES, [7, 8], False),
        (STARTS - 2 * len(DATA), SIZES, [7, 8], False),
    ],
)
def test_sizes_and_offsets_of_damaged_units_differ_from_those_of_records(
    starts: Ints, sizes: Ints, queue_offsets: list[int], is_true: bool
) -> None:
    found = have_sizes_and_offsets(memoryview(DATA), starts, sizes, np.array(queue_offsets))
    assert found == is_true


@given(
    st.sampled_from([0, len(FIRST)]) | st.integers(0, len(DATA)),
    st.sampled_from(SIZES.tolist()) | st.integers(0, 100),
    st.integers(6, 9),
)
def test_header_is_compared_alone_as_among_many(start: int, size: int, queue_offset: int) -> None:
    view = memoryview(DATA)
    many = have_sizes_and_offsets(
        view, np.array([start]), np.array([size]), np.array([queue_offset])
    )
    assert has_size_and_offset(view, start, size, queue_offset) is many
