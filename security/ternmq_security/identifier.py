"""Identities of callers, by their tokens and certificates and the present table."""

from collections.abc import Callable
from typing import Final

from ternmq_model.clock import Clock
from ternmq_model.errors import UsageError, refusal
from ternmq_model.response_code import ResponseCode
from ternmq_remoting.rpc import AUTHORIZATION_KEY, Call
from ternmq_runtime.blocking_pool import Blocking
from ternmq_security.access.access_table import AccessTable, Doubt
from ternmq_security.access.permissions import Permissions, permissions_of
from ternmq_security.access.user import ANONYMOUS
from ternmq_security.caller import CallerIdentity, Proof
from ternmq_security.tokens import matches, token_id_of, user_of

SCHEME: Final = "Bearer "
"""Scheme of the authorization, before a token."""


class Identifier:
    """Identities by one table. Owned by the loop of its service.

    Args:
        table: Function that returns the present table; while it has a doubt, every caller is
            refused.
        blocking: Runs the checks of tokens.
        clock: Wall clock, by which tokens expire.
    """

    def __init__(self, table: Callable[[], AccessTable], blocking: Blocking, clock: Clock) -> None:
        self._present = table
        self._blocking = blocking
        self._clock = clock
        self._permissions: dict[str, Permissions] = {}
        self._source: AccessTable | None = None
        """Table of the remembered permissions."""

    @property
    def is_open(self) -> bool:
        """True while everything is allowed to everybody: the table is known and has no users."""
        table = self._present()
        return table.doubt is Doubt.NONE and not table.users

    async def identify(self, call: Call) -> CallerIdentity:
        """Return the identity of a caller. A token counts before a certificate.

        The first check of a token takes about 50 ms, and the refusal of a text that is none of them
        microseconds. Cancelling is safe.

        Raises:
            RefusedError: NO_PERMISSION: the token is wrong, revoked or expired, or the certificate
                is denied. SERVICE_NOT_AVAILABLE: no NameServer has answered yet. SYSTEM_ERROR:
                users exist, and this service may not read them.
        """
        name, token_id = None, ""
        if authorization := call.metadata.get(AUTHORIZATION_KEY, ""):
            name, token_id = await self._check_token(authorization.removeprefix(SCHEME))
        caller = self._find(self._table(), name, Proof(token_id, call.certificate))
        if caller is None:
            raise refusal(ResponseCode.NO_PERMISSION, "the credentials of the caller are denied")
        return caller

    def renewed(self, caller: CallerIdentity) -> CallerIdentity | None:
        """Return the identity with the same proof by the present table; None = it is denied."""
        table = self._present()
        return (
            None if table.doubt is not Doubt.NONE else self._find(table, caller.user, caller.proof)
        )

    def _table(self) -> AccessTable:
        table = self._present()
        if table.doubt is Doubt.UNASKED:
            remark = "users and permissions are not known here yet"
            raise refusal(ResponseCode.SERVICE_NOT_AVAILABLE, remark)
        if table.doubt is Doubt.REFUSED:
            remark = (
                "users exist, and this service may not read them: it needs replicate on cluster"
            )
            raise refusal(ResponseCode.SYSTEM_ERROR, remark)
        return table

    async def _check_token(self, text: str) -> tuple[str, str]:
        """Return the user and the id of a token."""
        table = self._table()
        try:
            user = table.user(user_of(text))
        except UsageError:
            user = None
        if user is not None:
            token_id, now_ms = token_id_of(text), self._clock.wall_ms()
            for token in user.tokens:
                is_meant = token.token_id == token_id and token.is_valid_at(now_ms)
                if is_meant and await self._blocking.run(matches, text, token):
                    return user.name, token_id
        raise refusal(ResponseCode.NO_PERMISSION, "the token is wrong, revoked or expired")

    def _find(self, table: AccessTable, name: str | None, proof: Proof) -> CallerIdentity | None:
        """Return the identity with a proof that was checked before; None = it is denied."""
        shown, subject = proof.certificate, ""
        if shown is not None:
            subject = shown.subject
            if table.denies(subject, shown.serial):
                return None
        if not proof.token_id:
            name = table.holder_of(subject)
            return CallerIdentity(name, self._permissions_by(table, name), proof)
        assert name is not None, "a token names its user"
        user, now_ms = table.user(name), self._clock.wall_ms()
        for token in user.tokens if user is not None else ():
            if token.token_id == proof.token_id and token.is_valid_at(now_ms):
                permissions = self._permissions_by(table, name)
                return CallerIdentity(name, permissions, proof, token.expires_at_ms or None)
        return None

    def _permissions_by(self, table: AccessTable, name: str | None) -> Permissions:
        if self._source is not table:
            self._source, self._permissions = table, {}
        name = name or ANONYMOUS
        found = self._permissions.get(name)
        if found is None:
            found = self._permissions[name] = permissions_of(table, name)
        return found


def claimed_user(authorization: str, table: AccessTable) -> str | None:
    """Return the user whose name is in a token, right or wrong; None when no user has the name.

    A malformed token may have parts of its secret in place of the name.
    """
    try:
        name = user_of(authorization.removeprefix(SCHEME))
    except UsageError:
        return None
    return None if table.user(name) is None else name
