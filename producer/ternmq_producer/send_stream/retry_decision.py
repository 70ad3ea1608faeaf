"""Retry decisions about messages that an attempt did not store. Pure."""

from enum import Enum, auto

from ternmq_model.errors import TernError, Unreachable


class RetryDecision(Enum):
    """Broker of the next attempt, if there is one."""

    GIVE_UP = auto()
    AGAIN_HERE = auto()
    """At the same broker, in the same queue."""

    AGAIN_ANYWHERE = auto()
    """In another queue, preferably at another broker."""


def decide_retry(
    error: TernError,
    *,
    attempts: int,
    attempts_max: int,
    is_ordered: bool,
    maybe_stored: bool,
    duplicates_allowed: bool,
    looks_up: bool,
    is_away: bool,
) -> RetryDecision:
    """Return the decision after an attempt that ended with `error`.

    An attempt that reached no broker does not count: the send timeout is its limit.

    Args:
        error: Error of the attempt.
        attempts: Number of attempts so far, this one included.
        attempts_max: Limit of attempts.
        is_ordered: True for a message that must stay in its queue.
        maybe_stored: True when an attempt, this one included, may have stored the message.
        duplicates_allowed: True where a duplicate is better than an unknown outcome.
        looks_up: True for a broker that searches a message before it stores it again.
        is_away: True for a broker out of reach, not just a broken stream.

    Source:
        RocketMQ `DefaultMQProducerImpl.sendDefaultImpl`, except that an attempt which may have
        stored the message is repeated at the same broker first, which alone can search it.
    """
    if not error.retryable:
        return RetryDecision.GIVE_UP
    if attempts >= attempts_max and not isinstance(error, Unreachable):
        return RetryDecision.GIVE_UP
    if maybe_stored and not duplicates_allowed:
        return RetryDecision.AGAIN_HERE if looks_up else RetryDecision.GIVE_UP
    if is_ordered:
        return RetryDecision.AGAIN_HERE
    if maybe_stored and not is_away:
        return RetryDecision.AGAIN_HERE
    return RetryDecision.AGAIN_ANYWHERE
