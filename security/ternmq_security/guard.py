"""Guard of a service: identifies each caller, and checks each call before its handler.

The guard wraps handlers, so that it works over every network.
"""

import asyncio
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, Protocol

from ternmq_model.errors import RefusedError
from ternmq_remoting.rpc import (
    AUTHORIZATION_KEY,
    Call,
    Handler,
    PeerCertificate,
    Permits,
    StreamRpc,
)
from ternmq_remoting.service_methods import GET_ACCESS, PULL
from ternmq_security.audit.reporter import AuditReporter
from ternmq_security.caller import CallerIdentity
from ternmq_security.guarded_stream import GuardedStream, end_expired
from ternmq_security.rules import RULES, Rpc, Rule

CALLERS_MAX: Final = 10_000
"""Remembered identities of callers."""

_WAITS: Final = frozenset({PULL, GET_ACCESS})
"""Unary calls that wait, up to 30 s, for what their caller may no longer read by then."""

_BY_PATH: Final = {rpc.path: rpc for rpc in RULES}

_Key = tuple[bytes, PeerCertificate | None]


class Identities(Protocol):
    """Source of identities: `Identifier`, over a table of users."""

    @property
    def is_open(self) -> bool:
        """True while everything is allowed to everybody."""
        ...

    async def identify(self, call: Call) -> CallerIdentity:
        """Return the identity of a caller. See `Identifier`."""
        ...

    def renewed(self, caller: CallerIdentity) -> CallerIdentity | None:
        """Return the same identity by the present table; None = it is denied."""
        ...


class Guard:
    """Checks of the calls of one service. Owns the known callers and the open streams.

    Args:
        identifier: Source of identities.
        reporter: Reports to an audit trail; None = nobody asks for them.

    Attributes:
        is_open: True while nothing is checked.
    """

    def __init__(self, identifier: Identities, reporter: AuditReporter | None = None) -> None:
        self.reporter: Final = reporter
        self.is_open = identifier.is_open
        self._identifier = identifier
        self._changes = 0
        self._callers: dict[_Key, CallerIdentity] = {}
        self._under_way: dict[_Key, asyncio.Event] = {}
        self._streams: dict[GuardedStream, None] = {}

    def table_changed(self) -> None:
        """Apply a changed table: to later calls, and to open streams, some of which end."""
        self._changes += 1
        self.is_open = self._identifier.is_open
        if self.is_open:
            self._callers.clear()
            return
        renewed = self._identifier.renewed
        # Credentials that were unknown may be known by now: their next call identifies them again.
        known = ((key, renewed(each)) for key, each in self._callers.items() if each.user)
        self._callers = {key: caller for key, caller in known if caller is not None}
        for stream in self._streams:
            stream.renew(None if stream.caller is None else renewed(stream.caller))

    def step(self, now_ms: int) -> None:
        """End identities and streams whose tokens have expired. To be called each second at least.

        Args:
            now_ms: Unix milliseconds.
        """
        expired = [
            key
            for key, caller in self._callers.items()
            if caller.expires_at_ms is not None and caller.expires_at_ms <= now_ms
        ]
        for key in expired:
            del self._callers[key]
        for stream in self._streams:
            end_expired(stream, now_ms)

    def knows(self, metadata: Mapping[str, str]) -> bool:
        """Return whether a caller without a certificate was admitted. See `Gate`."""
        caller = self._callers.get(_key_of(metadata, None))
        return caller is not None and caller.allows(None)

    async def admit(self, call: Call, path: str) -> None:
        """Admit a caller that has an identity, before its request is read. See `Gate`.

        Raises:
            RefusedError: NO_PERMISSION: the caller has none, or wrong credentials.
        """
        rpc = _BY_PATH.get(path)
        caller = await self.identify(call, rpc)
        try:
            caller.check(None)
        except RefusedError as error:
            if self.reporter is not None and rpc is not None:
                self.reporter.refused(caller, rpc, call, (), error)
            raise

    def known(self, call: Call) -> CallerIdentity | None:
        """Return the identity of a caller, if it was identified since it last changed."""
        return self._callers.get(_key_of(call.metadata, call.certificate))

    async def identify(self, call: Call, rpc: Rpc | None) -> CallerIdentity:
        """Return the identity of a caller by the present table. Cancelling is safe.

        Args:
            call: Call with the caller's credentials.
            rpc: RPC of the call, for the report of wrong credentials; None = none is made.

        Raises:
            RefusedError: NO_PERMISSION: the credentials are wrong.
        """
        key = _key_of(call.metadata, call.certificate)
        while (known := self._callers.get(key)) is None:
            if (other := self._under_way.get(key)) is not None:  # a token's check takes long
                await other.wait()
                continue
            over = self._under_way[key] = asyncio.Event()
            changes = self._changes
            try:
                caller = await self._identifier.identify(call)
                if changes == self._changes:
                    self._remember(key, caller)
                    return caller
            except RefusedError as error:
                if self.reporter is not None and rpc is not None:
                    self.reporter.refused(None, rpc, call, (), error)
                raise
            finally:
                del self._under_way[key]
                over.set()
        return known

    async def serve_stream(self, handler: Handler, rule: Rule, stream: Any, call: Call) -> None:
        """Serve a stream, and check what the caller sends on it.

        Raises:
            RefusedError: NO_PERMISSION: wrong credentials, a refused message, or a permission that
                was taken away; SERVICE_NOT_AVAILABLE: the stream must be opened again.
        """
        caller = None if self.is_open else await self.identify(call, handler.rpc)
        if self.reporter is not None and caller is not None:
            caller = self.reporter.permits(caller, handler.rpc, call)
        if caller is not None:
            caller.check(None)
        guarded = GuardedStream(stream, rule, caller)
        self._streams[guarded] = None
        try:
            await guarded.serve(handler.function, call)
        finally:
            del self._streams[guarded]

    def _remember(self, key: _Key, caller: CallerIdentity) -> None:
        if len(self._callers) >= CALLERS_MAX:
            del self._callers[next(iter(self._callers))]
        self._callers[key] = caller


def guarded(handlers: Sequence[Handler], guard: Guard) -> list[Handler]:
    """Return handlers whose calls the guard checks.

    Raises:
        KeyError: An RPC has no rule.
    """
    return [_guarded(handler, RULES[handler.rpc], guard) for handler in handlers]


def _guarded(handler: Handler, rule: Rule, guard: Guard) -> Handler:
    rpc, reporter = handler.rpc, guard.reporter
    if reporter is not None:
        handler = Handler(rpc, reporter.reporting(handler, rule))
    serve = handler.function

    def check(request: Any, call: Call, caller: CallerIdentity) -> Permits:
        permits = caller if reporter is None else reporter.permits(caller, rpc, call)
        for alternatives in rule(request):
            permits.check(*alternatives)
        return permits

    async def serve_call(request: Any, call: Call) -> Any:
        if not guard.is_open:
            permits = check(request, call, guard.known(call) or await guard.identify(call, rpc))
            call = Call(call.peer, call.metadata, call.certificate, permits)
        reply = await serve(request, call)
        if rpc in _WAITS and not guard.is_open:
            check(request, call, guard.known(call) or await guard.identify(call, rpc))
        return reply

    async def serve_stream(stream: Any, call: Call) -> None:
        await guard.serve_stream(handler, rule, stream, call)

    return Handler(rpc, serve_stream if isinstance(rpc, StreamRpc) else serve_call)


def _key_of(metadata: Mapping[str, str], certificate: PeerCertificate | None) -> _Key:
    """Return the key of a caller, without the token."""
    authorization = metadata.get(AUTHORIZATION_KEY, "")
    return sha256(authorization.encode()).digest(), certificate
