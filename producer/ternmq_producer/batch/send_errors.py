"""Errors of sends that ran out of time, and copies of an error for several waiters."""

from ternmq_model.errors import RequestTimedOut, TernError


def timed_out(what: str) -> RequestTimedOut:
    """Return the error of a send that timed out while it waited for `what`."""
    error = RequestTimedOut(f"not sent: timed out while waiting for {what}")
    error.may_have_happened = False
    return error


def too_late(
    broker_name: str, reason: TernError | None, may_have_happened: bool, *, is_sent: bool
) -> TernError:
    """Return the error of a send that timed out at a broker.

    Args:
        broker_name: Name of the broker.
        reason: Error of a broker that cannot be reached or accepts no messages; None without one.
        may_have_happened: True when the broker may have stored the message.
        is_sent: True for an unanswered message: `reason` is an earlier attempt's.
    """
    if reason is not None and not is_sent:
        return renewed(reason, may_have_happened=may_have_happened)
    what = "no answer in time" if may_have_happened else "not sent in time"
    before = "" if reason is None else f"; before: {reason}"
    error = RequestTimedOut(f"broker {broker_name}: {what}{before}")
    error.may_have_happened = may_have_happened
    return error


def renewed(error: TernError, *, may_have_happened: bool) -> TernError:
    """Return a copy of `error` for one more waiter.

    Each waiter needs a copy, since a raised exception collects tracebacks.
    """
    copy = type(error).__new__(type(error), *error.args)
    copy.__dict__.update(error.__dict__)
    copy.__cause__ = error.__cause__
    if may_have_happened:
        copy.may_have_happened = True
    return copy
