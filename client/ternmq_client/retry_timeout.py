"""Time limit of retries against a cluster that gives no answer, and the log lines meanwhile.

A data pipeline has one rule for every call: the plan, the tasks and the commit of a query, of the
source and of the sink.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from ternmq_client.retry_policy import RetryPolicy
from ternmq_client.routes.route_cache import LOSS_GRACE_MS
from ternmq_model.address import Address
from ternmq_model.errors import (
    RangeLost,
    RefusedError,
    TernError,
    TopicNotFound,
    TransportError,
    Unreachable,
)
from ternmq_model.response_code import ResponseCode
from ternmq_remoting.environment import Environment

logger = logging.getLogger(__name__)

TOLD_EVERY_MS: Final = 10_000
"""Interval between log lines about what is waited for."""

RETRY_TIMEOUT: Final = "retryTimeout"
"""The name of Spark's option for it; the log and errors say it to everybody."""

RETRY_TIMEOUT_S: Final = 120.0
"""The default of that option."""

_DELAYS: Final = RetryPolicy(delay_s_first=0.2, delay_s_max=2.0)

_AGAIN: Final = frozenset(
    {
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)
"""Refusals after which another member, or the same one later, may answer."""


class RetryTimeout:
    """Time limit for the retries of one question, renewed by progress. Made as the question begins.

    A failure that waiting may mend is one of transport, or a refusal that the peer may take back:
    it is the end when nothing was got any further with for `timeout_s`. That a topic or messages
    are not there is the end at once, but for the first 5 s in which it is said where it may pass:
    after an outage, since a NameServer or broker that has just started does not know all yet, and
    of what was there before.

    Args:
        env: Clock and randomness.
        timeout_s: For so long nothing may be got any further with. 0 = each failure is the end.
        was_there: What is asked for was there when it was last asked for.
        delays: The waits between attempts.
    """

    def __init__(
        self,
        env: Environment,
        timeout_s: float,
        *,
        was_there: bool = False,
        delays: RetryPolicy = _DELAYS,
    ) -> None:
        self._env = env
        self._timeout_ms = round(timeout_s * 1000)
        self._was_there = was_there
        self._delays = delays
        self._failures = 0
        self._further_at_ms = env.clock.monotonic_ms()
        self._denied_since_ms: int | None = None
        self._told_at_ms: int | None = None

    def got_further(self) -> None:
        """Record progress: the time limit begins anew."""
        self._failures = 0
        self._further_at_ms = self._env.clock.monotonic_ms()
        self._denied_since_ms = None

    async def pause(self, error: TernError, *, may_pass: bool = False) -> None:
        """Wait before the next attempt. Cancelling is safe.

        The log has a warning with the first failure and then at most one each 10 s, progress or
        not: why, and how long still.

        Args:
            error: Why the last attempt failed.
            may_pass: It may, whatever is known of errors of its kind.

        Raises:
            TernError: `error`, of which waiting is no cure; or a copy that says how long it lasted.
        """
        is_denial = isinstance(error, RangeLost | TopicNotFound)
        now_ms = self._env.clock.monotonic_ms()
        since_ms, limit_ms = self._further_at_ms, self._timeout_ms
        if not is_denial:
            self._denied_since_ms = None
            if not may_pass and not _may_pass(error):
                raise error
        else:
            if not (self._was_there or self._failures):
                raise error
            if self._denied_since_ms is None:
                self._denied_since_ms = now_ms
            since_ms, limit_ms = self._denied_since_ms, min(limit_ms, LOSS_GRACE_MS)
        if now_ms - since_ms >= limit_ms:
            raise error if is_denial or not limit_ms else lasted(error, (now_ms - since_ms) / 1000)
        self._failures += 1
        left_s = (since_ms + limit_ms - now_ms) / 1000
        if self._told_at_ms is None or now_ms - self._told_at_ms >= TOLD_EVERY_MS:
            self._told_at_ms = now_ms
            tell(error, left_s)
        await asyncio.sleep(min(left_s, self._delays.delay_s(self._failures, self._env.random)))


def tell(reason: object, left_s: float) -> None:
    """Log what is waited for, and how long still."""
    logger.warning(
        "waiting for the cluster left_s=%.0f (%s) reason=%s", left_s, RETRY_TIMEOUT, reason
    )


def lasted(error: TernError, seconds: float) -> TernError:
    """Return a copy of `error` that says how long it has lasted, and which option ended that."""
    copy = type(error).__new__(type(error), f"{error}; for {seconds:.0f} s ({RETRY_TIMEOUT})")
    copy.__dict__.update(error.__dict__)
    copy.__cause__ = error.__cause__
    return copy


def nobody_registered(nameservers: Sequence[Address | str]) -> Unreachable:
    """Return the error of NameServers that know no broker, such as after their start."""
    return Unreachable(f"no broker is registered at {', '.join(map(str, nameservers))}")


def _may_pass(error: TernError) -> bool:
    if isinstance(error, RefusedError):
        return error.code in _AGAIN
    return isinstance(error, TransportError)
