import pytest

from ternmq_model.errors import UsageError
from ternmq_pipeline.jobs.message_columns import (
    all_of,
    between,
    message_columns,
    origin_topic,
    text,
)


def test_body_alone_is_enough() -> None:
    assert message_columns({"x": "int", "body": "string"}) == ["cast(body AS binary) AS body"]


def test_existing_message_columns_are_selected() -> None:
    fields = {
        "topic": "string",
        "body": "binary",
        "tags": "string",
        "keys": "array<string>",
        "properties": "map<string,string>",
    }
    body, tags, keys, properties, sharding = message_columns(fields)
    assert (body, tags, keys) == ("cast(body AS binary) AS body", "tags", "keys")
    for name in ("UNIQ_KEY", "TRAN_MSG", "SPARK_ROW", "RETRY_TOPIC", "DLQ_ORIGIN_TOPIC"):
        assert f"'{name}'" in properties
    assert "NOT startswith(name, 'TIMER_')" in properties
    assert sharding == "properties['__SHARDINGKEY'] AS shardingKey"


def test_column_precedes_the_property() -> None:
    fields = {"body": "binary", "shardingKey": "string", "properties": "map<string,string>"}
    assert message_columns(fields)[-1] == "shardingKey"


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({}, "no column 'body'"),
        ({"value": "binary"}, "the columns are value"),
        ({"body": "int"}, "'body' has the type int"),
        ({"body": "binary", "tags": "int"}, "'tags'"),
        ({"body": "binary", "keys": "array<int>"}, "'keys'"),
        ({"body": "binary", "properties": "string"}, "'properties'"),
        ({"body": "binary", "shardingKey": "bigint"}, "'shardingKey'"),
    ],
)
def test_rows_that_cannot_be_sent_are_refused_by_column(fields: dict[str, str], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        message_columns(fields)


def test_first_topic_of_a_dead_letter_is_read_in_both_forms() -> None:
    first, second = origin_topic().index("DLQ_ORIGIN_TOPIC"), origin_topic().index("RETRY_TOPIC")
    assert first < second


def test_time_conditions_are_half_open() -> None:
    assert between(None, None) == []
    assert between(5, 9) == [
        "storeTimestamp >= timestamp_millis(5)",
        "storeTimestamp < timestamp_millis(9)",
    ]
    assert all_of([]) == "true"
    assert all_of(["a OR b", "c"]) == "(a OR b) AND (c)"


def test_truncated_text_ends_where_it_should() -> None:
    assert text("a'b\\") == "'a\\'b\\\\'"
