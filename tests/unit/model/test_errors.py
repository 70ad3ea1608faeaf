import pytest

from ternmq_model.errors import (
    ClosedError,
    ConnectionLost,
    Fault,
    IllegalMessage,
    RequestTimedOut,
    StoreFull,
    TernError,
    Unreachable,
    refusal,
)
from ternmq_model.message import SendManyFailed
from ternmq_model.response_code import CALLERS_CODES, RETRYABLE_CODES, STORED_CODES, ResponseCode


@pytest.mark.parametrize(
    ("error", "fault", "retryable", "may_have_happened"),
    [
        (IllegalMessage("x"), Fault.CALLER, False, False),
        (ClosedError("x"), Fault.CALLER, False, False),
        (Unreachable("x"), Fault.NETWORK, True, False),
        (RequestTimedOut("x"), Fault.NETWORK, True, True),
        (ConnectionLost("x"), Fault.NETWORK, True, True),
        (StoreFull("x"), Fault.BROKER, False, False),
        (refusal(ResponseCode.SYSTEM_BUSY, "x"), Fault.BROKER, True, False),
        (refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "x"), Fault.BROKER, True, False),
        (refusal(ResponseCode.MESSAGE_ILLEGAL, "x"), Fault.CALLER, False, False),
        (refusal(ResponseCode.TOPIC_NOT_EXIST, "x"), Fault.CALLER, True, False),
        (refusal(ResponseCode.SYSTEM_ERROR, "x", may_have_happened=True), Fault.BROKER, True, True),
        (refusal(4711, "of a later version"), Fault.BROKER, False, False),
        (SendManyFailed([Unreachable("x"), IllegalMessage("y")]), Fault.NETWORK, False, False),
    ],
)
def test_every_error_answers_the_three_questions(
    error: TernError, fault: Fault, retryable: bool, may_have_happened: bool
) -> None:
    answers = (error.fault, error.retryable, error.may_have_happened)
    assert answers == (fault, retryable, may_have_happened)


def test_response_codes_are_never_both_success_and_refusal() -> None:
    assert not STORED_CODES & (CALLERS_CODES | RETRYABLE_CODES)
