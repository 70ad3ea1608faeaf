"""What a task does, with toys for Spark and brokers."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from ternmq_model.errors import IllegalMessage, UsageError, refusal
from ternmq_model.response_code import ResponseCode
from ternmq_model.transaction import TransactionState
from ternmq_pipeline.options.sink_options import WriteOptions
from ternmq_pipeline.sink import staging
from ternmq_pipeline.sink.columns import ColumnLayout
from ternmq_pipeline.sink.commit_message import StagedPartition
from ternmq_pipeline.sink.identity import BatchIdentity, PartitionAttempt
from ternmq_pipeline.sink.rows import RowReader
from ternmq_pipeline.sink.staging import join, roll_back, stage_partition
from ternmq_producer.staging import StagedMessages, StageFailed
from tests.support.toy_stager import ToyStager

PART = PartitionAttempt(BatchIdentity("query", 4), 2, "a1")
OPTIONS = WriteOptions(nameservers=("nowhere:1",), topic="flights", staging_timeout_s=77)


class StoppedClock:
    """Says always the same."""

    def monotonic_ms(self) -> int:
        return 5

    def wall_ms(self) -> int:
        return 1_700_000_000_000


def rows(*bodies: bytes | None) -> pa.RecordBatch:
    """Return a batch with one column."""
    return pa.record_batch([pa.array(bodies, pa.binary())], names=["body"])


def stage(stager: ToyStager, batches: Iterator[pa.RecordBatch]) -> StagedPartition:
    """Stage `batches` as a task does."""
    reader = RowReader(ColumnLayout(body=0, topic_for_all="flights"), PART)
    return stage_partition(batches, reader, OPTIONS, open_stager=stager, clock=StoppedClock())


def test_all_rows_are_staged_and_none_is_visible() -> None:
    stager = ToyStager()
    part = stage(stager, iter([rows(b"a", b"b"), rows(), rows(b"c")]))
    assert stager.bodies(TransactionState.OPEN) == [b"a", b"b", b"c"]
    assert [message.properties["SPARK_ROW"] for message in stager.messages] == ["0", "1", "2"]
    assert [one.transaction for one in part.staged] == [0, 1, 2]
    assert (part.part, part.group, part.immunity_s) == (PART, "ternmq-spark", 77)
    assert part.began_at_ms == 1_700_000_000_000
    assert stager.staged_for == {("query/4", 77)}


@pytest.mark.parametrize("batches", [[], [rows()]])
def test_partition_without_rows_asks_no_broker(batches: list[pa.RecordBatch]) -> None:
    stager = ToyStager()
    assert len(stage(stager, iter(batches)).staged) == 0
    assert stager.opened == 0


def test_large_batches_are_staged_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "CHUNK_ROWS", 2)
    stager = ToyStager()
    part = stage(stager, iter([rows(*[b"%d" % row for row in range(7)])]))
    assert [one.transaction for one in part.staged] == list(range(7))
    assert [message.properties["SPARK_ROW"] for message in stager.messages] == list("0123456")


def test_failing_task_rolls_back_what_it_staged() -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield rows(b"a", b"b")
        raise ValueError("a function of the user's failed")

    stager = ToyStager()
    with pytest.raises(ValueError, match="of the user's"):
        stage(stager, failing())
    assert stager.bodies(TransactionState.ROLLED_BACK) == [b"a", b"b"]


def test_rows_a_broker_took_before_failing_are_rolled_back() -> None:
    stager = ToyStager()
    stager.stage_fails_after = 3
    with pytest.raises(StageFailed):
        stage(stager, iter([rows(b"a", b"b"), rows(b"c", b"d")]))
    assert stager.bodies(TransactionState.ROLLED_BACK) == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    ("code", "topic_for_all", "told"),
    [
        (
            ResponseCode.NO_PERMISSION,
            None,
            "row 3 of partition 2 of batch 4: column 'topic': b: no",
        ),
        (ResponseCode.TOPIC_NOT_EXIST, None, "row 3 of partition 2 of batch 4: column 'topic': b"),
        (ResponseCode.NO_PERMISSION, "flights", "option 'topic': b: no"),
        (ResponseCode.MESSAGE_ILLEGAL, "flights", "row 3 of partition 2 of batch 4: b: no"),
    ],
)
def test_row_that_its_broker_refuses_is_named(
    code: int, topic_for_all: str | None, told: str
) -> None:
    stager = ToyStager()
    stager.stage_fails_after = 3
    stager.stage_fails_with = refusal(code, "no", "b")
    reader = RowReader(ColumnLayout(body=0, topic=1, topic_for_all=topic_for_all), PART)
    topics = pa.array(["flights", "flights"])
    batches = [
        pa.record_batch([pa.array(bodies, pa.binary()), topics], names=["body", "topic"])
        for bodies in ([b"a", b"b"], [b"c", b"d"])
    ]
    with pytest.raises(UsageError, match=f"^{told}"):
        stage_partition(batches, reader, OPTIONS, open_stager=stager, clock=StoppedClock())
    assert stager.bodies(TransactionState.ROLLED_BACK) == [b"a", b"b", b"c"]


def test_illegal_row_is_named_and_the_others_are_rolled_back() -> None:
    stager = ToyStager()
    with pytest.raises(IllegalMessage, match="row 2 of partition 2 of batch 4: column 'body'"):
        stage(stager, iter([rows(b"a", b"b"), rows(None)]))
    assert stager.bodies(TransactionState.ROLLED_BACK) == [b"a", b"b"]


def test_oversized_message_is_named_by_its_row() -> None:
    stager = ToyStager()
    with pytest.raises(IllegalMessage, match=r"row 1 of partition 2 of batch 4: .*at most 4194304"):
        stage(stager, iter([rows(b"a", bytes((4 << 20) + 1))]))


def test_absent_brokers_do_not_hide_why_a_task_failed(caplog: pytest.LogCaptureFixture) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield rows(b"a")
        stager.is_away = True
        raise ValueError("a function of the user's failed")

    stager = ToyStager()
    with pytest.raises(ValueError, match="of the user's"):
        stage(stager, failing())
    assert stager.bodies(TransactionState.OPEN) == [b"a"]
    (told,) = [record.getMessage() for record in caplog.records]
    assert "command='ternmq transaction rollback --query query --batch 4' rows=1" in told


def test_empty_roll_back_asks_no_broker() -> None:
    stager = ToyStager()
    stager.is_away = True
    roll_back(stager, StagedMessages(), BatchIdentity("query", 4))


@pytest.mark.parametrize("count", range(6))
def test_parts_are_joined_in_order(count: int) -> None:
    stager = ToyStager()
    parts = [stage(stager, iter([rows(b"x", b"y")])).staged for _ in range(count)]
    assert [one.transaction for one in join(parts)] == list(range(2 * count))
