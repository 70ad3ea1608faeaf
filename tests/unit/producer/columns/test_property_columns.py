"""Tests of the encoding of tags, keys and properties in columns."""

from typing import Any

import numpy as np
import pytest

from ternmq_model.columns.arrow import arrow as pa
from ternmq_producer.columns.message_columns import EncodedColumns, MessageColumns

MAP = pa.map_(pa.string(), pa.string())


def encoded(**columns: Any) -> EncodedColumns:
    """Return messages with bodies of one byte and other columns."""
    count = len(next(iter(columns.values())))
    (chunk,) = MessageColumns("topic", [b"x"] * count, **columns).encoded()
    return chunk


@pytest.mark.parametrize(
    ("first", "last"),
    [("w\x02DELAY\x013\x02UNIQ_KEY\x01forged", "good"), ("", "good"), (None, "good"), ("v", "v")],
)
def test_row_with_a_repeated_property_is_refused(first: str | None, last: str) -> None:
    names = pa.array(["a", "n", "n", "n", "b"])
    values = pa.array(["1", first, last, "2", "3"])
    chunk = encoded(properties=pa.MapArray.from_arrays([0, 1, 3, 5], names, values))
    assert chunk.positions.tolist() == [0, 2]
    assert chunk.properties.copies() == [b"a\x011\x02", b"n\x012\x02b\x013\x02"]
    assert str(chunk.errors[1]) == "property 'n' occurs twice: a message has a name once"


def test_repeated_property_is_found_among_many_names() -> None:
    rows = [[(f"name {number}", "v") for number in range(60)] for _ in range(3)]
    rows[1].append(rows[1][7])
    chunk = encoded(properties=pa.array(rows, MAP))
    assert list(chunk.errors) == [1]
    assert "'name 7' occurs twice" in str(chunk.errors[1])


def test_values_outside_the_rows_of_an_array_are_not_looked_at() -> None:
    rows = [[("", "bad")], [("a", "1")], None, [], [("b", "2"), ("c", "3")], [("TAGS", "bad")]]
    wanted = [b"a\x011\x02", b"", b"", b"b\x012\x02c\x013\x02"]
    array = pa.array(rows, MAP)
    assert encoded(properties=array[1:5]).properties.copies() == wanted
    whole = pa.MapArray.from_arrays(
        pa.array([0, 1, 2, 3, 3, 5, 6], pa.int32()),
        pa.array(["", "a", "hidden", "b", "c", "TAGS"]),
        pa.array(["x", "1", "", "2", "3", "x"]),
    )
    nulls = pa.py_buffer(np.packbits([1, 1, 0, 1, 1, 1], bitorder="little"))
    with_hidden = pa.Array.from_buffers(
        MAP,
        6,
        [nulls, whole.buffers()[1]],
        children=[
            pa.StructArray.from_arrays(
                [whole.keys, whole.items], fields=[MAP.key_field, MAP.item_field]
            )
        ],
    )
    assert encoded(properties=with_hidden[1:5]).properties.copies() == wanted
    keys = pa.array([["b d"], ["a"], None, ["b", "c"], [""]])
    assert encoded(keys=keys[1:4]).properties.copies() == [
        b"KEYS\x01a\x02",
        b"",
        b"KEYS\x01b c\x02",
    ]
