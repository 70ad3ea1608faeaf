"""Flow control: credits for a broker to send ahead of a queue's reader. Pure.

A reader opens a queue with a credit in bytes and messages. The broker stops when one of them is
used up, and may exceed it by one record. The reader returns the credit of finished messages, in
portions of at least a quarter of the window.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

GIVE_BACK_FRACTION: Final = 4
"""Divisor of the window for the smallest returned credit: small enough to keep the broker sending,
large enough for few requests."""


class Credit(NamedTuple):
    """Permission for a broker to send. A broker sends nothing while one of the numbers is zero."""

    messages: int
    record_bytes: int


@dataclass(frozen=True, slots=True)
class FlowControlWindow:
    """Bounds of the unfinished messages of one queue at a reader.

    Source: RocketMQ `pullThresholdForQueue`, `pullThresholdSizeForQueue`,
    `consumeConcurrentlyMaxSpan`.
    """

    messages: int
    record_bytes: int
    span_max: int | None = None
    """Most offsets between reading and committing; beyond it no credit is returned. It bounds the
    messages that are delivered again behind one message that is never finished. None = no limit."""


class CreditLedger:
    """Use of a window. Owned by one subscription of one queue.

    Args:
        window: Bounds; both numbers are at least 1.
    """

    def __init__(self, window: FlowControlWindow) -> None:
        self._window = window
        self._held_messages = 0
        self._held_bytes = 0
        self._owed_messages = 0
        self._owed_bytes = 0

    @property
    def is_unused(self) -> bool:
        """True while the broker may send the whole window."""
        return not self._held_messages

    def opening(self) -> Credit:
        """Return the credit of a new subscription: the window without the unfinished messages.

        If the unfinished messages exceed the window, the excess is subtracted from later credit.
        """
        free_messages = self._window.messages - self._held_messages
        free_bytes = self._window.record_bytes - self._held_bytes
        self._owed_messages = min(free_messages, 0)
        self._owed_bytes = min(free_bytes, 0)
        return Credit(max(free_messages, 0), max(free_bytes, 0))

    def receive(self, messages: int, record_bytes: int) -> None:
        """Subtract credit that the broker used."""
        self._held_messages += messages
        self._held_bytes += record_bytes

    def release(self, messages: int, record_bytes: int) -> None:
        """Add credit that the reader released."""
        self._held_messages -= messages
        self._held_bytes -= record_bytes
        self._owed_messages += messages
        self._owed_bytes += record_bytes

    def due(self, span: int = 0) -> Credit | None:
        """Return the credit to send to the broker and count it as sent; None = not due yet.

        Args:
            span: Offsets between reading and committing.
        """
        if self._window.span_max is not None and span > self._window.span_max:
            return None
        if (
            self._owed_messages * GIVE_BACK_FRACTION < self._window.messages
            and self._owed_bytes * GIVE_BACK_FRACTION < self._window.record_bytes
        ):
            return None
        credit = Credit(max(self._owed_messages, 0), max(self._owed_bytes, 0))
        self._owed_messages -= credit.messages
        self._owed_bytes -= credit.record_bytes
        return credit
