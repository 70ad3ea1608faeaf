import pytest

from ternmq_model.errors import (
    BrokerBusy,
    ClosedError,
    ConnectionLost,
    CorruptRecord,
    IllegalMessage,
    IllegalName,
    InvalidParameter,
    MessageRefused,
    RefusedError,
    RequestTimedOut,
    StoreFull,
    TernError,
    TopicNotFound,
    TransportError,
    Unreachable,
    refusal,
)
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.response_code import ResponseCode
from ternmq_remoting.server import CRASHED
from ternmq_remoting.status import GrpcStatus, error_of_status, refusal_of, status_of_error

REFUSED = "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: refused"


@pytest.mark.parametrize(
    ("code", "details", "error", "may_have_happened"),
    [
        ("UNAVAILABLE", REFUSED, Unreachable, False),
        ("UNAVAILABLE", "errors resolving nowhere:1: Domain name not found", Unreachable, False),
        ("UNAVAILABLE", "DNS resolution failed for nowhere:1: not found", Unreachable, False),
        ("UNAVAILABLE", "Socket closed", ConnectionLost, True),
        ("UNAVAILABLE", "recvmsg:Connection reset by peer", ConnectionLost, True),
        ("UNAVAILABLE", "keepalive watchdog timeout", ConnectionLost, True),
        ("UNAVAILABLE", "", ConnectionLost, True),
        ("CANCELLED", "by the peer", ConnectionLost, True),
        ("ABORTED", "", ConnectionLost, True),
        ("DEADLINE_EXCEEDED", "Deadline Exceeded", RequestTimedOut, True),
        ("INTERNAL", "Internal error from Core", ConnectionLost, True),
        ("INTERNAL", "Received RST_STREAM with error code 2", ConnectionLost, True),
        ("UNKNOWN", "Stream removed", ConnectionLost, True),
        ("INTERNAL", "Error received from peer", ConnectionLost, True),
        ("UNKNOWN", "", ConnectionLost, True),
        ("DATA_LOSS", "a word of a proxy", ConnectionLost, True),
        ("UNIMPLEMENTED", "Method not found!", RefusedError, False),
        ("INVALID_ARGUMENT", "cannot be parsed", InvalidParameter, False),
        ("RESOURCE_EXHAUSTED", "too many", BrokerBusy, False),
        ("RESOURCE_EXHAUSTED", "CLIENT: Sent message larger than max (9)", MessageRefused, False),
        ("RESOURCE_EXHAUSTED", "SERVER: Received message larger than max", MessageRefused, False),
        ("RESOURCE_EXHAUSTED", "CLIENT: Received message larger than max", MessageRefused, True),
        ("RESOURCE_EXHAUSTED", "SERVER: Sent message larger than max (9)", MessageRefused, True),
    ],
)
def test_bare_grpc_status_maps_to_blame_and_doubt(
    code: str, details: str, error: type[TernError], may_have_happened: bool
) -> None:
    found = error_of_status(GrpcStatus(code, details, {}), "broker:1")
    assert type(found) is error
    assert found.may_have_happened is may_have_happened
    assert str(found).startswith("broker:1: ")


def test_address_that_refuses_is_named_once() -> None:
    (near, far) = (
        str(error_of_status(GrpcStatus("UNAVAILABLE", REFUSED, {}), peer))
        for peer in ("127.0.0.1:1", "broker:1")
    )
    assert (near, far) == ("127.0.0.1:1: refused", "broker:1: ipv4:127.0.0.1:1: refused")


def test_handler_crash_is_reported_as_the_peers_and_leaves_doubt() -> None:
    found = error_of_status(CRASHED, "broker:1")
    assert isinstance(found, RefusedError)
    assert (found.code, found.may_have_happened) == (ResponseCode.SYSTEM_ERROR, True)


@pytest.mark.parametrize("code", [*map(int, ResponseCode), 9999])
def test_refusal_ending_a_stream_arrives_as_it_was_raised(code: int) -> None:
    sent = refusal(code, "because")
    told = error_of_status(status_of_error(sent), "broker:1")
    assert isinstance(told, RefusedError)
    assert (told.code, told.remark, told.retryable) == (code, "because", sent.retryable)
    assert type(told) is type(sent)
    assert told.peer == "broker:1"


@pytest.mark.parametrize("doubt", [True, False])
def test_refusal_ending_a_stream_keeps_its_doubt(*, doubt: bool) -> None:
    sent = refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "because", may_have_happened=doubt)
    assert error_of_status(status_of_error(sent), "broker:1").may_have_happened is doubt


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5"])
def test_non_numeric_code_is_ignored(text: str) -> None:
    status = GrpcStatus("NOT_FOUND", "gone", {"ternmq-code": text})
    found = error_of_status(status, "broker:1")
    assert isinstance(found, RefusedError)
    assert found.code == ResponseCode.QUERY_NOT_FOUND


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TopicNotFound(17, "T"), ResponseCode.TOPIC_NOT_EXIST),
        (IllegalMessage("body"), ResponseCode.MESSAGE_ILLEGAL),
        (IllegalName("topic", "a b", "rule"), ResponseCode.INVALID_PARAMETER),
        (ClosedError("closing"), ResponseCode.SERVICE_NOT_AVAILABLE),
        (StoreFull("disk"), ResponseCode.SERVICE_NOT_AVAILABLE),
        (CorruptRecord(PhysicalOffset(7), "torn"), ResponseCode.SYSTEM_ERROR),
    ],
)
def test_every_handler_error_has_a_response_code(error: TernError, code: int) -> None:
    refused = refusal_of(error)
    assert refused is not None
    assert refused.code == code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Unreachable("nameserver"), "UNAVAILABLE"),
        (ConnectionLost("nameserver"), "UNAVAILABLE"),
        (RequestTimedOut("nameserver"), "DEADLINE_EXCEEDED"),
    ],
)
def test_transport_error_of_a_handler_stays_one_and_keeps_its_doubt(
    error: TransportError, code: str
) -> None:
    assert refusal_of(error) is None
    status = status_of_error(error)
    assert status.code == code
    # What the handler could not reach, the caller did reach: it may have happened.
    assert error_of_status(status, "broker:1").may_have_happened
