"""Errors as gRPC statuses, and back. Pure; the only tables of this kind.

Three ways carry an error to the caller:

* a unary reply's `status` field: every `RefusedError`;
* a gRPC status with `ternmq-code` in its trailing metadata: a `RefusedError` that ends a stream, or
  a call that has no reply to put it into;
* a gRPC status alone: what gRPC itself, or a proxy, has to say. INTERNAL, UNKNOWN and DATA_LOSS are
  then words about the connection: when a handler of ours crashes, its server says so with a code.

UNAVAILABLE is gRPC's word both for "never connected" and for "connection broke under the request".
The first is safe to repeat, the second is not. gRPC's load balancing answers the first itself,
before a request leaves, with the texts of `_NEVER_SENT`; everything else counts as the second. A
change of those texts in a later gRPC would make errors more careful, never less.

Statuses go by gRPC's names for them, so that nothing here needs gRPC.
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
"""Trailing metadata: the response code of a refusal that ended a stream or a call."""

DOUBT_KEY: Final = "ternmq-may-have-happened"
"""Trailing metadata beside `CODE_KEY`: "1" when part of it may be done all the same."""

NOT_BEGUN_KEY: Final = "ternmq-not-begun"
"""Trailing metadata of UNAVAILABLE: "1" when nobody serves behind the port at that moment, so that
nothing was done."""

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
"""gRPC's words before the reason."""

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
"""The gRPC status beside a code, for readers that know only gRPC. Others: FAILED_PRECONDITION."""

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
"""Meaning of a bare gRPC status when a peer must have said it. All others are transport
errors."""


@dataclass(frozen=True, slots=True)
class GrpcStatus:
    """The outcome of a call, as gRPC tells it."""

    code: str
    """gRPC's name of it, such as "UNAVAILABLE"."""

    details: str
    trailing: Mapping[str, str]


def error_of_status(status: GrpcStatus, peer: str) -> TernError:
    """Return the error a caller gets for a call that did not end with OK.

    Args:
        status: How gRPC says the call ended.
        peer: Address of who was called, for the message.
    """
    code, details = status.code, status.details
    if (told := status.trailing.get(CODE_KEY, "")).isdecimal():
        error = refusal(int(told), details, peer)
        # A peer that failed while it worked may have done part of the work.
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
        return Unreachable(f"{peer}: {reason}")
    if code == "DEADLINE_EXCEEDED":
        return RequestTimedOut(f"{peer}: no answer in time")
    if code == "RESOURCE_EXHAUSTED" and "larger than max" in details:
        error = refusal(ResponseCode.MESSAGE_ILLEGAL, details, peer)
        # Only the reply can be what the caller received or the server sent.
        error.may_have_happened = details.startswith(("CLIENT: Received", "SERVER: Sent"))
        return error
    if (refused := _STATUS_REFUSAL.get(code)) is not None:
        return refusal(refused, f"{code} {details}", peer)
    return ConnectionLost(f"{peer}: {code} {details}")


def refusal_of(error: TernError) -> RefusedError | None:
    """Return what tells a handler's error to the caller, or None for a transport error."""
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
    """Return what tells a handler's error to the caller.

    Raises:
        TernError: `error` itself, when it is a transport error.
    """
    refused = refusal_of(error)
    if refused is None:
        raise error
    return refused


def status_of_error(error: TernError) -> GrpcStatus:
    """Return the gRPC status that ends a stream, or a call that has no reply, for `error`."""
    if (refused := refusal_of(error)) is not None:
        code = _REFUSAL_STATUS.get(refused.code, "FAILED_PRECONDITION")
        trailing = {CODE_KEY: str(refused.code)}
        if refused.may_have_happened:
            trailing[DOUBT_KEY] = "1"
        return GrpcStatus(code, refused.remark, trailing)
    if isinstance(error, RequestTimedOut):
        return GrpcStatus("DEADLINE_EXCEEDED", str(error), {})
    return GrpcStatus("UNAVAILABLE", str(error), {})
