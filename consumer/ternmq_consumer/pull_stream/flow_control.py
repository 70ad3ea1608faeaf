"""Flow control: the credits by which a broker sends ahead of a queue's reader. Pure.

A reader opens a queue with a credit in bytes and in messages; the broker stops when either ends,
which it may overshoot by one record. What the reader has finished with it gives back, and tells
the broker once a quarter of the window has come together.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

GIVE_BACK_FRACTION: Final = 4
"""Credit is told to the broker by this part of the window: small enough to keep the broker
sending, large enough to be few messages."""


class Credit(NamedTuple):
    """Permission of a broker to send. It sends nothing while either number is zero."""

    messages: int
    record_bytes: int


@dataclass(frozen=True, slots=True)
class FlowControlWindow:
    """Bounds of what may lie unfinished of one queue at a reader.

    Source: RocketMQ `pullThresholdForQueue`, `pullThresholdSizeForQueue`,
    `consumeConcurrentlyMaxSpan`.
    """

    messages: int
    record_bytes: int
    span_max: int | None = None
    """No credit is given while reading is further than this ahead of committing: one message that
    is never finished must not let an unbounded stretch behind it become due for redelivery.
    None = no such limit."""


class CreditLedger:
    """Use of a window. Owned by one subscription of one queue.

    Args:
        window: Both sides of it are at least 1.
    """

    def __init__(self, window: FlowControlWindow) -> None:
        self._window = window
        self._held_messages = 0
        self._held_bytes = 0
        self._owed_messages = 0
        self._owed_bytes = 0

    @property
    def is_unused(self) -> bool:
        """State of an unused window: the broker may send all of it."""
        return not self._held_messages

    def opening(self) -> Credit:
        """Return the credit to subscribe with: what is not held. The broker then owes nothing.

        Where more is held than the window allows, the excess is kept back from later credit.
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
        """Return the credit to tell the broker now, which then counts as told; None = not yet.

        Args:
            span: How far reading is ahead of committing.
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
