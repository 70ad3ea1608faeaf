"""Columns of byte strings hold the same bytes as lists."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from ternmq_model.byte_column import ByteColumn, join_rows

VALUES = st.lists(st.one_of(st.binary(max_size=300), st.just(b"same")), min_size=1, max_size=40)


def columns_of(values: list[bytes]) -> list[ByteColumn]:
    """Return the column of `values` in each form."""
    padded = b"--" + b"".join(values)
    offsets = np.cumsum([2, *map(len, values)])
    return [
        ByteColumn.of(values),
        ByteColumn.listed(values),
        ByteColumn.between(np.frombuffer(padded, dtype=np.uint8), offsets),
    ]


@given(VALUES, st.data())
def test_columns_return_the_rows_of_a_list(values: list[bytes], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, len(values) - 1), max_size=9))
    begin, end = sorted((data.draw(st.integers(0, len(values))), len(values)))
    for column in columns_of(values):
        assert column.copies() == values
        assert [column.row(row) for row in range(len(column))] == values
        taken = column.take(np.array(rows, dtype=np.int64))
        assert taken.copies() == [values[row] for row in rows]
        assert column.take(slice(begin, end)).copies() == values[begin:end]


@given(VALUES, st.binary(max_size=5))
def test_joined_rows_are_those_of_all_columns(values: list[bytes], fixed: bytes) -> None:
    column = ByteColumn.of(values)
    joined = join_rows([column, ByteColumn.repeated(fixed, len(values)), column])
    assert joined.copies() == [value + fixed + value for value in values]


@given(
    st.integers(1, 4).flatmap(
        lambda count: st.lists(
            st.lists(st.sampled_from([b"", b"a", b"bc", b"def"]), min_size=count, max_size=count),
            min_size=1,
            max_size=4,
        )
    )
)
@example([[b"a", b"bc"], [b"kk", b"kk"], [b"xy", b"z"]])
def test_joined_rows_of_equal_length_may_have_parts_of_other_lengths(
    parts: list[list[bytes]],
) -> None:
    joined = join_rows([ByteColumn.of(values) for values in parts])
    assert joined.copies() == [b"".join(row) for row in zip(*parts, strict=True)]


def test_equal_rows_are_recognised() -> None:
    column = ByteColumn.of([b"abc"] * 3)
    assert (column.width, column.step) == (3, 3)
    assert column.take(np.array([2, 0])).copies() == [b"abc"] * 2
    assert ByteColumn.of([]).copies() == []
