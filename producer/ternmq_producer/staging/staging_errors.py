"""Errors of staging: some of many messages were not staged, or not ended."""

from collections.abc import Mapping

from ternmq_model.errors import TernError
from ternmq_producer.staging.staged_messages import StagedMessages


class StageFailed(TernError):
    """Some messages were not staged, or it is not known whether they were.

    Attributes:
        staged: Those that are, for whoever rolls them back. What else may be staged
            (`may_have_happened`) the broker rolls back when its time is over.
        reason: Why the first one is not.
        first: Its place in what was given.
    """

    def __init__(
        self,
        reason: TernError,
        staged: StagedMessages,
        *,
        failures: int,
        count: int,
        first: int = 0,
    ) -> None:
        super().__init__(f"{failures} of {count} messages not staged; the first: {reason}")
        self.staged = staged
        self.reason = reason
        self.first = first
        self.fault = reason.fault
        self.retryable = reason.retryable
        self.may_have_happened = reason.may_have_happened


class EndFailed(TernError):
    """Some staged messages were not ended, or it is not known whether they were.

    Attributes:
        failed: Why, by their place in what was given; the first thousand.
        failures: How many there are. All others are ended.
        not_open: How many of them nobody can end any more: they have ended the other way, or are
            gone. The others may still be open.
    """

    FAILED_MAX = 1000

    def __init__(
        self, failed: Mapping[int, TernError], *, failures: int, count: int, not_open: int = 0
    ) -> None:
        first = next(iter(failed.values()))
        super().__init__(f"{failures} of {count} staged messages not ended; the first: {first}")
        self.failed = failed
        self.failures = failures
        self.not_open = not_open
        self.fault = first.fault
        self.retryable = all(error.retryable for error in failed.values())
        self.may_have_happened = any(error.may_have_happened for error in failed.values())
