"""Exit codes of commands, and the error line of a failed one.

0 done, 1 failed, 2 usage or a refused value, 3 not found, 4 unreachable or printed in part, 141
reader of the output gone.
"""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, cast

from ternmq_console.cli.output import print_line
from ternmq_model.errors import (
    AccessNotFound,
    ClientNotOnline,
    GroupNotFound,
    InvalidParameter,
    MessageNotFound,
    MessageRefused,
    RefusedError,
    SettingsError,
    StoreNotFound,
    TernError,
    TopicNotFound,
    TransportError,
    UsageError,
)
from ternmq_model.response_code import ResponseCode

if TYPE_CHECKING:
    from ternmq_client.admin.descriptions import UnreachableBroker

FAILED: Final = 1
USAGE: Final = 2
NOT_FOUND: Final = 3
UNREACHABLE: Final = 4

_NOT_FOUND: Final = (
    TopicNotFound,
    GroupNotFound,
    MessageNotFound,
    StoreNotFound,
    ClientNotOnline,
    AccessNotFound,
    FileNotFoundError,
)


def exit_code(error: BaseException) -> int:
    """Return the exit code for `error`."""
    if isinstance(error, _NOT_FOUND):
        return NOT_FOUND
    if isinstance(error, RefusedError) and error.code == ResponseCode.BROKER_NOT_EXIST:
        return NOT_FOUND
    if isinstance(error, UsageError | InvalidParameter | MessageRefused):
        return USAGE
    if isinstance(error, TransportError):
        return UNREACHABLE
    return FAILED


def first_cause(error: BaseException) -> BaseException:
    """Return the first error inside nested exception groups of jobs and tasks."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return first_cause(group.exceptions[0])
    return error


@contextmanager
def errors_as_exits() -> Generator[None]:
    """Turn deliberate errors of TernMQ into a line on standard error and an exit code.

    `BrokenPipeError` is raised without its group: `LazyGroup` then ends the process without a line.
    """
    try:
        yield
    except (TernError, ExceptionGroup, OSError) as error:
        # Only now: `ternmq health` does without the client, and without gRPC.
        from ternmq_client.admin.descriptions import BrokersUnreachable

        cause = first_cause(error)
        if not isinstance(cause, TernError | OSError):
            raise
        if isinstance(cause, BrokenPipeError):
            raise cause from None
        if isinstance(cause, BrokersUnreachable):
            name_unreachable(cause.brokers)
            raise SystemExit(UNREACHABLE) from None
        lines = cause.problems if isinstance(cause, SettingsError) else (_one_line(cause),)
        for line in lines:
            print_line(f"ternmq: {line}", to_stderr=True)
        raise SystemExit(exit_code(cause)) from None


def name_unreachable(brokers: "Iterable[UnreachableBroker]") -> bool:
    """Print a line on standard error for each broker; return whether there was one."""
    lines = {" ".join(str(broker).split()): None for broker in brokers}
    for line in lines:
        print_line(f"ternmq: no answer from {line}", to_stderr=True)
    return bool(lines)


def leave_if_partial(brokers: "Iterable[UnreachableBroker]") -> None:
    """Name the brokers whose part is missing from the output, and leave.

    Raises:
        SystemExit: `brokers` is not empty; the code is `UNREACHABLE`.
    """
    if name_unreachable(brokers):
        raise SystemExit(UNREACHABLE)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
