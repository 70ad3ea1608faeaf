"""Callers: identities with their permissions, and the text of a refusal. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from ternmq_model.errors import RefusedError, refusal
from ternmq_model.permission import CLUSTER, Action, Need, Resource
from ternmq_model.response_code import ResponseCode
from ternmq_remoting.rpc import PeerCertificate

_VERBS: Final = {
    Action.PUBLISH: "publish to",
    Action.SUBSCRIBE: "subscribe to",
    Action.ADMIN: "administer",
    Action.REPLICATE: "replicate",
}


class Decisions(Protocol):
    """Decisions about the needs of one user."""

    def allows(self, need: Need | None) -> bool:
        """Return whether the user has a permission; None = the one of every known identity."""
        ...


@dataclass(frozen=True, slots=True)
class Proof:
    """Public part of a caller's credentials, by which a changed table may know them again."""

    token_id: str = ""
    """Id of the caller's token; empty = it has sent none."""

    certificate: PeerCertificate | None = None
    """Certificate of the caller; None = it showed none."""


NO_PROOF: Final = Proof()


OnRefused: TypeAlias = Callable[[tuple[Need | None, ...], RefusedError], None]
"""Function that gets the alternatives of a refused item, with the refusal."""


@dataclass(slots=True, eq=False)
class CallerIdentity:
    """Identity with its permissions: the `Permits` of its calls. Nobody changes one."""

    user: str | None
    """Name of the user; None = an unknown identity."""

    decisions: Decisions
    proof: Proof = NO_PROOF
    expires_at_ms: int | None = None
    """End of the identity, Unix milliseconds; None = it has none."""

    on_refused: OnRefused | None = None
    """Called with each refusal of one call; None = nobody asks for them."""

    def allows(self, need: Need | None) -> bool:
        """Return whether the caller has a permission; None = the one of every known identity."""
        return self.decisions.allows(need)

    def check(self, *alternatives: Need | None) -> None:
        """Return if the caller has one of the permissions.

        Raises:
            PermissionRefused: The caller has none of them. The call had no effect.
        """
        allows = self.decisions.allows
        for need in alternatives:
            if allows(need):
                return
        error = denial(self.user, *alternatives)
        if self.on_refused is not None:
            self.on_refused(alternatives, error)
        raise error


def denial(user: str | None, *alternatives: Need | None) -> RefusedError:
    """Return the refusal of a call that needs one of some permissions."""
    verbs: dict[Resource, list[str]] = {}
    for action, resource in filter(None, alternatives):
        verbs.setdefault(resource, []).append(_VERBS[action])
    if len(verbs) > 1:
        verbs.pop(CLUSTER, None)  # administrators are no help to others
    missing = " or ".join(f"{' or '.join(words)} {resource}" for resource, words in verbs.items())
    if user is None:
        remark = f"an unknown identity may not {missing or 'call this service'}: give credentials"
    else:
        remark = f"user {user!r} may not {missing or 'call this service'}"
    return refusal(ResponseCode.NO_PERMISSION, remark)
