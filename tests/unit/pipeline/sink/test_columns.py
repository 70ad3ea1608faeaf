"""Which columns the sink takes, without Spark."""

import pytest

from ternmq_model.errors import UsageError
from ternmq_pipeline.sink.columns import TYPES, ColumnLayout, column_layout

ALL = [
    ("delay", "bigint"),
    ("shardingKey", "string"),
    ("properties", "map<string,string>"),
    ("keys", "array<string>"),
    ("tags", "string"),
    ("topic", "string"),
    ("body", "binary"),
]


def test_every_column_is_found_in_any_order() -> None:
    layout = column_layout(ALL, topic=None)
    assert layout == ColumnLayout(
        body=6, topic=5, tags=4, keys=3, properties=2, sharding_key=1, delay=0
    )


def test_column_names_are_case_insensitive() -> None:
    assert (
        column_layout([("BODY", "binary"), ("shardingkey", "string")], topic="t").sharding_key == 1
    )


@pytest.mark.parametrize(
    "body", ["binary", "string", "varchar(9)", "char(3)", "string collate UTF8_LCASE"]
)
def test_body_may_be_any_text_or_bytes(body: str) -> None:
    assert column_layout([("body", body)], topic="t").body == 0


def test_keys_may_be_one_string() -> None:
    assert column_layout([("body", "binary"), ("keys", "string")], topic="t").keys_are_text
    assert not column_layout(
        [("body", "binary"), ("keys", "array<varchar(3)>")], topic="t"
    ).keys_are_text


@pytest.mark.parametrize("name", ["tinyint", "smallint", "int", "bigint"])
def test_delay_may_be_a_whole_number(name: str) -> None:
    assert not column_layout([("body", "binary"), ("delay", name)], topic="t").delay_is_time


def test_delay_may_be_a_time() -> None:
    assert column_layout([("body", "binary"), ("delay", "timestamp")], topic="t").delay_is_time


def test_column_of_nulls_alone_is_ignored() -> None:
    layout = column_layout([("body", "binary"), ("tags", "void"), ("topic", "void")], topic="t")
    assert layout.tags is None
    assert layout.topic is None


def test_option_precedes_the_column() -> None:
    layout = column_layout([("body", "binary"), ("topic", "string")], topic="all")
    assert layout.topic_for_all == "all"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ([("body", "binary"), ("value", "binary")], "column 'value': .* did you mean 'body'"),
        ([("body", "binary"), ("key", "string")], "column 'key': .* did you mean 'keys'"),
        ([("body", "binary"), ("tag", "string")], "column 'tag': .* did you mean 'tags'"),
        ([("body", "binary"), ("colour", "string")], "column 'colour': .*; its columns are body"),
        ([("body", "binary"), ("Body", "binary")], "column 'body' is there twice"),
        ([("tags", "string")], "no column 'body'"),
        ([("body", "void")], "column 'body' has the type void"),
        ([("body", "int")], "column 'body' has the type int"),
        ([("body", "binary"), ("keys", "array<int>")], "column 'keys'"),
        ([("body", "binary"), ("delay", "double")], "column 'delay'"),
        ([("body", "binary"), ("delay", "timestamp_ntz")], "column 'delay'"),
        ([("body", "binary"), ("properties", "map<string,int>")], "column 'properties'"),
        ([("body", "binary"), ("tags", "array<string>")], "column 'tags'"),
    ],
)
def test_unwritable_column_is_named(fields: list[tuple[str, str]], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        column_layout(fields, topic="t")


def test_every_row_must_have_a_topic() -> None:
    with pytest.raises(UsageError, match="neither an option 'topic' nor a column 'topic'"):
        column_layout([("body", "binary")], topic=None)
    with pytest.raises(UsageError, match="'topic'"):
        column_layout([("body", "binary"), ("topic", "void")], topic=None)


def test_unknown_column_error_lists_the_known_ones() -> None:
    with pytest.raises(UsageError) as caught:
        column_layout([("body", "binary"), ("key", "string")], topic="t")
    assert all(name in str(caught.value) for name in TYPES)
