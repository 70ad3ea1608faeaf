"""Which columns there are."""

from typing import Any

import pytest

from ternmq_model.columns.column_names import COLUMNS, check_columns
from ternmq_model.errors import UsageError


def test_empty_selection_means_every_column() -> None:
    assert check_columns(()) == COLUMNS
    assert check_columns(["body", "topic"]) == ("body", "topic")


def test_any_iterable_of_names_is_a_selection() -> None:
    assert check_columns({"body"}) == ("body",)
    assert check_columns(iter(["body", "topic"])) == ("body", "topic")


@pytest.mark.parametrize("columns", [None, "body"])
def test_selection_that_is_no_list_is_refused(columns: Any) -> None:
    with pytest.raises(UsageError, match=f"columns={columns!r} must be a list of names"):
        check_columns(columns)


@pytest.mark.parametrize(("columns", "text"), [(["bodyy"], "'bodyy'"), (["tags", "tags"], "twice")])
def test_missing_column_is_refused_by_name(columns: list[str], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        check_columns(columns)
