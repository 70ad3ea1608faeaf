"""Claims of slaves that a higher epoch began; one counts once somebody else knows of it."""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from ternmq_broker.replication.master.replicas import Replicas
from ternmq_broker.replication.role.epoch_poll import EpochPollResult, named
from ternmq_model.clock import Clock
from ternmq_runtime.service import Job

logger = logging.getLogger(__name__)

ASK_PAUSE_MS: Final = 5_000
"""Least time between two questions, however many slaves say hello."""

CLAIMS_MAX: Final = 64
"""Most hosts that are told apart, and most ids of each."""


class EpochClaims:
    """Slaves that claim a higher epoch than the master's. Owned by the broker's loop.

    A slave alone deposes nobody: NameServers and the other members are asked, once at a time, and
    the number that they tell is the one that counts, never the claimed one, so any claim is a
    reason to ask. Until then the master goes on. That is safe, as it is when the slave cannot reach
    the master at all: one that knows of a higher epoch acknowledges nothing of this master's.

    Args:
        replicas: Fenced by what is confirmed.
        ask: Asks NameServers and members.
        clock: For the pause between two questions.

    Attributes:
        job: Asks about the claims.
    """

    def __init__(
        self,
        replicas: Replicas,
        ask: Callable[[], Awaitable[EpochPollResult]],
        clock: Clock,
    ) -> None:
        self._replicas = replicas
        self._ask = ask
        self._clock = clock
        interval_s = ASK_PAUSE_MS / 1000
        self.job: Final = Job(name="confirm-epoch", interval_s=interval_s, step=self.step)
        self._claims: dict[str, set[int]] = {}
        """By host, the ids under which it claimed an epoch since others were asked last."""
        self._asked_at_ms: int | None = None

    def add(self, broker_id: int, host: str) -> None:
        """Take note that slave `broker_id` claims a higher epoch, and have others asked soon.

        One host is one slave, under however many ids it says hello.
        """
        if len(self._claims) < CLAIMS_MAX or host in self._claims:
            ids = self._claims.setdefault(host, set())
            if len(ids) < CLAIMS_MAX:
                ids.add(broker_id)
        if not self._is_pausing():
            self.job.wake()

    async def step(self) -> bool:
        """Ask whether there is a higher epoch, if one is claimed: a step of a job."""
        if not self._claims or self._is_pausing():
            return False
        self._asked_at_ms = self._clock.monotonic_ms()
        asked = await self._ask()
        claims, self._claims = self._claims, {}
        own = self._replicas.leadership.number
        highest, whence = asked.confirmed(claims)
        if highest > own:
            self._replicas.fence(highest, whence)
        else:
            logger.warning(
                "higher epoch is claimed and not confirmed epoch=%s claimed_by=%s asked=%s"
                " unreachable=%s",
                *(own, named(sorted(claims)), named(asked.answered), named(asked.unreachable)),
            )
        return False

    def _is_pausing(self) -> bool:
        asked_at_ms = self._asked_at_ms
        return asked_at_ms is not None and self._clock.monotonic_ms() < asked_at_ms + ASK_PAUSE_MS
