"""Outcomes of transactions: of the sender's own work, and of the message that tells of it."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from ternmq_model.errors import TernError, refusal
from ternmq_model.message import SendResult
from ternmq_model.offsets import QueueOffset
from ternmq_model.response_code import ResponseCode


class Resolution(Enum):
    """The outcome of a local transaction.

    Attributes:
        UNKNOWN: It is not known yet: the broker asks again later.
        COMMIT: It is done: the message is to be seen.
        ROLLBACK: It was not done: the message is never seen.

    Source: RocketMQ `LocalTransactionState`.
    """

    UNKNOWN = 0
    COMMIT = 1
    ROLLBACK = 2


class TransactionState(Enum):
    """State of a transaction at its broker."""

    NOT_FOUND = 0
    """Unknown transaction: the broker never had it, or has forgotten it."""

    OPEN = 1
    """Open transaction, whose half message can still be committed."""

    COMMITTED = 2
    """Committed transaction, whose message is visible to consumers."""

    ROLLED_BACK = 3
    """Rolled-back transaction, whose message is never visible."""


STAGED_QUIET_MS: Final = 180_000
"""A batch of staged messages on which nobody worked for so long counts as left behind. It is longer
than the 120 s for which a driver waits, by default, for a broker that is away."""


def is_in_use(quiet_ms: int) -> bool:
    """Tell whether a driver may still work on a batch of staged messages. Pure.

    Args:
        quiet_ms: How long ago one of them was stored, asked about or committed, or their broker
            started, which does not know what was before.
    """
    return quiet_ms < STAGED_QUIET_MS


def check_not_in_use(staged_for: str, quiet_ms: int, *, broker_name: str = "") -> None:
    """Refuse to roll back what somebody may work on. Pure.

    Args:
        staged_for: Names the batch.
        quiet_ms: As `is_in_use` takes it.
        broker_name: Whom the refusal names.

    Raises:
        RefusedError: ILLEGAL_OPERATION.
    """
    if is_in_use(quiet_ms):
        remark = (
            f"{staged_for} may be in use: {quiet_ms / 1000:.0f} s ago a row of it was stored, "
            "asked about or committed, or its broker started; without force it is not rolled back "
            f"before {STAGED_QUIET_MS // 1000} s have passed"
        )
        raise refusal(ResponseCode.ILLEGAL_OPERATION, remark, broker_name)


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """The result of one transaction."""

    sent: SendResult
    """Send result of the half message. Its physical offset is the transaction's name; its queue is
    the one that the message is meant for, and its queue offset says nothing."""

    resolution: Resolution
    """The outcome of the local transaction. UNKNOWN also when it raised; ROLLBACK also when it was
    not run because the half message is stored but not safe."""

    is_confirmed: bool
    """The broker has it safely on disk: a commit's message will be delivered, a rollback's never.
    Else the broker will ask a producer of the group."""

    error: TernError | None = None
    """The reason for which it is not confirmed."""

    queue_id: int = -1
    """The queue of a committed message."""

    queue_offset: QueueOffset = QueueOffset(-1)  # noqa: RUF009 - a number
    """The queue offset of a committed message; −1 when it is not known."""
