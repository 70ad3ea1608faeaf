"""Statistics of a consumer: totals, and rates over the last ten seconds. Pure."""

from collections import deque
from dataclasses import dataclass
from typing import Final

RATE_SAMPLES: Final = 11
"""Number of stored totals, one for each second: rates cover the last ten seconds."""


@dataclass(frozen=True, slots=True)
class ConsumerStatistics:
    """Totals since the consumer was opened, and rates over the last ten seconds."""

    messages: int
    """Number of finished messages."""

    record_bytes: int
    """Length of the finished records, bytes."""

    failures: int
    """Number of failures of messages; each failed attempt counts."""

    sent_back: int
    """Number of messages that brokers stored for a retry or as dead letters."""

    timed_out: int
    """Number of messages with a timed-out listener call."""

    in_hand_messages: int
    """Number of read and unfinished messages."""

    in_hand_bytes: int
    """Length of the read and unfinished records, bytes."""

    messages_per_s: float
    """Finished messages per second."""

    bytes_per_s: float
    """Length of the records finished per second, bytes."""


class ConsumeCounters:
    """Counters of one consumer, which owns them."""

    def __init__(self) -> None:
        self._messages = 0
        self._record_bytes = 0
        self._failures = 0
        self._sent_back = 0
        self._timed_out = 0
        self._samples: deque[tuple[int, int, int]] = deque(maxlen=RATE_SAMPLES)

    def finished(self, messages: int, record_bytes: int) -> None:
        """Count finished messages."""
        self._messages += messages
        self._record_bytes += record_bytes

    def failed(self, messages: int) -> None:
        """Count failed messages."""
        self._failures += messages

    def sent_back(self, messages: int) -> None:
        """Count messages that a broker stored for a retry."""
        self._sent_back += messages

    def timed_out(self, messages: int) -> None:
        """Count messages of timed-out calls. They count as failed too."""
        self._timed_out += messages

    def sample(self, now_ms: int) -> None:
        """Store the present totals for the rates. Called once a second."""
        self._samples.append((now_ms, self._messages, self._record_bytes))

    def statistics(
        self, now_ms: int, *, in_hand_messages: int, in_hand_bytes: int
    ) -> ConsumerStatistics:
        """Return the present totals and rates."""
        begin_ms, begin_messages, begin_bytes = (
            self._samples[0] if self._samples else (now_ms, self._messages, self._record_bytes)
        )
        elapsed_s = max(now_ms - begin_ms, 1) / 1000
        return ConsumerStatistics(
            messages=self._messages,
            record_bytes=self._record_bytes,
            failures=self._failures,
            sent_back=self._sent_back,
            timed_out=self._timed_out,
            in_hand_messages=in_hand_messages,
            in_hand_bytes=in_hand_bytes,
            messages_per_s=(self._messages - begin_messages) / elapsed_s,
            bytes_per_s=(self._record_bytes - begin_bytes) / elapsed_s,
        )
