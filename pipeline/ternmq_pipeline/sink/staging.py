"""Staging by a task: the rows of a partition become half messages, or are rolled back."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final, Protocol

import pyarrow as pa

from ternmq_model.clock import Clock
from ternmq_model.errors import TernError
from ternmq_model.message import Message
from ternmq_model.transaction import Resolution, TransactionState
from ternmq_pipeline.options.sink_options import WriteOptions
from ternmq_pipeline.sink.commit_message import StagedPartition
from ternmq_pipeline.sink.identity import BatchIdentity
from ternmq_pipeline.sink.rows import RowReader
from ternmq_producer.staging import EndFailed, StagedMessage, StagedMessages, StageFailed

logger = logging.getLogger(__name__)

CHUNK_ROWS: Final = 8192
CHUNK_BYTES: Final = 16 << 20
"""Most bytes that are staged at once. The memory of a task holds them twice."""

ROLL_BACK_S: Final = 10.0
"""Time after which a task gives up a rollback, s. Brokers roll the rest back when their immunity
ends."""


class Stager(Protocol):
    """A producer that stages and ends messages. `BlockingStagingProducer` is one."""

    def stage(
        self, messages: Sequence[Message], *, staged_for: str, immunity_s: int, timeout_s: float
    ) -> StagedMessages:
        """Stage messages, in their order."""
        ...

    def stage_columns(
        self,
        topic: str,
        bodies: Any,
        *,
        tags: Any,
        keys: Any,
        properties: Any,
        sharding_keys: Any,
        staged_for: str,
        immunity_s: int,
        timeout_s: float,
    ) -> StagedMessages:
        """Stage the messages in columns, in their order."""
        ...

    def states(
        self, staged: Sequence[StagedMessage], *, timeout_s: float
    ) -> list[TransactionState]:
        """Return the transaction state of each message."""
        ...

    def end(
        self, staged: Sequence[StagedMessage], resolution: Resolution, *, timeout_s: float
    ) -> None:
        """Commit all, or roll all back."""
        ...


OpenStager = Callable[[], AbstractContextManager[Stager]]


def stage_partition(
    batches: Iterable[pa.RecordBatch],
    reader: RowReader,
    options: WriteOptions,
    *,
    open_stager: OpenStager,
    clock: Clock,
) -> StagedPartition:
    """Stage every row of a partition.

    A partition without rows reaches no broker.

    Args:
        batches: Rows of the partition.
        reader: Reader that builds the messages.
        options: Options of the sink: immunity of the rows, timeout of a chunk.
        open_stager: Function that opens a producer of the options' group.
        clock: Clock for the time of the first staging.

    Raises:
        IllegalMessage: A row is no legal message, or its broker refused it. The error names it.
        StageFailed: A broker did not store a row in time.
        Exception: Error of `batches`. After every error the staged rows are rolled back at the
            brokers that answer; other brokers roll them back when their immunity ends.
    """
    chunks = _chunks(batches)
    first = next(chunks, None)
    began_at_ms = clock.wall_ms()
    staged: list[StagedMessages] = []
    if first is not None:
        with open_stager() as stager:
            try:
                row = 0
                chunk: pa.RecordBatch | None = first
                while chunk is not None:
                    staged.append(
                        _stage(
                            chunk, reader, options, stager, first_row=row, now_ms=clock.wall_ms()
                        )
                    )
                    row += chunk.num_rows
                    chunk = next(chunks, None)
            except BaseException as error:
                if isinstance(error, StageFailed):
                    staged.append(error.staged)
                roll_back(stager, join(staged), reader.part.of)
                raise
    settings = options.producer_group, options.staging_timeout_s
    return StagedPartition(reader.part, *settings, began_at_ms, join(staged))


def roll_back(stager: Stager, staged: StagedMessages, batch: BatchIdentity) -> None:
    """Roll back the open messages of `staged` at the brokers that answer. Never fails.

    Args:
        stager: Open producer.
        staged: Messages of one batch.
        batch: Identity of the batch, for the log.
    """
    if not staged:
        return
    try:
        stager.end(staged, Resolution.ROLLBACK, timeout_s=ROLL_BACK_S)
    except TernError as error:
        left, over = len(staged), 0
        if isinstance(error, EndFailed):
            left, over = error.failures - error.not_open, error.not_open
        if over:
            logger.warning("rows not rolled back, they ended before or are gone rows=%d", over)
        if left:
            logger.warning(
                "rows are left to stagingTimeout or this command command=%r rows=%d err=%s",
                batch.rollback_command,
                left,
                error,
            )


def join(parts: Sequence[StagedMessages]) -> StagedMessages:
    """Join the messages of `parts`, in order."""
    if len(parts) <= 1:
        return parts[0] if parts else StagedMessages()
    middle = len(parts) // 2  # halves, so that nothing is copied more than log n times
    return join(parts[:middle]) + join(parts[middle:])


def _stage(
    chunk: pa.RecordBatch,
    reader: RowReader,
    options: WriteOptions,
    stager: Stager,
    *,
    first_row: int,
    now_ms: int,
) -> StagedMessages:
    read_messages = partial(reader.messages, chunk, first_row=first_row, now_ms=now_ms)
    columns = reader.columns(chunk, first_row=first_row)
    messages = read_messages() if columns is None else []
    staged_for = reader.part.of.staged_for
    immunity_s, timeout_s = options.staging_timeout_s, options.retry_timeout_s
    try:
        if columns is None:
            return stager.stage(
                messages, staged_for=staged_for, immunity_s=immunity_s, timeout_s=timeout_s
            )
        return stager.stage_columns(
            **columns._asdict(), staged_for=staged_for, immunity_s=immunity_s, timeout_s=timeout_s
        )
    except TernError as error:
        illegal = reader.name_illegal(messages or read_messages(), first_row=first_row)
        if illegal is None and isinstance(error, StageFailed):
            illegal = reader.name_refused(error.reason, row=first_row + error.first)
        if illegal is None:
            raise
        if isinstance(error, StageFailed):
            roll_back(stager, error.staged, reader.part.of)
        raise illegal from error


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in pieces of a bounded size; none is empty."""
    for batch in batches:
        if batch.num_rows:
            row_bytes = batch.nbytes // batch.num_rows + 1
            rows = max(1, min(CHUNK_ROWS, CHUNK_BYTES // row_bytes))
            for first in range(0, batch.num_rows, rows):
                yield batch.slice(first, rows)
