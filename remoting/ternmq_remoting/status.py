"""Errors as gRPC statuses, and back. Pure.

An error reaches the caller in one of three forms:

* the field `status` of a unary reply: every `RefusedError`;
* a gRPC status with `ternmq-code` in its trailing metadata: a `RefusedError` that ends a stream or
  a call without a reply;
* a gRPC status alone: an error of gRPC or of a proxy. INTERNAL, UNKNOWN and DATA_LOSS then concern
  the connection, because a server reports a crashed handler with a code.

gRPC uses UNAVAILABLE both for "never connected" and for "the connection broke during the request".
Only the first is safe to repeat. gRPC's load balancing reports the first before a request leaves,
with the texts of `_NEVER_SENT`; all other texts count as the second. A change of those texts in a
later gRPC would only make errors more careful.

Statuses have gRPC's names, so this module does not need gRPC.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ternmq_model.errors import (
    ClosedError,
    ConnectionLost,
    IllegalMessage,
    IllegalName,
    RefusedError,
    RequestTimedOut,
    StoreFailed,
    StoreFull,
    TernError,
    Unreachable,
    refusal,
)
from ternmq_model.response_code import ResponseCode

CODE_KEY: Final = "ternmq-code"
"""Key of trailing metadata with the response code of a refusal that ended a stream or call."""

DOUBT_KEY: Final = "ternmq-may-have-happened"
"""Key of trailing metadata beside `CODE_KEY`: "1" = the request may be done in part."""

NOT_BEGUN_KEY: Final = "ternmq-not-begun"
"""Key of trailing metadata of UNAVAILABLE: "1" = no server is behind the port, so that the request
was not begun."""

_UNRESOLVED: Final = (
    "errors resolving",
    "dns resolution failed",
    "name resolution failed",
    "empty address list",
)

_NEVER_SENT: Final = (
    *_UNRESOLVED,
    "failed to connect to all addresses",
    "no children in weighted_target",
)

_NO_CONNECTION: Final = re.compile("^failed to connect to all addresses; last error: [A-Z_]+: ")
"""Text of gRPC before the reason."""

_WRONG_NAME: Final = "Hostname Verification Check failed"

_REFUSAL_STATUS: Final[Mapping[int, str]] = {
    ResponseCode.SYSTEM_ERROR: "INTERNAL",
    ResponseCode.SYSTEM_BUSY: "RESOURCE_EXHAUSTED",
    ResponseCode.FLOW_CONTROL: "RESOURCE_EXHAUSTED",
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: "UNIMPLEMENTED",
    ResponseCode.MESSAGE_ILLEGAL: "INVALID_ARGUMENT",
    ResponseCode.INVALID_PARAMETER: "INVALID_ARGUMENT",
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: "INVALID_ARGUMENT",
    ResponseCode.NO_PERMISSION: "PERMISSION_DENIED",
    ResponseCode.TOPIC_NOT_EXIST: "NOT_FOUND",
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: "NOT_FOUND",
    ResponseCode.QUERY_NOT_FOUND: "NOT_FOUND",
    ResponseCode.TOPIC_EXIST_ALREADY: "ALREADY_EXISTS",
}
"""gRPC status beside a code, for other clients of gRPC. Other codes: FAILED_PRECONDITION."""

_STATUS_REFUSAL: Final[Mapping[str, ResponseCode]] = {
    "UNIMPLEMENTED": ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
    "INVALID_ARGUMENT": ResponseCode.INVALID_PARAMETER,
    "OUT_OF_RANGE": ResponseCode.INVALID_PARAMETER,
    "PERMISSION_DENIED": ResponseCode.NO_PERMISSION,
    "UNAUTHENTICATED": ResponseCode.NO_PERMISSION,
    "NOT_FOUND": ResponseCode.QUERY_NOT_FOUND,
    "ALREADY_EXISTS": ResponseCode.TOPIC_EXIST_ALREADY,
    "RESOURCE_EXHAUSTED": ResponseCode.SYSTEM_BUSY,
    "FAILED_PRECONDITION": ResponseCode.SERVICE_NOT_AVAILABLE,
}
"""Response code of a bare gRPC status that only a peer sends. Other statuses are transport
errors."""


@dataclass(frozen=True, slots=True)
class GrpcStatus:
    """Outcome of a call in gRPC."""

    code: str
    """Name of the status in gRPC, such as "UNAVAILABLE"."""

    details: str
    trailing: Mapping[str, str]


def error_of_status(status: GrpcStatus, peer: str) -> TernError:
    """Return the caller's error for a call that did not end with OK.

    Args:
        status: Outcome of the call.
        peer: Address of the peer, for the message.
    """
    code, details = status.code, status.details
    if (code_text := status.trailing.get(CODE_KEY, "")).isdecimal():
        error = refusal(int(code_text), details, peer)
        # A peer that failed during the work may have done a part of it.
        error.may_have_happened = (
            error.code == ResponseCode.SYSTEM_ERROR or status.trailing.get(DOUBT_KEY) == "1"
        )
        return error
    if code == "UNAVAILABLE" and status.trailing.get(NOT_BEGUN_KEY) == "1":
        return Unreachable(f"{peer}: {details}")
    if code == "UNAVAILABLE" and details.lower().startswith(_NEVER_SENT):
        reason = _NO_CONNECTION.sub("", details).removeprefix(f"ipv4:{peer}: ")
        if details.lower().startswith(_UNRESOLVED):
            reason = "the host name cannot be resolved"
        elif _WRONG_NAME in reason:
            reason = "the peer's certificate is not valid for the expected name"
        return Unreachable(f"{peer}: {reason}")
    if code == "DEADLINE_EXCEEDED":
        return RequestTimedOut(f"{peer}: no answer in time")
    if code == "RESOURCE_EXHAUSTED" and "larger than max" in details:
        error = refusal(ResponseCode.MESSAGE_ILLEGAL, details, peer)
        # Only the reply can have been too large here.
        error.may_have_happened = details.startswith(("CLIENT: Received", "SERVER: Sent"))
        return error
    if (refused := _STATUS_REFUSAL.get(code)) is not None:
        return refusal(refused, f"{code} {details}", peer)
    return ConnectionLost(f"{peer}: {code} {details}")


def refusal_of(error: TernError) -> RefusedError | None:
    """Return the refusal for a handler's error; None = a transport error."""
    match error:
        case RefusedError():
            return error
        case IllegalMessage():
            return refusal(ResponseCode.MESSAGE_ILLEGAL, str(error))
        case IllegalName():
            return refusal(ResponseCode.INVALID_PARAMETER, str(error))
        case ClosedError() | StoreFull() | StoreFailed():
            return refusal(ResponseCode.SERVICE_NOT_AVAILABLE, str(error))
        case ConnectionLost() | Unreachable() | RequestTimedOut():
            return None
        case _:
            return refusal(
                ResponseCode.SYSTEM_ERROR, str(error), may_have_happened=error.may_have_happened
            )


def refusal_from(error: TernError) -> RefusedError:
    """Return the refusal for a handler's error.

    Raises:
        TernError: `error` is a transport error and is raised itself.
    """
    refused = refusal_of(error)
    if refused is None:
        raise error
    return refused


def status_of_error(error: TernError) -> GrpcStatus:
    """Return the gRPC status that ends a stream, or a call without a reply, for `error`."""
    if (refused := refusal_of(error)) is not None:
        code = _REFUSAL_STATUS.get(refused.code, "FAILED_PRECONDITION")
        trailing = {CODE_KEY: str(refused.code)}
        if refused.may_have_happened:
            trailing[DOUBT_KEY] = "1"
        return GrpcStatus(code, refused.remark, trailing)
    if isinstance(error, RequestTimedOut):
        return GrpcStatus("DEADLINE_EXCEEDED", str(error), {})
    return GrpcStatus("UNAVAILABLE", str(error), {})
