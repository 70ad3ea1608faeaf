"""Time limit of retries against a cluster without answers, and the log lines meanwhile.

Plans, tasks and commits of source and sink of a data pipeline all use this rule.
"""

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
"""Interval between log lines about a wait, ms."""

RETRY_TIMEOUT: Final = "retryTimeout"
"""Name of Spark's option for the time limit, also in log lines and errors."""

RETRY_TIMEOUT_S: Final = 120.0
"""Default of the option `retryTimeout`, s."""

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
"""Codes of refusals after which a retry may succeed."""


class RetryTimeout:
    """Time limit for the retries of one request, renewed by progress. Created with the request.

    Transport errors and temporary refusals are retried until there is no progress for `timeout_s`.
    A missing topic or message is an error at once, with one exception: for 5 s it is retried after
    an outage, since a NameServer or broker that has just started does not know all topics, and if
    the topic or message existed before.

    Args:
        env: Clock and randomness.
        timeout_s: Longest time without progress, s. 0 = no retries.
        was_there: True = the requested object existed before.
        delays: Waits between attempts.
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
        """Record progress, which restarts the time limit."""
        self._failures = 0
        self._further_at_ms = self._env.clock.monotonic_ms()
        self._denied_since_ms = None

    async def pause(self, error: TernError, *, may_pass: bool = False) -> None:
        """Wait before the next attempt. Cancelling is safe.

        The log gets a warning at the first failure and then at most one each 10 s, with the reason
        and the remaining time.

        Args:
            error: Error of the last attempt.
            may_pass: True = the error is temporary, for any type.

        Raises:
            TernError: `error` if it is not temporary; after the time limit a copy with its
                duration.
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
        await self._env.timers.sleep(
            min(left_s, self._delays.delay_s(self._failures, self._env.random))
        )


def tell(reason: object, left_s: float) -> None:
    """Log the reason of a wait and the remaining time."""
    logger.warning(
        "waiting for the cluster left_s=%.0f option=%s reason=%s", left_s, RETRY_TIMEOUT, reason
    )


def lasted(error: TernError, seconds: float) -> TernError:
    """Return a copy of `error` with its duration and the option that limits it."""
    copy = type(error).__new__(type(error), f"{error}; for {seconds:.0f} s ({RETRY_TIMEOUT})")
    copy.__dict__.update(error.__dict__)
    copy.__cause__ = error.__cause__
    return copy


def nobody_registered(nameservers: Sequence[Address | str]) -> Unreachable:
    """Return the error for NameServers without brokers, for example after their start."""
    return Unreachable(f"no broker is registered at {', '.join(map(str, nameservers))}")


def _may_pass(error: TernError) -> bool:
    if isinstance(error, RefusedError):
        return error.code in _AGAIN
    return isinstance(error, TransportError)
