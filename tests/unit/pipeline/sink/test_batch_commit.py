"""What a driver does, with a toy for brokers."""

from collections.abc import Sequence

import pytest

from ternmq_client.retry_timeout import RETRY_TIMEOUT_S
from ternmq_model.errors import Unreachable
from ternmq_model.message import Message
from ternmq_model.transaction import STAGED_QUIET_MS, TransactionState
from ternmq_pipeline.sink.batch_commit import (
    BatchHalfCommitted,
    BatchNotCommitted,
    abort_parts,
    check_parts,
    commit_parts,
    margin_s,
)
from ternmq_pipeline.sink.commit_message import StagedPartition
from ternmq_pipeline.sink.identity import BatchIdentity, PartitionAttempt
from ternmq_producer.staging import StagedMessages
from tests.support.toy_stager import ToyStager

BATCH = BatchIdentity("query", 4)
BEGAN_MS = 1_700_000_000_000
IMMUNITY_S = 100


class SetClock:
    """Says what it was told to."""

    def __init__(self, after_s: float = 1, step_s: float = 0) -> None:
        self.after_s = after_s
        self.step_s = step_s
        self.passed_s = 0.0

    def monotonic_ms(self) -> int:
        self.passed_s += self.step_s
        return round(self.passed_s * 1000)

    def wall_ms(self) -> int:
        return BEGAN_MS + round(self.after_s * 1000)


def part_of(stager: ToyStager, partition: int, *bodies: bytes) -> StagedPartition:
    """Stage `bodies` as a task does."""
    part = PartitionAttempt(BATCH, partition, "a1")
    staged = StagedMessages()
    if bodies:
        messages = [Message("t", body) for body in bodies]
        staged = stager.stage(
            messages, staged_for=BATCH.staged_for, immunity_s=IMMUNITY_S, timeout_s=1
        )
    return StagedPartition(part, "group", IMMUNITY_S, BEGAN_MS, staged)


def commit(stager: ToyStager, parts: Sequence[StagedPartition], after_s: float = 1) -> int:
    """Commit `parts` as the driver does."""
    return commit_parts(parts, open_stager=stager, clock=SetClock(after_s), timeout_s=5)


def test_every_part_becomes_visible() -> None:
    stager = ToyStager()
    parts = [part_of(stager, 0, b"a", b"b"), part_of(stager, 1), part_of(stager, 2, b"c")]
    assert commit(stager, parts) == 3
    assert stager.bodies(TransactionState.COMMITTED) == [b"a", b"b", b"c"]


def test_unnamed_attempt_stays_staged() -> None:
    stager = ToyStager()
    part_of(stager, 0, b"lost attempt")
    commit(stager, [part_of(stager, 0, b"a")])
    assert stager.bodies(TransactionState.OPEN) == [b"lost attempt"]


@pytest.mark.parametrize("partitions", [0, 2])
def test_batch_without_rows_asks_no_broker(partitions: int) -> None:
    stager = ToyStager()
    assert commit(stager, [part_of(stager, number) for number in range(partitions)]) == 0
    assert stager.opened == 0


def test_commit_fails_whole_when_one_row_is_no_longer_staged() -> None:
    stager = ToyStager()
    parts = [part_of(stager, 0, b"a", b"b"), part_of(stager, 1, b"c")]
    stager.states_of[1] = TransactionState.ROLLED_BACK
    with pytest.raises(BatchNotCommitted, match=r"1 of 3 rows .*ROLLED_BACK.*stagingTimeout=100 s"):
        commit(stager, parts)
    assert not stager.bodies(TransactionState.COMMITTED)
    assert stager.bodies(TransactionState.ROLLED_BACK) == [b"a", b"b", b"c"]


@pytest.mark.parametrize(("took_s", "asked"), [(89, 1), (91, 2)])
def test_states_that_took_long_to_tell_are_asked_again(took_s: float, asked: int) -> None:
    stager = ToyStager()
    parts = [part_of(stager, 0, b"a")]
    commit_parts(parts, open_stager=stager, clock=SetClock(step_s=took_s), timeout_s=120)
    assert stager.asked == asked
    # Operators are refused for longer than a driver waits by default.
    assert STAGED_QUIET_MS / 1000 > RETRY_TIMEOUT_S


def test_commit_close_to_the_end_of_immunity_is_refused() -> None:
    stager = ToyStager()
    parts = [part_of(stager, 0, b"a"), part_of(stager, 1)]
    with pytest.raises(BatchNotCommitted, match=r"partition 0 .* 91 s ago.*stagingTimeout=100 s"):
        commit(stager, parts, after_s=91)
    assert stager.bodies(TransactionState.ROLLED_BACK) == [b"a"]


def test_empty_part_may_be_old() -> None:
    stager = ToyStager()
    old = StagedPartition(
        PartitionAttempt(BATCH, 1, "a1"), "group", IMMUNITY_S, 0, StagedMessages()
    )
    assert commit(stager, [part_of(stager, 0, b"a"), old]) == 1


def test_margin_covers_a_commit_up_to_a_share_of_the_immunity() -> None:
    assert margin_s(10, 1, 120) == 1
    assert margin_s(3600, 50_000, 120) == 160
    assert margin_s(3600, 50_000_000, 120) == 360


def test_broker_absent_during_a_commit_does_not_roll_back_its_rows() -> None:
    stager = ToyStager()
    staged = part_of(stager, 0, b"a").staged
    part = StagedPartition(PartitionAttempt(BATCH, 0, "a1"), "group", 3600, BEGAN_MS, staged)
    with pytest.raises(BatchNotCommitted, match=r"the commit may take 150 s"):
        commit_parts([part], open_stager=stager, clock=SetClock(3451), timeout_s=120)
    assert stager.bodies(TransactionState.ROLLED_BACK) == [b"a"]


def test_commit_fails_whole_when_a_broker_does_not_answer() -> None:
    stager = ToyStager()
    parts = [part_of(stager, 0, b"a")]
    stager.is_away = True
    with pytest.raises(BatchNotCommitted, match=r"nothing was committed: .*nobody answers"):
        commit(stager, parts)
    assert stager.bodies(TransactionState.OPEN) == [b"a"]


def test_commit_failing_in_the_middle_reports_partial_visibility(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stager = ToyStager()
    parts = [part_of(stager, 0, b"a", b"b", b"c")]
    stager.commits_left = 1
    with pytest.raises(BatchHalfCommitted, match="1 of 3 rows are visible, 2 are not") as caught:
        commit(stager, parts)
    assert "'ternmq transaction rollback --query query --batch 4'" in str(caught.value)
    assert (caught.value.unconfirmed, caught.value.rows) == (2, 3)
    assert caught.value.may_have_happened
    abort_parts(parts, open_stager=stager)
    assert stager.bodies(TransactionState.COMMITTED) == [b"a"]
    assert stager.bodies(TransactionState.ROLLED_BACK) == [b"b", b"c"]
    told = [record.getMessage() for record in caplog.records]
    assert told == ["rows not rolled back, they ended before or are gone rows=1"]


def test_abort_rolls_back_named_rows_and_skips_silent_tasks() -> None:
    stager = ToyStager()
    abort_parts([None, part_of(stager, 0, b"a"), None], open_stager=stager)
    assert stager.bodies(TransactionState.ROLLED_BACK) == [b"a"]
    abort_parts([None], open_stager=stager)
    abort_parts([], open_stager=stager)
    assert stager.opened == 1


def test_abort_never_fails(caplog: pytest.LogCaptureFixture) -> None:
    class Unreached:
        def __call__(self) -> ToyStager:
            raise Unreachable("nobody is there")

    stager = ToyStager()
    part = part_of(stager, 0, b"a")
    abort_parts([part], open_stager=Unreached())
    assert "command='ternmq transaction rollback --query query --batch 4'" in caplog.text
    stager.is_away = True
    caplog.clear()
    abort_parts([part], open_stager=stager)
    assert stager.bodies(TransactionState.OPEN) == [b"a"]
    assert "command='ternmq transaction rollback --query query --batch 4' rows=1" in caplog.text


def test_commit_with_a_silent_task_is_refused() -> None:
    stager = ToyStager()
    with pytest.raises(BatchNotCommitted, match="1 tasks did not report"):
        check_parts(4, [part_of(stager, 0, b"a"), None])


def test_batch_without_commit_messages_is_empty() -> None:
    assert check_parts(4, []) == []


def test_part_of_another_batch_is_refused() -> None:
    stager = ToyStager()
    with pytest.raises(BatchNotCommitted, match=r"batch 5 of query.*batch 4"):
        check_parts(5, [part_of(stager, 0, b"a")])


def test_two_attempts_at_one_partition_are_refused() -> None:
    stager = ToyStager()
    parts = [part_of(stager, 0, b"a"), part_of(stager, 1), part_of(stager, 0, b"a")]
    with pytest.raises(BatchNotCommitted, match="2 attempts at partition 0"):
        check_parts(4, parts)
