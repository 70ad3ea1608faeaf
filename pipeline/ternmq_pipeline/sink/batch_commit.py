"""Commit and abort of a batch: the driver ends all messages that its tasks staged, or none.

The driver first reads the states of all half messages from their brokers. If one is no longer open,
the batch fails before any message is committed. Otherwise all are committed.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Final

from ternmq_model.clock import Clock
from ternmq_model.errors import Fault, TernError, UsageError
from ternmq_model.transaction import STAGED_QUIET_MS, Resolution, TransactionState
from ternmq_pipeline.sink.commit_message import StagedPartition
from ternmq_pipeline.sink.identity import BatchIdentity
from ternmq_pipeline.sink.staging import OpenStager, Stager, join, roll_back
from ternmq_producer.staging import EndFailed, StagedMessages

logger = logging.getLogger(__name__)

_MARGIN_SHARE: Final = 10
_MARGIN_S: Final = 30
_ROWS_A_SECOND: Final = 5_000
"""Least rate at which a busy broker ends rows, rows/s."""


class BatchNotCommitted(TernError):
    """A batch failed before its first commit: no row is visible, and none will be."""

    fault = Fault.CALLER


class BatchHalfCommitted(TernError):
    """A commit failed in the middle: some rows of the batch are visible, the others may never be.

    Attributes:
        batch: Identity of the batch.
        unconfirmed: Number of rows without a confirmed commit.
        rows: Number of rows of the batch.
    """

    fault = Fault.BROKER
    may_have_happened = True

    def __init__(self, batch: BatchIdentity, unconfirmed: int, rows: int, why: object) -> None:
        super().__init__(
            f"batch {batch.batch} of {batch.query}: the commit failed in the middle: "
            f"{rows - unconfirmed} of {rows} rows are visible, {unconfirmed} are not confirmed; "
            "a repeat delivers all of them again (SPARK_QUERY and SPARK_BATCH identify them);"
            f" still staged rows are removed by {batch.rollback_command!r}: {why}"
        )
        self.batch = batch
        self.unconfirmed = unconfirmed
        self.rows = rows


def margin_s(immunity_s: int, rows: int, timeout_s: float) -> float:
    """Return the time before the end of the rows' immunity at which commits are refused, s.

    Brokers could otherwise roll rows back while the commit runs.

    Args:
        immunity_s: Immunity of the rows, s. The margin is at most a tenth of it.
        rows: Number of rows.
        timeout_s: Longest time without an answer of a broker, s.
    """
    longest_s = _MARGIN_S + timeout_s + rows / _ROWS_A_SECOND
    return min(immunity_s / _MARGIN_SHARE, longest_s)


def check_parts(batch: int, parts: Sequence[StagedPartition | None]) -> list[StagedPartition]:
    """Return the parts of a batch, checked before the commit.

    Args:
        batch: Number of the batch.
        parts: Commit messages of the tasks; None = a task without one.

    Raises:
        BatchNotCommitted: A task has no commit message, a part belongs to another batch, or two
            parts have one partition.
    """
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        missing = len(parts) - len(known)
        raise BatchNotCommitted(f"batch {batch}: {missing} tasks did not report their staged rows")
    for part in known:
        wanted = BatchIdentity(known[0].part.of.query, batch)
        if part.part.of != wanted:
            of = f"{part.part} of {part.part.of.query}"
            raise BatchNotCommitted(f"{_name(wanted)}: {of} is not of it")
    partitions = Counter(part.part.partition for part in known)
    for partition, attempts in partitions.items():
        if attempts > 1:
            of = f"{attempts} attempts at partition {partition}"
            raise BatchNotCommitted(f"batch {batch}: {of} are to be committed")
    return known


def commit_parts(
    parts: Sequence[StagedPartition], *, open_stager: OpenStager, clock: Clock, timeout_s: float
) -> int:
    """Commit every row of a batch.

    Args:
        parts: All parts of one batch.
        open_stager: Function that opens a producer of their group.
        clock: Clock for the age of the parts.
        timeout_s: Longest time without an answer of a broker, s; once for the states and once for
            the commit.

    Returns:
        Number of rows.

    Raises:
        BatchNotCommitted: A row was no longer open, or a broker did not answer. No row is visible,
            and open rows are rolled back.
        BatchHalfCommitted: A broker failed for longer than `timeout_s` during the commit.
    """
    staged = join([part.staged for part in parts])
    if not staged:
        return 0
    with open_stager() as stager:
        try:
            _verify(parts, staged, stager, clock, timeout_s)
        except TernError:
            roll_back(stager, staged, parts[0].part.of)
            raise
        try:
            stager.end(staged, Resolution.COMMIT, timeout_s=timeout_s)
        except EndFailed as error:
            batch = parts[0].part.of
            raise BatchHalfCommitted(batch, error.failures, len(staged), error) from error
    return len(staged)


def abort_parts(parts: Sequence[StagedPartition | None], *, open_stager: OpenStager) -> None:
    """Roll back the messages of a batch at the brokers that answer. Never fails.

    Committed messages stay committed.
    """
    known = [part for part in parts if part is not None]
    staged = join([part.staged for part in known])
    if staged:
        batch = known[0].part.of
        try:
            with open_stager() as stager:
                roll_back(stager, staged, batch)
        except TernError as error:
            logger.warning(
                "rows remain until stagingTimeout or this command command=%r err=%s",
                batch.rollback_command,
                error,
            )


def _verify(
    parts: Sequence[StagedPartition],
    staged: StagedMessages,
    stager: Stager,
    clock: Clock,
    timeout_s: float,
) -> None:
    """Check that all rows are open and that their immunity lasts long enough.

    Raises:
        BatchNotCommitted: A check fails, or a broker does not answer.
    """
    batch = parts[0].part.of
    began_ms = clock.monotonic_ms()
    try:
        states = stager.states(staged, timeout_s=timeout_s)
        if clock.monotonic_ms() - began_ms > STAGED_QUIET_MS // 2:
            # An operator may have rolled rows back since an early answer: read the states again.
            states = stager.states(staged, timeout_s=timeout_s)
    except UsageError:
        raise
    except TernError as error:
        raise BatchNotCommitted(
            f"{_name(batch)}: nothing was committed: a broker did not say whether its rows are "
            f"still staged: {error}"
        ) from error
    closed = [place for place, state in enumerate(states) if state is not TransactionState.OPEN]
    immunity_s = min(part.immunity_s for part in parts)
    if closed:
        first = staged[closed[0]]
        raise BatchNotCommitted(
            f"{_name(batch)}: nothing was committed: {len(closed)} of {len(staged)} rows are"
            f" no longer staged, the first at broker {first.broker_name} for topic {first.topic!r} "
            f"({states[closed[0]].name}): most likely stagingTimeout={immunity_s} s passed before "
            "the commit, which must be longer than a batch takes; or an operator rolled them back "
            "(ternmq transaction rollback)"
        )
    now_ms = clock.wall_ms()
    for part in parts:
        age_s = (now_ms - part.began_at_ms) / 1000
        margin = margin_s(part.immunity_s, len(staged), timeout_s)
        if part.staged and age_s > part.immunity_s - margin:
            raise BatchNotCommitted(
                f"{_name(batch)}: nothing was committed: {part.part} was staged {age_s:.0f} s ago, "
                f"too close to stagingTimeout={part.immunity_s} s, of which the commit may take "
                f"{margin:.0f} s; it must be longer than a batch takes"
            )


def _name(batch: BatchIdentity) -> str:
    return f"batch {batch.batch} of {batch.query}"
