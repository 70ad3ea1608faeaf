from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq_model.arrays import layout_bytes
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.header_arrays import header_type, put_headers
from ternmq_store.index.index_format import SLOT
from ternmq_store.queues.units import (
    UNIT,
    Unit,
    decode_units,
    find_turned,
    good_units,
    make_padding,
    make_units,
    read_unit,
    turned_unit,
    unit_bytes,
    unit_of,
)


def test_units_count_until_the_first_unwritten_or_late_one() -> None:
    offsets, sizes = np.array([0, 50, 90, 0, 95]), np.array([50, 40, 5, 0, 9])
    units = make_units(offsets, sizes, sizes)
    assert len(good_units(units)) == 3
    assert len(good_units(units, PhysicalOffset(90))) == 2
    assert len(good_units(units[:2], PhysicalOffset(90))) == 2


@pytest.mark.parametrize("order", "<>")
def test_bytes_of_items_are_those_of_the_layout_in_any_order(order: Literal["<", ">"]) -> None:
    units = make_units(np.array([1_191]), np.array([282]), np.array([2_598_919]))
    layout = "00000000000004a70000011a000000000027a807"
    assert unit_bytes(units.astype(UNIT.newbyteorder(order))).tobytes().hex() == layout
    slots = np.array([7, 1 << 20]).astype(f"{order}i4")
    assert layout_bytes(slots, SLOT).tobytes().hex() == "0000000700100000"
    pieces = np.concatenate([units, make_padding(1)])
    assert unit_bytes(pieces).tobytes().hex() == layout + "00" * 8 + "7fffffff" + "00" * 8


@pytest.mark.parametrize("order", "<>")
def test_heads_of_records_lie_big_endian_in_any_order(order: Literal["<", ">"]) -> None:
    kind = header_type(0)
    headers = np.ones(3, dtype=kind)
    target = bytearray(300)
    put_headers(target, np.array([0, 100, 200]), headers.astype(kind.newbyteorder(order)))
    assert target[100:188] == headers[:1].tobytes()


def test_unit_in_the_other_byte_order_is_told_from_others() -> None:
    places = np.array([1_191, 0, 70_000, 1 << 30, 3 << 30])  # the last begin files of the log
    units = make_units(places, np.array([282, 400, 256, 512, 65_536]), np.arange(5))
    units = np.concatenate([units.astype(UNIT), make_padding(1), np.zeros(1, dtype=UNIT)])
    lying, end = layout_bytes(units, UNIT).view(UNIT), PhysicalOffset(4 << 30)
    assert not len(find_turned(lying, end)[0])
    rows, right = find_turned(layout_bytes(units, UNIT.newbyteorder("<")).view(UNIT), end)
    assert rows.tolist() == [0, 1, 2, 3, 4]
    assert unit_bytes(right).tobytes() == unit_bytes(lying[:5]).tobytes()
    turned = Unit(PhysicalOffset(0xA7040000_00000000 - (1 << 64)), 0x1A010000, 0)
    assert turned_unit(turned) == (1_191, 282, 0)


@given(st.binary(min_size=20, max_size=100), st.integers(0, 4))
def test_unit_is_read_in_scalars_as_from_an_array(data: bytes, row: int) -> None:
    units = decode_units(data)
    row %= len(units)
    assert read_unit(memoryview(data), row * UNIT.itemsize) == unit_of(units, row)
