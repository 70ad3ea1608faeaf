"""Tests of the encoding of tags, keys and properties in columns."""

import sys
from typing import Any

import numpy as np
import pytest

from ternmq_model.columns.arrow import arrow as pa
from ternmq_model.errors import UsageError
from ternmq_model.expression_text import EXPRESSION_CHARACTERS_MAX
from ternmq_model.message import Message
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


def test_types_without_offsets_are_converted() -> None:
    texts = pa.array(["a", "b", None])
    lists = [["a", "b"], ["c"], None]
    wanted = [b"KEYS\x01a\x02", b"KEYS\x01b\x02", b""]
    for one in (texts.cast(pa.string_view()), texts.dictionary_encode()):
        assert encoded(keys=one).properties.copies() == wanted
        assert encoded(tags=one).properties.copies() == [
            each.replace(b"KEYS", b"TAGS") for each in wanted
        ]
    views = pa.DictionaryArray.from_arrays([0, 1, None], pa.array(["a", "b"], pa.string_view()))
    assert encoded(keys=views).properties.copies() == wanted
    wanted = [b"KEYS\x01a b\x02", b"KEYS\x01c\x02", b""]
    of_codes = pa.ListArray.from_arrays(
        pa.array([0, 2, 3, 3], pa.int32()), pa.array(["a", "b", "c"]).dictionary_encode()
    )
    for kind in (pa.list_view(pa.string()), pa.large_list_view(pa.string_view())):
        assert encoded(keys=pa.array(lists, kind)).properties.copies() == wanted
    assert encoded(keys=of_codes).properties.copies() == wanted
    pairs = pa.MapArray.from_arrays([0, 1], texts[:1].cast(pa.string_view()), of_codes.values[1:2])
    assert encoded(properties=pairs).properties.copies() == [b"a\x01b\x02"]


def test_columns_of_nulls_add_no_property() -> None:
    nulls = pa.nulls(3)
    chunk = encoded(tags=nulls, keys=nulls, properties=nulls, sharding_keys=nulls, queue_ids=nulls)
    assert chunk.properties.copies() == [b"", b"", b""]
    assert not chunk.errors


def from_buffers(offsets: list[int], data: bytes) -> Any:
    """Return an array of strings that pyarrow has not checked."""
    buffers = [None, pa.py_buffer(np.array(offsets, dtype=np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)


BROKEN = from_buffers([0, 1, 3], b"a\xffb")


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"tags": BROKEN}, "tags: Invalid UTF8 sequence at string index 1"),
        ({"sharding_keys": BROKEN}, "sharding_key: Invalid UTF8 sequence"),
        ({"keys": BROKEN}, "keys: Invalid UTF8 sequence"),
        ({"keys": pa.ListArray.from_arrays([0, 1, 2], BROKEN)}, "keys: Invalid UTF8 sequence"),
        ({"properties": pa.MapArray.from_arrays([0, 2], BROKEN, BROKEN)}, "Invalid UTF8 sequence"),
        (
            {"properties": pa.MapArray.from_arrays([0, 2], pa.array(["a", "b"]), BROKEN)},
            "properties: Invalid UTF8 sequence",
        ),
        ({"keys": from_buffers([0, 2, 1], b"abc")}, "keys: the offsets must ascend"),
        ({"tags": pa.array([True])}, "tags is an Arrow array of bool, must be one of strings"),
        (
            {
                "keys": pa.ListArray.from_arrays(
                    [0, 1], pa.DictionaryArray.from_arrays([0], pa.array(["a"], pa.string_view()))
                )
            },
            r"keys is an Arrow array of list<item: dictionary<values=string_view.*cannot convert",
        ),
    ],
)
def test_broken_and_other_arrays_are_refused_by_name(columns: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        encoded(**columns)


@pytest.mark.parametrize("name", ["tags", "sharding_keys"])
def test_texts_that_differ_take_few_calls(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[bytes] = []

    class CountedMessage(Message):
        def encoded_properties(self) -> bytes:
            checked.append(self.body)
            return super().encoded_properties()

    monkeypatch.setattr("ternmq_producer.columns.property_columns.Message", CountedMessage)
    texts = [f"text{number}" for number in range(2000)]
    given: dict[str, Any] = {name: [*texts[:-1], "bad\x01"]}
    legal = MessageColumns("topic", [b"x"] * 2000, **given)
    assert len(checked) == 1
    (chunk,) = legal.encoded()
    assert list(chunk.errors) == [1999]
    prefix = b"TAGS\x01" if name == "tags" else b"__SHARDINGKEY\x01"
    assert chunk.properties.copies() == [prefix + text.encode() + b"\x02" for text in texts[:-1]]

    given = {name: [text + "\x02" for text in texts]}
    illegal = MessageColumns("topic", [b"x"] * 2000, **given)
    calls: list[str] = []
    sys.setprofile(lambda frame, event, _: calls.append(event))
    try:
        (chunk,) = illegal.encoded()
    finally:
        sys.setprofile(None)
    assert len(calls) < 1000
    assert list(chunk.errors) == list(range(2000))


@pytest.mark.parametrize(
    ("tag", "is_legal"),
    [
        ("New York", True),
        ("a|b", True),
        ("a||b", False),
        (" a", False),
        ("a\x1f", False),
        ("a\u00a0", True),
        ("é" * EXPRESSION_CHARACTERS_MAX, True),
        ("é" * EXPRESSION_CHARACTERS_MAX + "a", False),
        ("\ud800", False),
    ],
)
def test_tags_in_columns_are_legal_as_those_of_messages(tag: str, *, is_legal: bool) -> None:
    chunk = encoded(tags=["first", None, tag, "", "last"])
    assert list(chunk.errors) == ([] if is_legal else [2])
    wanted = [b"TAGS\x01first\x02", b"", b"", b"TAGS\x01last\x02"]
    if is_legal:
        wanted.insert(2, Message("topic", b"", tag).encoded_properties())
    assert chunk.properties.copies() == wanted


@pytest.mark.parametrize("index", [7, -3])
def test_indices_outside_their_dictionary_are_refused(index: int) -> None:
    codes = pa.array([0, index], pa.int8())
    for values in (pa.array(["a"]), pa.array(["a"], pa.string_view())):
        broken = pa.DictionaryArray.from_arrays(codes, values, safe=False)
        for name in ("tags", "keys", "sharding_keys"):
            with pytest.raises(UsageError, match=f": Index {index} out of bounds"):
                encoded(**{name: broken})


def test_list_views_outside_their_values_are_refused() -> None:
    for offset, size in ((0, 9), (-1, 1)):
        views = pa.ListViewArray.from_arrays([0, offset], [1, size], pa.array(["a", "b"]))
        with pytest.raises(UsageError, match="keys: "):
            encoded(keys=views)


def test_broken_text_outside_the_rows_is_no_fault() -> None:
    assert encoded(keys=BROKEN[:1]).properties.copies() == [b"KEYS\x01a\x02"]


def test_rows_of_read_messages_keep_what_a_copy_keeps() -> None:
    rows = [
        [
            ("TAGS", "t"),
            ("UNIQ_KEY", "1"),
            ("color", "red"),
            ("__SHARDINGKEY", "k"),
            ("DELAY", "3"),
        ],
        [("color", "blue")],
        [("TAGS", "t")],
        [("UNIQ_KEY", "2"), ("CLUSTER", "c"), ("SPARK_ROW", "9")],
    ]
    properties = pa.array(rows, MAP)
    chunk = encoded(properties=properties)
    assert chunk.properties.copies() == [
        b"__SHARDINGKEY\x01k\x02color\x01red\x02", b"color\x01blue\x02", b"SPARK_ROW\x019\x02",
    ]  # fmt: skip
    assert "'TAGS' is reserved" in str(chunk.errors[2])
    keyed = encoded(properties=properties[:1], sharding_keys=["other"])
    assert keyed.properties.copies() == [b"__SHARDINGKEY\x01other\x02color\x01red\x02"]


def test_data_frame_is_a_batch() -> None:
    class Frame:
        columns = ("body", "tags")

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            table = pa.table({"body": ["x", "y"], "tags": ["t", None]})
            return table.__arrow_c_stream__(requested_schema)

    (chunk,) = MessageColumns("topic", Frame()).encoded()
    assert chunk.bodies.copies() == [b"x", b"y"]
    assert chunk.properties.copies() == [b"TAGS\x01t\x02", b""]
