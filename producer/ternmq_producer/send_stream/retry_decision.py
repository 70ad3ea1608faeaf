"""Retry decisions about messages that an attempt did not store. Pure."""

from enum import Enum, auto

from ternmq_model.errors import TernError, Unreachable


class RetryDecision(Enum):
    """Place of the next attempt, if there is one."""

    GIVE_UP = auto()
    AGAIN_HERE = auto()
    """At the same broker, in the same queue."""

    AGAIN_ANYWHERE = auto()
    """In another queue, best at another broker."""


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
    """Return what follows after an attempt ended with `error`.

    That nobody could be reached is no attempt: nothing was sent, and the send timeout is the limit.

    Args:
        error: Of this attempt.
        attempts: Made so far, this one included.
        attempts_max: That may be made.
        is_ordered: It must stay in its queue.
        maybe_stored: An attempt, this one included, may have stored it.
        duplicates_allowed: Whether storing it twice is better than not knowing.
        looks_up: The broker finds out whether it stored a message before it stores it again.
        is_away: The broker is out of reach, and not just its stream broken.

    Source:
        RocketMQ `DefaultMQProducerImpl.sendDefaultImpl`, except that an attempt which may have
        stored the message is repeated at the same broker first: it alone can tell.
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
