"""How what is staged is named and told."""

import pytest

from ternmq_client.admin.open_transactions import OpenBatch
from ternmq_console.transaction import losses, name_of, row_of


def batch(staged_for: str, left_ms: int | None = 3_000_000) -> OpenBatch:
    return OpenBatch("broker-a", staged_for, "g", "t", 5, 600_000, 200_000, left_ms)


@pytest.mark.parametrize(
    ("staged_for", "query", "number"),
    [
        ("q/7", "q", 7),
        ("a/b/7", "a/b", 7),
        ("orders/x", "orders/x", None),
        ("q/007", "q/007", None),
        ("q/²", "q/²", None),
        ("", None, None),
    ],
)
def test_query_and_batch_of_a_row_are_what_finds_it_again(
    staged_for: str, query: str | None, number: int | None
) -> None:
    row = row_of(batch(staged_for))
    assert (row["query"], row["batch"]) == (query, number)
    assert name_of(query or "", number) == staged_for


def test_age_and_deadline_are_told_for_people_and_programs() -> None:
    row = row_of(batch("q/7"))
    assert (row["age"], row["rolled_back_in"]) == ("0:10:00", "0:50:00")
    assert (row["oldest_ms"], row["left_ms"], row["in_use"]) == (600_000, 3_000_000, False)
    assert row_of(batch("", None))["rolled_back_in"] is None


def test_question_names_rows_batch_topic_and_broker() -> None:
    (line,) = losses([batch("q/7")])
    assert line.startswith("broker-a: 5 of q/7 for topic t, staged 0:10:00 ago")
