"""Identities for tests: permissions that are given, and a table of users that a test changes."""

import asyncio
from typing import Any

from ternmq_model.permission import Need
from ternmq_remoting.rpc import AUTHORIZATION_KEY, Call
from ternmq_security.caller import CallerIdentity


class Granted:
    """Decisions: these permissions are granted, and no others."""

    def __init__(self, *needs: Need, is_known: bool = True) -> None:
        self.needs: set[Need | None] = {*needs}
        if is_known:
            self.needs.add(None)

    def allows(self, need: Need | None) -> bool:
        """Return whether the permission is granted."""
        return need in self.needs


class Identities:
    """Table of users by their authorization. One given alone is that of every call."""

    def __init__(self, *everybody: CallerIdentity, **by_authorization: CallerIdentity) -> None:
        self.callers: dict[str, CallerIdentity] = by_authorization
        self.everybody = (
            everybody[0] if everybody else CallerIdentity(None, Granted(is_known=False))
        )
        self.is_open = False
        self.identified = 0
        self.pause_s = 0.0

    async def identify(self, call: Call) -> CallerIdentity:
        """Return the caller with the authorization of the call."""
        self.identified += 1
        authorization = call.metadata.get(AUTHORIZATION_KEY, "")
        if self.pause_s:
            await asyncio.sleep(self.pause_s)
        return self.callers.get(authorization, self.everybody)

    def renewed(self, caller: CallerIdentity) -> CallerIdentity | None:
        """Return the caller of the same name."""
        if caller.user == self.everybody.user:
            return self.everybody
        return next((each for each in self.callers.values() if each.user == caller.user), None)


class OneStream:
    """Handler's side of a stream, on which the peer sends these messages and finishes."""

    def __init__(self, *requests: Any) -> None:
        self.requests = list(requests)
        self.written: list[Any] = []

    async def read(self) -> Any:
        """Return the next message."""
        return self.requests.pop(0) if self.requests else None

    async def write(self, message: Any, /) -> None:
        """Keep a reply."""
        self.written.append(message)
