"""Log of lost brokers: one warning for all clients of a process."""

import logging
from typing import Final

from ternmq_model.address import Address
from ternmq_model.clock import Clock

logger = logging.getLogger(__name__)

QUIET_MS: Final = 30_000
"""Longest time between two losses of one outage, ms. A restarting broker is lost several times, and
a broker that stays away is tried repeatedly."""

_OF_PROCESS: Final[set["OutageLog"]] = set()
"""Outage logs of all open clients of the process, in all threads."""


class OutageLog:
    """Log of the brokers that one client lost. Owned by its `ClientInstance`.

    A program without a logging set-up shows warnings on stderr. So all clients that lose one broker
    write one warning, and further lines at level INFO.

    Args:
        clock: Clock with monotonic time.
        nameservers: NameServers, which identify the cluster.
    """

    def __init__(self, clock: Clock, nameservers: tuple[Address, ...]) -> None:
        self._clock = clock
        self._nameservers = nameservers
        self._noted_at_ms: dict[str, int] = {}
        _OF_PROCESS.add(self)

    def close(self) -> None:
        """Remove the log of a closed client."""
        _OF_PROCESS.discard(self)

    def note(self, broker_name: str, reason: object) -> None:
        """Log a lost or failed connection to a broker."""
        now_ms = self._clock.monotonic_ms()
        others = tuple(_OF_PROCESS)  # in one step: other threads add theirs
        is_known = any(each._is_noted(self, broker_name, now_ms) for each in others)
        self._noted_at_ms[broker_name] = now_ms
        logger.log(
            logging.INFO if is_known else logging.WARNING,
            "broker is unreachable, retries continue broker=%s reason=%s",
            broker_name,
            reason,
        )

    def _is_noted(self, asker: "OutageLog", broker_name: str, now_ms: int) -> bool:
        noted_ms = self._noted_at_ms.get(broker_name)
        is_recent = noted_ms is not None and 0 <= now_ms - noted_ms < QUIET_MS
        return is_recent and self._nameservers == asker._nameservers
