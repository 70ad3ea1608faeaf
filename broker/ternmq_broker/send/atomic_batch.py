"""Atomic batches: stored together or not at all. Pure.

Source: RocketMQ `SendMessageProcessor.sendBatchMessage`, `MessageBatch.generateFromList`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ternmq_model.errors import refusal
from ternmq_model.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from ternmq_model.record.batch import RecordBatch
from ternmq_model.record.format import ATOMIC_BATCH_BYTES_MAX
from ternmq_model.response_code import ResponseCode


class RefusedRecord(NamedTuple):
    """A record that was not stored."""

    row: int
    """Position of the record in its request."""

    code: int
    remark: str


def check_atomic(
    batch: RecordBatch | None, refused: Sequence[RefusedRecord], *, request_bytes: int
) -> None:
    """Refuse a user's batch that cannot be stored together.

    Args:
        batch: Its good records.
        refused: Its others.
        request_bytes: Length of all of them as they were sent.

    Raises:
        RefusedError: A record is refused, they are for several queues or for a retry topic, they
            are too long, or one is to be delivered later.
    """
    if refused:
        row, code, remark = min(refused)
        raise refusal(code, f"message {row} of the batch: {remark}")
    assert batch is not None, "nothing was refused"
    first, *others = batch.queues
    if others:
        raise refusal(ResponseCode.MESSAGE_ILLEGAL, "a batch is for one queue of one topic")
    if first.topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
        raise refusal(ResponseCode.MESSAGE_ILLEGAL, "a batch cannot go to a group's own topic")
    if request_bytes > ATOMIC_BATCH_BYTES_MAX:
        remark = f"a batch has {request_bytes} bytes, at most {ATOMIC_BATCH_BYTES_MAX} fit"
        raise refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
    for row in batch.routed:
        remark = f"message {row} of the batch: what is delayed or half cannot be in a batch"
        raise refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
