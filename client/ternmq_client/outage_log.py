"""One warning for a broker that is lost, however many clients of the process lose it."""

import logging
from typing import Final

from ternmq_model.address import Address
from ternmq_model.clock import Clock

logger = logging.getLogger(__name__)

QUIET_MS: Final = 30_000
"""Losses that follow each other within this time are one outage: a broker that
restarts is lost several times, and one that stays away is tried again and again."""

_OF_PROCESS: Final[set["OutageLog"]] = set()
"""Outage logs of every open client of the process, in whichever thread its loop runs."""


class OutageLog:
    """Log of the brokers that one client lost. Owned by its `ClientInstance`.

    A program that configured no logging shows warnings on stderr. A producer and consumers that
    lose the same broker write one there, and everything else about it at level INFO.

    Args:
        clock: Only its monotonic time is read.
        nameservers: Tells clusters apart.
    """

    def __init__(self, clock: Clock, nameservers: tuple[Address, ...]) -> None:
        self._clock = clock
        self._nameservers = nameservers
        self._noted_at_ms: dict[str, int] = {}
        _OF_PROCESS.add(self)

    def close(self) -> None:
        """Count no more: the client is closed."""
        _OF_PROCESS.discard(self)

    def note(self, broker_name: str, reason: object) -> None:
        """Log that a broker's connection was lost, or cannot be made."""
        now_ms = self._clock.monotonic_ms()
        others = tuple(_OF_PROCESS)  # in one step: other threads add theirs
        is_known = any(each._is_noted(self, broker_name, now_ms) for each in others)
        self._noted_at_ms[broker_name] = now_ms
        logger.log(
            logging.INFO if is_known else logging.WARNING,
            "broker is away, and tried again broker=%s reason=%s",
            broker_name,
            reason,
        )

    def _is_noted(self, asker: "OutageLog", broker_name: str, now_ms: int) -> bool:
        noted_ms = self._noted_at_ms.get(broker_name)
        is_recent = noted_ms is not None and 0 <= now_ms - noted_ms < QUIET_MS
        return is_recent and self._nameservers == asker._nameservers
