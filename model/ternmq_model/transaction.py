"""Outcomes of transactions: of the local work, and of its message."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ternmq_model.errors import TernError, refusal
from ternmq_model.message import SendResult
from ternmq_model.offsets import QueueOffset
from ternmq_model.response_code import ResponseCode


class Resolution(Enum):
    """Outcome of a local transaction.

    Attributes:
        UNKNOWN: The outcome is unknown. The broker asks again later.
        COMMIT: The transaction is done. The message becomes visible.
        ROLLBACK: The transaction was not done. The message is never visible.

    Source: RocketMQ `LocalTransactionState`.
    """

    UNKNOWN = 0
    COMMIT = 1
    ROLLBACK = 2


class TransactionState(Enum):
    """State of a transaction at its broker.

    Attributes:
        NOT_FOUND: Unknown transaction: the broker never had it, or has forgotten it.
        OPEN: Open transaction, whose half message can still be committed.
        COMMITTED: Committed transaction, whose message is visible to consumers.
        ROLLED_BACK: Rolled-back transaction, whose message is never visible.
    """

    NOT_FOUND = 0
    OPEN = 1
    COMMITTED = 2
    ROLLED_BACK = 3


_STATES: Final = frozenset(state.value for state in TransactionState)


def check_states(states: Iterable[int], broker_name: str) -> None:
    """Refuse the answer of a broker with a state that has no `TransactionState`. Pure.

    Args:
        states: Numbers of states.
        broker_name: Name of the broker, for the refusal.

    Raises:
        RefusedError: SYSTEM_ERROR; names the first such state.
    """
    for state in states:
        if state not in _STATES:
            remark = f"transaction state {state} is unknown here"
            raise refusal(ResponseCode.SYSTEM_ERROR, remark, broker_name)


STAGED_QUIET_MS: Final = 180_000
"""Time without activity after which a batch of staged messages counts as abandoned, ms. It exceeds
the 120 s for which a driver waits for an absent broker by default."""


def is_in_use(quiet_ms: int) -> bool:
    """Return whether a driver may still work on a batch of staged messages. Pure.

    Args:
        quiet_ms: Time since the last storing, query or commit of a message in the batch, or since
            the start of the broker, ms.
    """
    return quiet_ms < STAGED_QUIET_MS


def check_not_in_use(staged_for: str, quiet_ms: int, *, broker_name: str = "") -> None:
    """Refuse the rollback of a batch that is in use. Pure.

    Args:
        staged_for: Name of the batch.
        quiet_ms: Time without activity, as for `is_in_use`.
        broker_name: Name of the broker, for the refusal.

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
    """Result of one transaction."""

    sent: SendResult
    """Send result of the half message. Its physical offset identifies the transaction. Its queue is
    the target of the message, and its queue offset has no meaning."""

    resolution: Resolution
    """Outcome of the local transaction; UNKNOWN if it raised, ROLLBACK if it was not run because
    the half message was stored without the requested safety."""

    is_confirmed: bool
    """True = the broker has the outcome safely on disk: the message of a commit is delivered, that
    of a rollback never. False = the broker will ask a producer of the group."""

    error: TernError | None = None
    """Error that prevented the confirmation; None = none."""

    queue_id: int = -1
    """Queue of a committed message."""

    queue_offset: QueueOffset = QueueOffset(-1)  # noqa: RUF009 - a number
    """Queue offset of a committed message; −1 = unknown."""
