import pytest

from ternmq_model.errors import UsageError
from ternmq_pipeline.options.source_options import View
from ternmq_pipeline.source.schema import (
    KAFKA_COLUMNS,
    TERNMQ_COLUMNS,
    columns_of,
    ddl_of,
    selected_columns,
)


def test_views_have_their_columns() -> None:
    assert [column.name for column in columns_of(View.TERNMQ)][:4] == [
        *("topic", "brokerName", "queueId", "queueOffset")
    ]
    assert columns_of(View.KAFKA) == KAFKA_COLUMNS
    assert columns_of(View.KAFKA, include_headers=True)[-1].name == "headers"


def test_schema_is_given_as_ddl() -> None:
    assert ddl_of(KAFKA_COLUMNS[:2]) == "`key` binary, `value` binary"


def test_narrower_schema_keeps_its_order() -> None:
    found = selected_columns(TERNMQ_COLUMNS, [("body", "binary"), ("topic", "string")])
    assert [column.name for column in found] == ["body", "topic"]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ([("bdy", "binary")], "no column 'bdy'; did you mean 'body'?"),
        ([("xyz", "binary")], "there are topic, brokerName"),
        ([("Body", "binary")], "did you mean 'body'?"),
        ([("body", "string")], "'body' is of type binary, not string"),
        ([("body", "binary"), ("body", "binary")], "'body' is there twice"),
        ([], "names no column"),
    ],
)
def test_another_schema_is_refused_by_column(asked: list[tuple[str, str]], told: str) -> None:
    with pytest.raises(UsageError) as caught:
        selected_columns(TERNMQ_COLUMNS, asked)
    assert told in str(caught.value)
