"""The names by which a row of a batch is known again."""

import pytest

from ternmq_client.admin.redrive import SPENT
from ternmq_model.errors import UsageError
from ternmq_model.properties import BROKERS_OWN
from ternmq_pipeline.sink.identity import (
    NOT_COPIED,
    RESERVED_PROPERTIES,
    BatchIdentity,
    PartitionAttempt,
)


def test_batch_is_staged_under_its_query_and_number() -> None:
    assert BatchIdentity("0b6f-22", 7).staged_for == "0b6f-22/7"


def test_part_records_where_its_rows_come_from() -> None:
    part = PartitionAttempt(BatchIdentity("q", 3), 5, "c0ffee00")
    assert part.properties() == {
        "SPARK_QUERY": "q",
        "SPARK_BATCH": "3",
        "SPARK_PARTITION": "5",
        "SPARK_ATTEMPT": "c0ffee00",
    }
    assert str(part) == "partition 5 of batch 3"


@pytest.mark.parametrize(
    ("query", "batch"), [("", 0), ("a b", 0), ("a/b", 0), ("ä", 0), ("a\n", 0), ("a", -1)]
)
def test_ambiguous_identity_is_refused(query: str, batch: int) -> None:
    with pytest.raises(UsageError):
        BatchIdentity(query, batch)


def test_properties_of_the_first_sending_are_reserved() -> None:
    assert {
        "UNIQ_KEY",
        "TRAN_MSG",
        "__SHARDINGKEY",
        "SPARK_ROW",
        "DELAY",
        "TAGS",
    } <= RESERVED_PROPERTIES
    assert {"__transactionId__", "RECONSUME_TIME", "CHECK_IMMUNITY_TIME_IN_SECONDS"} <= NOT_COPIED


def test_properties_of_a_dead_letter_are_reserved() -> None:
    assert SPENT <= NOT_COPIED
    assert BROKERS_OWN <= NOT_COPIED
