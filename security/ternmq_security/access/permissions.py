"""Permissions of one caller, compiled for quick decisions. Pure."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from ternmq_model.permission import NAME_CHARS_MAX, Action, Need, Resource, ResourceKind
from ternmq_security.access.access_table import AccessTable
from ternmq_security.access.grants import Effect, Grant
from ternmq_security.access.user import ANONYMOUS

MEMO_MAX: Final = 4096
"""Remembered decisions, so that callers who invent names cannot fill the memory."""


class Permissions:
    """Decisions about the calls of one user. Owned by the loop of its service.

    Args:
        grants: Grants of the user.
        is_known: True when the caller may do what every known identity may.
        is_open: True when everything is allowed.
    """

    def __init__(self, grants: Iterable[Grant], *, is_known: bool, is_open: bool = False) -> None:
        self._is_open = is_open
        self._exact: dict[Effect, set[tuple[Action, Resource]]] = {each: set() for each in Effect}
        self._every: dict[Effect, set[Action]] = {each: set() for each in Effect}
        self._prefixes: dict[Effect, dict[tuple[Action, ResourceKind], set[str]]] = {
            each: {} for each in Effect
        }
        for grant in grants:
            self._add(grant)
        self._memo: dict[Need | None, bool] = {None: is_open or is_known}

    def _add(self, grant: Grant) -> None:
        pattern = grant.pattern
        if pattern.kind is None:
            self._every[grant.effect].add(grant.action)
        elif pattern.is_prefix:
            key = (grant.action, pattern.kind)
            self._prefixes[grant.effect].setdefault(key, set()).add(pattern.name)
        else:
            need = (grant.action, Resource(pattern.kind, pattern.name))
            self._exact[grant.effect].add(need)

    def allows(self, need: Need | None) -> bool:
        """Return whether a call with `need` is allowed; None = every known identity may call."""
        known = self._memo.get(need)
        if known is not None:
            return known
        assert need is not None
        allowed = self._is_open or (
            self._has(Effect.ALLOW, need) and not self._has(Effect.DENY, need)
        )
        if len(need[1].name) > NAME_CHARS_MAX:
            return allowed
        if len(self._memo) >= MEMO_MAX:
            self._memo = {None: self._memo[None]}
        self._memo[need] = allowed
        return allowed

    def _has(self, effect: Effect, need: Need) -> bool:
        action, resource = need
        if action in self._every[effect] or need in self._exact[effect]:
            return True
        prefixes = self._prefixes[effect].get((action, resource.kind))
        if not prefixes:
            return False
        name = resource.name
        return any(name[:length] in prefixes for length in range(len(name) + 1))


def permissions_of(table: AccessTable, user: str = ANONYMOUS) -> Permissions:
    """Return the permissions of a user, or those of callers without identity.

    A table without users allows everything to everybody. Otherwise a name that is no user may
    nothing, and `anonymous` what is granted to it; with one allowance it counts as known.
    """
    if not table.users:
        return Permissions((), is_known=True, is_open=True)
    grants = table.grants_of(user)
    if user == ANONYMOUS:
        is_known = any(each.effect is Effect.ALLOW for each in grants)
        return Permissions(grants, is_known=is_known)
    is_known = table.user(user) is not None
    return Permissions(grants if is_known else (), is_known=is_known)


def deciding_grant(table: AccessTable, user: str, need: Need) -> Grant | None:
    """Return the grant by which a user has or lacks a permission: a denial before an allowance.

    None = no grant is about it.
    """
    matching = [
        grant
        for grant in table.grants_of(user)
        if Permissions([replace(grant, effect=Effect.ALLOW)], is_known=True).allows(need)
    ]
    return min(matching, key=lambda each: each.effect is Effect.ALLOW, default=None)
