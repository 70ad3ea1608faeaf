"""Streams of one caller, which end when the caller loses a permission that they use."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

from google.protobuf.message import Message as ProtoMessage

from ternmq_model.errors import RefusedError, refusal
from ternmq_model.permission import Need
from ternmq_model.response_code import ResponseCode
from ternmq_remoting.encoded_message import EncodedMessage
from ternmq_remoting.rpc import Call, ServerStream
from ternmq_security.caller import CallerIdentity
from ternmq_security.rules import Alternatives, Rule

Stream = ServerStream[Any, Any]

USED_MAX: Final = 1024
"""Remembered items of a stream. A stream with more must be opened again after a change."""

_GRACE_S: Final = 1.0
"""Time in which a handler may end by itself after a refused message, s."""


class GuardedStream:
    """Stream whose messages are checked, and the `Permits` of its handler. Owned by the guard.

    Args:
        stream: Stream of the transport.
        rule: Rule of its RPC.
        caller: Identity of the peer; None = the stream was opened while everything was allowed, and
            nothing is checked. Its `on_refused` hears of what ends the stream, too.
    """

    def __init__(self, stream: Stream, rule: Rule, caller: CallerIdentity | None) -> None:
        self._stream = stream
        self._rule = rule
        self._caller = caller
        self._used: set[Alternatives] = set()
        self._is_full = False
        self._refusal: RefusedError | None = None
        self._timeout = asyncio.timeout(None)

    @property
    def caller(self) -> CallerIdentity | None:
        """Identity of the peer; None = the stream was opened while everything was allowed."""
        return self._caller

    @property
    def user(self) -> str | None:
        """Name of the caller; None = an unknown identity, or no users existed."""
        return None if self._caller is None else self._caller.user

    async def serve(self, handler: Callable[[Stream, Call], Awaitable[None]], call: Call) -> None:
        """Run the handler until it ends or the stream is ended.

        Raises:
            RefusedError: A message was refused, or the stream was ended.
        """
        stream: Stream = self
        if self._caller is None:
            stream = self._stream
        else:
            call = Call(call.peer, call.metadata, call.certificate, self)
        try:
            async with self._timeout:
                await handler(stream, call)
        except Exception:
            if self._refusal is None:
                raise
        if self._refusal is not None:
            raise self._refusal

    def end(self, error: RefusedError) -> None:
        """End the stream with an error: the handler is cancelled. Never waits; safe to repeat."""
        if self._refusal is None:
            self._refusal = error
            self._timeout.reschedule(0)

    def renew(self, caller: CallerIdentity | None) -> None:
        """Give the stream the permissions of a changed table, or end it.

        Args:
            caller: The same identity by the changed table; None = it is gone.
        """
        if self._refusal is not None:
            return
        if self._caller is None or (self._is_full and caller is not None):
            remark = "users and permissions have changed: open the stream again"
            self.end(refusal(ResponseCode.SERVICE_NOT_AVAILABLE, remark))
            return
        if caller is None:
            error = _is_gone(self._caller)
            if self._caller.on_refused is not None:
                self._caller.on_refused((), error)
            self.end(error)
            return
        self._caller = replace(caller, on_refused=self._caller.on_refused)
        try:
            for alternatives in self._used:
                self._caller.check(*alternatives)
        except RefusedError as error:
            self.end(error)

    async def read(self) -> Any:
        """Read the next message, and check it.

        Raises:
            RefusedError: NO_PERMISSION: the caller may not send the message. The stream is over.
        """
        request = await self._stream.read()
        if self._refusal is not None:
            raise self._refusal
        if request is None:
            return None
        try:
            for alternatives in self._rule(request):
                self.check(*alternatives)
        except RefusedError as error:
            self._refusal = error
            self._timeout.reschedule(asyncio.get_running_loop().time() + _GRACE_S)
            raise
        return request

    async def write(self, message: ProtoMessage | EncodedMessage, /) -> None:
        """Send a message as the transport's stream does.

        Raises:
            RefusedError: The stream is over.
        """
        if self._refusal is not None:
            raise self._refusal
        await self._stream.write(message)

    def allows(self, need: Need | None) -> bool:
        """Return whether the caller has a permission, on which the stream then depends."""
        assert self._caller is not None, "streams without a caller are not checked"
        if not self._caller.allows(need):
            return False
        self._note((need,))
        return True

    def check(self, *alternatives: Need | None) -> None:
        """Return if the caller has one of the permissions; the stream then depends on them.

        Raises:
            RefusedError: NO_PERMISSION.
        """
        if alternatives not in self._used:
            assert self._caller is not None, "streams without a caller are not checked"
            self._caller.check(*alternatives)
            self._note(alternatives)

    def _note(self, alternatives: Alternatives) -> None:
        if len(self._used) < USED_MAX:
            self._used.add(alternatives)
        else:
            self._is_full = True


def _is_gone(caller: CallerIdentity) -> RefusedError:
    who = "an unknown identity" if caller.user is None else f"user {caller.user!r}"
    remark = f"the credentials of {who} are no longer valid"
    return refusal(ResponseCode.NO_PERMISSION, remark)


def end_expired(stream: GuardedStream, now_ms: int) -> None:
    """End the stream if its caller's identity has expired.

    Args:
        stream: Stream of a guard.
        now_ms: Unix milliseconds.
    """
    caller = stream.caller
    if caller is not None and caller.expires_at_ms is not None and caller.expires_at_ms <= now_ms:
        stream.renew(None)
