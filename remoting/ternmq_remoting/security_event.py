"""Events of security at a service, for an audit trail. Pure."""

from dataclasses import dataclass
from enum import StrEnum

from ternmq_model.address import Address


class EventKind(StrEnum):
    """Kind of an event of security."""

    ADMIN = "admin"
    """Call that changes a service or its resources, with its outcome."""

    REFUSED = "refused"
    """Attempt for which a caller has no permission or wrong credentials."""

    SESSION = "session"
    """First call of a user from an address, or a client that has opened its session."""


ALLOWED = "allowed"
REFUSED = "refused"
CANCELLED = "cancelled"
"""Outcome of a call whose caller left before the answer: a change may have happened."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SecurityEvent:
    """Event of security at a service: who did what, and the outcome.

    No field has a token, the hash of one, or the body of a message.
    """

    kind: EventKind
    user: str | None
    """Name of the user; None = an unknown identity, or no users exist."""

    claimed: str | None = None
    """User whose name a wrong token has; None = no token was wrong, or no user has that name."""

    certificate: str | None = None
    """Subject of the caller's certificate; None = it showed none."""

    address: Address
    """Address of the caller's socket."""

    action: str
    """Name of the RPC, such as `PutTopic`."""

    resource: str | None = None
    """Resources, such as `topic:orders`; None = the call is about none."""

    outcome: str
    """`allowed`, `refused`, `cancelled`, or the name of the error."""

    reason: str | None = None
    """Text of the refusal or error; None = there is none."""

    details: str | None = None
    """Contents of the change, or the client of a session; None = there are none."""
