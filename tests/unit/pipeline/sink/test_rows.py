"""Rows become messages, without Spark."""

import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq_model.errors import IllegalMessage
from ternmq_model.message import Message
from ternmq_pipeline.sink.columns import ColumnLayout, column_layout
from ternmq_pipeline.sink.identity import BatchIdentity, PartitionAttempt
from ternmq_pipeline.sink.rows import RowColumns, RowReader
from ternmq_producer.columns.message_columns import MessageColumns

NOW_MS = 1_700_000_000_000
DAY_MS = 24 * 3600 * 1000
PART = PartitionAttempt(BatchIdentity("query", 4), 2, "a1")
OWN = {
    "SPARK_QUERY": "query",
    "SPARK_BATCH": "4",
    "SPARK_PARTITION": "2",
    "SPARK_ATTEMPT": "a1",
}
TYPES: dict[str, tuple[Any, str]] = {
    "body": (pa.binary(), "binary"),
    "topic": (pa.string(), "string"),
    "tags": (pa.string(), "string"),
    "keys": (pa.list_(pa.string()), "array<string>"),
    "properties": (pa.map_(pa.string(), pa.string()), "map<string,string>"),
    "shardingKey": (pa.string(), "string"),
    "delay": (pa.int64(), "bigint"),
}


def messages_of(
    columns: dict[str, list[Any]],
    *,
    topic: str | None = "flights",
    types: dict[str, tuple[Any, str]] | None = None,
    first_row: int = 0,
) -> list[Message]:
    """Return the messages of rows with these columns."""
    reader, batch = rows_of(columns, topic=topic, types=types)
    return reader.messages(batch, first_row=first_row, now_ms=NOW_MS)


def rows_of(
    columns: dict[str, list[Any]],
    *,
    topic: str | None = "flights",
    types: dict[str, tuple[Any, str]] | None = None,
) -> tuple[RowReader, pa.RecordBatch]:
    """Return rows with these columns, and a reader of them."""
    known = TYPES | (types or {})
    arrays: list[Any] = [pa.array(values, known[name][0]) for name, values in columns.items()]
    batch = pa.record_batch(arrays, names=list(columns))
    layout = column_layout([(name, known[name][1]) for name in columns], topic=topic)
    return RowReader(layout, PART), batch


def test_body_alone_is_a_message() -> None:
    (message,) = messages_of({"body": [b"x"]})
    assert message == Message("flights", b"x", properties=OWN | {"SPARK_ROW": "0"})
    message.encoded_properties()


def test_every_column_goes_into_its_place() -> None:
    (message,) = messages_of(
        {
            "body": [b"x"],
            "topic": ["other"],
            "tags": ["late"],
            "keys": [["a", "b"]],
            "properties": [[("carrier", "UA")]],
            "shardingKey": ["EWR"],
            "delay": [1500],
        },
        topic=None,
        first_row=9,
    )
    assert message == Message(
        "other",
        b"x",
        tags="late",
        keys=["a", "b"],
        properties={"carrier": "UA"} | OWN | {"SPARK_ROW": "9"},
        sharding_key="EWR",
        deliver_after_ms=1500,
    )
    assert list(message.properties) == ["carrier", *OWN, "SPARK_ROW"]


def test_nulls_and_empty_values_count_as_absent() -> None:
    empty: dict[str, Any] = {
        "tags": "",
        "keys": [],
        "properties": [],
        "shardingKey": "",
        "delay": 0,
    }
    columns = {name: [None, value] for name, value in empty.items()}
    first, second = messages_of({"body": [b"", b""], **columns})
    for row, message in enumerate((first, second)):
        assert message == Message("flights", b"", properties=OWN | {"SPARK_ROW": str(row)})


def test_text_is_sent_as_utf_8() -> None:
    for arrow in (pa.string(), pa.large_string()):
        (message,) = messages_of({"body": ["Zürich"]}, types={"body": (arrow, "string")})
        assert message.body == "Zürich".encode()


def test_large_columns_of_arrow_are_read_too() -> None:
    types = {
        "body": (pa.large_binary(), "binary"),
        "keys": (pa.large_list(pa.large_string()), "array<string>"),
    }
    (message,) = messages_of({"body": [b"x"], "keys": [["k"]]}, types=types)
    assert (message.body, list(message.keys)) == (b"x", ["k"])


def test_keys_in_one_string_are_split_at_blanks() -> None:
    first, second = messages_of(
        {"body": [b"x", b"y"], "keys": ["a  b ", None]}, types={"keys": (pa.string(), "string")}
    )
    assert list(first.keys) == ["a", "b"]
    assert list(second.keys) == []


def test_sliced_rows_are_read_from_their_slice() -> None:
    batch = pa.record_batch([pa.array([b"a", b"b", b"c"], pa.binary())], names=["body"])
    reader = RowReader(ColumnLayout(body=0, topic_for_all="t"), PART)
    told = reader.messages(batch.slice(1, 2), first_row=1, now_ms=NOW_MS)
    assert [(message.body, message.properties["SPARK_ROW"]) for message in told] == [
        (b"b", "1"),
        (b"c", "2"),
    ]


def test_topic_option_precedes_the_column() -> None:
    told = messages_of({"body": [b"x", b"y"], "topic": ["a", None]}, topic="all")
    assert [message.topic for message in told] == ["all", "all"]


def test_time_is_kept_as_a_time_unless_past() -> None:
    times = [NOW_MS * 1000 + 1, (NOW_MS - 1) * 1000, None, (NOW_MS + 3 * DAY_MS) * 1000]
    told = messages_of(
        {"body": [b"x"] * 4, "delay": times},
        types={"delay": (pa.timestamp("us", tz="UTC"), "timestamp")},
    )
    assert [message.deliver_at_ms for message in told] == [NOW_MS + 1, 0, 0, NOW_MS + 3 * DAY_MS]
    assert not any(message.deliver_after_ms for message in told)


@pytest.mark.parametrize(
    ("columns", "topic", "told"),
    [
        ({"body": [b"x", None]}, "t", "row 11 of partition 2 of batch 4: column 'body': is null"),
        ({"body": [b"x", b""], "topic": ["a", None]}, None, "row 11 .*column 'topic': is null"),
        (
            {"body": [b"x", b""], "topic": ["a", "white space"]},
            None,
            "row 11 .*column 'topic': topic='white space'",
        ),
        (
            {"body": [b"x", b""], "keys": [["k"], ["a", None]]},
            "t",
            "row 11 .*column 'keys': its key number 1 is null",
        ),
        ({"body": [b"x"], "topic": ["%RETRY%g"]}, None, "row 10 .*only brokers"),
        ({"body": [b"x"], "delay": [-1]}, "t", "row 10 .*column 'delay': is -1"),
        ({"body": [b"x"], "delay": [3 * DAY_MS + 1]}, "t", "row 10 .*column 'delay': .*3 days"),
        (
            {"body": [b"x"], "properties": [[("a", None)]]},
            "t",
            "row 10 .*column 'properties': property 'a' is null",
        ),
        ({"body": [b"x"], "properties": [[("TAGS", "a")]]}, "t", "property 'TAGS' is reserved"),
        ({"body": [b"x"], "properties": [[("SPARK_ROW", "1")]]}, "t", "property 'SPARK_ROW'"),
        (
            {"body": [b"x"], "properties": [[("CHECK_IMMUNITY_TIME_IN_SECONDS", "1")]]},
            "t",
            "property 'CHECK_IMMUNITY_TIME_IN_SECONDS'",
        ),
    ],
)
def test_illegal_value_names_row_and_column(
    columns: dict[str, list[Any]], topic: str | None, told: str
) -> None:
    with pytest.raises(IllegalMessage, match=told):
        messages_of(columns, topic=topic, first_row=10)


def test_time_too_far_ahead_names_its_row() -> None:
    with pytest.raises(IllegalMessage, match=r"row 0 .*'delay': is 259200001 ms ahead"):
        messages_of(
            {"body": [b"x"], "delay": [(NOW_MS + 3 * DAY_MS + 1) * 1000]},
            types={"delay": (pa.timestamp("us", tz="UTC"), "timestamp")},
        )


def test_message_read_from_a_topic_can_be_written_unchanged() -> None:
    read = {
        "UNIQ_KEY": "7F000001",
        "KEYS": "a b",
        "TAGS": "late",
        "WAIT": "true",
        "__SHARDINGKEY": "EWR",
        "__transactionId__": "7F000001",
        "TIMER_DELIVER_MS": "1",
        "CLUSTER": "c",
        "SPARK_QUERY": "the one before",
        "carrier": "UA",
    }
    (message,) = messages_of({"body": [b"x"], "properties": [list(read.items())]})
    assert message.properties == {"carrier": "UA"} | OWN | {"SPARK_ROW": "0"}
    assert message.sharding_key == "EWR"
    message.encoded_properties()


def test_sharding_key_column_precedes_the_property_read() -> None:
    pairs = [("UNIQ_KEY", "1"), ("__SHARDINGKEY", "old")]
    (message,) = messages_of({"body": [b"x"], "properties": [pairs], "shardingKey": ["new"]})
    assert message.sharding_key == "new"


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"body": [b"x", bytes((4 << 20) + 1)]}, "'body': body has 4194305 bytes, at most 4194304"),
        ({"tags": ["ok", "a||b"]}, r"'tags': tag 'a\|\|b'"),
        ({"tags": ["ok", "a\x01"]}, "'tags': 0x01"),
        ({"keys": [["ok"], ["a b"]]}, "'keys': key 'a b': a blank"),
        ({"keys": [["ok"], ["k", ""]]}, "'keys': property 'keys'='': neither may be empty"),
        ({"keys": [["ok"], ["a b" * 900]]}, "'keys': key '[ab ]{100}…': a blank"),
        ({"properties": [[("a", "b")], [("a", "")]]}, "'properties': property 'a'=''"),
        ({"properties": [[], [("n" * 900, "")]]}, "'properties': property 'n{100}…'=''"),
        ({"properties": [[], [("UNIQ_KEY", "1"), ("a", None)]]}, "'properties': .*'a'=None"),
        ({"shardingKey": ["ok", "\x01"]}, "'shardingKey': 0x01 and 0x02"),
        (
            {"shardingKey": ["ok", "x" * 32_000], "tags": ["a", "b"]},
            "'shardingKey': with the row's other columns 3....+ bytes .*; 31743 always fit",
        ),
    ],
)
def test_row_that_makes_an_illegal_message_is_named_with_its_column(
    columns: dict[str, list[Any]], told: str
) -> None:
    messages = messages_of({"body": [b"x", b"y"], **columns}, first_row=5)
    error = RowReader(ColumnLayout(body=0), PART).name_illegal(messages, first_row=5)
    assert error is not None
    assert re.search(f"^row 6 of partition 2 of batch 4: column {told}", str(error))
    assert len(str(error)) < 400


def test_legal_messages_have_no_error() -> None:
    messages = messages_of({"body": [b"x"]})
    assert RowReader(ColumnLayout(body=0), PART).name_illegal(messages, first_row=0) is None


TEXTS = st.text("ab é", max_size=3)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "body": st.binary(max_size=5),
            "topic": st.just("flights"),
            "tags": st.sampled_from([None, "", "late", "early"]),
            "keys": st.none() | st.lists(st.sampled_from(["a", "bé", "c"]), max_size=3),
            "properties": st.none()
            | st.dictionaries(st.sampled_from(["x", "y", "zé"]), st.text("01é", min_size=1)).map(
                lambda pairs: list(pairs.items())
            ),
            "shardingKey": st.sampled_from([None, "", "EWR", "JFK"]),
            "delay": st.sampled_from([None, 0]),
        }
    ),
    min_size=1,
    max_size=6,
)


@given(ROWS, st.sets(st.sampled_from(list(TYPES)[1:])), st.integers(0, 5), st.integers(0, 10**6))
def test_columns_are_the_same_messages(
    rows: list[dict[str, Any]], absent: set[str], skipped: int, first_row: int
) -> None:
    names = [name for name in TYPES if name not in absent]
    topic = "flights" if "topic" in absent else None
    reader, whole = rows_of({name: [row[name] for row in rows] for name in names}, topic=topic)
    batch = whole.slice(min(skipped, len(rows) - 1))
    messages = reader.messages(batch, first_row=first_row, now_ms=NOW_MS)
    columns = reader.columns(batch, first_row=first_row)
    assert columns is not None
    assert encoded_rows(columns) == [
        (message.body, message.encoded_properties()) for message in messages
    ]


@given(st.lists(TEXTS | st.none(), min_size=1, max_size=5))
def test_columns_have_the_keys_of_a_text(texts: list[str | None]) -> None:
    types: dict[str, tuple[Any, str]] = {"keys": (pa.string(), "string")}
    reader, batch = rows_of({"body": [b""] * len(texts), "keys": texts}, types=types)
    columns = reader.columns(batch, first_row=0)
    assert columns is not None
    assert encoded_rows(columns) == [
        (message.body, message.encoded_properties())
        for message in reader.messages(batch, first_row=0, now_ms=NOW_MS)
    ]


@pytest.mark.parametrize(
    "columns",
    [
        {"body": [b"a", None]},
        {"body": [b"a", b"b"], "topic": ["flights", "other"]},
        {"body": [b"a", b"b"], "topic": ["flights", None]},
        {"body": [b"a", b"b"], "topic": ["a b", "a b"]},
        {"body": [b"a", b"b"], "keys": [["k"], [None]]},
        {"body": [b"a", b"b"], "delay": [0, 5]},
        {"body": [b"a", b"b"], "properties": [[], [("x", None)]]},
        {"body": [b"a", b"b"], "properties": [[("SPARK_ROW", "1")], []]},
        {"body": [b"a", b"b"], "properties": [[("UNIQ_KEY", "1")], []]},
    ],
)
def test_rows_that_must_be_looked_at_are_no_columns(columns: dict[str, list[Any]]) -> None:
    reader, batch = rows_of(columns, topic=None if "topic" in columns else "flights")
    assert reader.columns(batch, first_row=0) is None


def encoded_rows(columns: RowColumns) -> list[tuple[bytes, bytes]]:
    """Return body and properties of each message as they are sent."""
    topic, bodies, tags, keys, properties, sharding_keys = columns
    (encoded,) = MessageColumns(
        topic,
        bodies,
        tags=tags,
        keys=keys,
        properties=properties,
        sharding_keys=sharding_keys,
    ).encoded()
    assert not encoded.errors
    return [(encoded.bodies.row(at), encoded.properties.row(at)) for at in range(len(encoded))]
