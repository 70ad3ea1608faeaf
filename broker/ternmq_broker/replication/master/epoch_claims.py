"""Claims of slaves that a higher epoch has begun, and their confirmation by other processes."""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from ternmq_broker.replication.master.replicas import Replicas
from ternmq_broker.replication.role.epoch_poll import EpochPollResult, named
from ternmq_runtime.service import Job

logger = logging.getLogger(__name__)

POLL_PAUSE_MS: Final = 5_000
"""Least time between two polls, however many slaves claim an epoch."""

CLAIMS_MAX: Final = 64
"""Limit on the hosts with claims, and on the ids of each host."""


class EpochClaims:
    """Slaves that claim a higher epoch than the master's. Owned by the broker's loop.

    A slave alone deposes no master. Any claim causes a poll of the NameServers and the other
    members, one poll at a time, and only the epochs that they report count. The master serves
    until a poll confirms a higher epoch. A slave that knows of one acknowledges no byte of this
    master, so serving on is as safe as with a slave that cannot reach the master.

    Attributes:
        job: Polls about the claims.
    """

    def __init__(
        self,
        replicas: Replicas,
        poll: Callable[[], Awaitable[EpochPollResult]],
    ) -> None:
        self._replicas = replicas
        self._poll = poll
        interval_s = POLL_PAUSE_MS / 1000
        self.job: Final = Job(name="confirm-epoch", interval_s=interval_s, step=self.step)
        self._claims: dict[str, set[int]] = {}
        """Ids that claimed an epoch since the last poll, by host."""
        self._polled_at_ms: int | None = None

    def add(self, broker_id: int, host: str) -> None:
        """Record that slave `broker_id` claims a higher epoch, and poll soon.

        All slaves of one host count as one, for any ids.
        """
        if len(self._claims) < CLAIMS_MAX or host in self._claims:
            ids = self._claims.setdefault(host, set())
            if len(ids) < CLAIMS_MAX:
                ids.add(broker_id)
        if not self._is_pausing():
            self.job.wake()

    async def step(self) -> bool:
        """Poll for a higher epoch if a slave claims one. The step of a job."""
        if not self._claims or self._is_pausing():
            return False
        self._polled_at_ms = self._replicas.clock.monotonic_ms()
        polled = await self._poll()
        claims, self._claims = self._claims, {}
        epoch = self._replicas.epoch
        highest, source = polled.confirmed(claims)
        if highest > epoch:
            self._replicas.fence(highest, source)
        else:
            logger.warning(
                "higher epoch is claimed and not confirmed epoch=%s claimed_by=%s asked=%s"
                " unreachable=%s",
                epoch,
                named(sorted(claims)),
                named(polled.answered),
                named(polled.unreachable),
            )
        return False

    def _is_pausing(self) -> bool:
        at_ms, now_ms = self._polled_at_ms, self._replicas.clock.monotonic_ms()
        return at_ms is not None and now_ms < at_ms + POLL_PAUSE_MS
