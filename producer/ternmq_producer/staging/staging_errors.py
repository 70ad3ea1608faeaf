"""Errors of staging: some of many messages were not staged, or not ended."""

from collections.abc import Mapping

from ternmq_model.errors import TernError
from ternmq_producer.staging.staged_messages import StagedMessages


class StageFailed(TernError):
    """Some messages were not staged, or it is not known whether they were.

    Attributes:
        staged: Staged messages, for a roll-back. The broker rolls back other messages that may be
            staged (`may_have_happened`) after their immunity.
        reason: Error of the first message that is not staged.
        first: Index of that message.
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
        failed: Errors by index of the message; the first thousand.
        failures: Number of messages that are not ended. All others are.
        not_open: Number of messages among them that cannot be ended: ended the other way, or gone.
            The others may still be open.
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
