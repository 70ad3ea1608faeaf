"""Reports of a guard to an audit trail: changes, refused attempts, new sessions."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

from ternmq_model.errors import RefusedError
from ternmq_model.response_code import ResponseCode
from ternmq_remoting.rpc import AUTHORIZATION_KEY, Call, Handler, StreamRpc
from ternmq_remoting.security_event import ALLOWED, CANCELLED, REFUSED, EventKind, SecurityEvent
from ternmq_remoting.service_methods import FOLLOW, REGISTER_BROKER, SESSION
from ternmq_security.access.access_table import AccessTable
from ternmq_security.audit.audited_rpcs import REPORTED, Contents, resources_of
from ternmq_security.caller import CallerIdentity
from ternmq_security.guarded_stream import GuardedStream
from ternmq_security.identifier import claimed_user
from ternmq_security.rules import Alternatives, Rpc, Rule

KNOWN_MAX: Final = 10_000
"""Remembered users with their addresses, and remembered registrations."""

_ANSWERS: Final[Mapping[Rpc, str]] = {SESSION: "welcome", FOLLOW: "accepted"}
"""Field of the reply that answers `hello`, which begins these streams."""

Outcome = tuple[str, str | None]
"""Outcome of a request, and its reason."""

_ALLOWED: Final[Outcome] = (ALLOWED, None)
_CODES: Final = frozenset(map(int, ResponseCode))


class ReportedStream:
    """Handler's side of a stream, which reports a request with the outcome that its reply has."""

    def __init__(self, stream: Any, rpc: Rpc, begin: Callable[[Any], Callable[..., None]]) -> None:
        self._stream = stream
        self._answer = _ANSWERS.get(rpc)
        self._begin = begin
        self._on_outcome: Callable[..., None] | None = None

    def begin(self, request: Any) -> None:
        """Take a request, whose outcome is to come."""
        self._on_outcome = self._begin(request)

    def end(self, outcome: Outcome) -> None:
        """Report the request with this outcome, unless that is done."""
        on_outcome, self._on_outcome = self._on_outcome, None
        if on_outcome is not None:
            on_outcome(*outcome)

    async def read(self) -> Any:
        """Read the next message, as the stream does."""
        request = await self._stream.read()
        if request is not None and (self._answer is None or request.HasField("hello")):
            self.end(_ALLOWED)
            self.begin(request)
        return request

    async def write(self, message: Any) -> None:
        """Send a message, as the stream does."""
        if self._on_outcome is not None:
            if self._answer is None:
                self.end(_ALLOWED)
            elif message.HasField(self._answer):
                self.end(outcome_of(getattr(message, self._answer)))
        await self._stream.write(message)


class AuditReporter:
    """Reports of one guard, by the present table of users. Owned by the loop of its service."""

    def __init__(
        self, report: Callable[[SecurityEvent], None], table: Callable[[], AccessTable]
    ) -> None:
        self._report = report
        self._table = table
        self._known: dict[tuple[object, ...], None] = {}

    def reporting(self, handler: Handler, rule: Rule) -> Callable[..., Awaitable[Any]]:
        """Return the function of a handler, which reports what it changes or opens, if anything."""
        rpc, serve, contents = handler.rpc, handler.function, REPORTED.get(handler.rpc)
        if contents is None:
            return serve
        is_stream = isinstance(rpc, StreamRpc)

        async def serve_reported(given: Any, call: Call) -> Any:
            begin = partial(self._begun, rpc, rule, contents, call)
            reported = ReportedStream(given, rpc, begin)
            if not is_stream:
                reported.begin(given)
            try:
                reply = await serve(reported if is_stream else given, call)
                reported.end(_ALLOWED if is_stream else outcome_of(reply))
                return reply
            except Exception as error:
                reported.end(error_outcome(error))
                raise
            finally:
                reported.end((CANCELLED, None))

        return serve_reported

    def permits(self, caller: CallerIdentity, rpc: Rpc, call: Call) -> CallerIdentity:
        """Return the permissions of a caller for one call; report the first one from a host."""
        token = caller.proof.token_id
        key = (caller.user, token, call.peer.host)
        if key not in self._known and caller.user is not None and rpc is not SESSION:
            self._remember(key)
            details = f"token={token}" if token else None
            self._put(EventKind.SESSION, caller, rpc, call, ALLOWED, details=details)
        on_refused = partial(self.refused, caller, rpc, call)
        return CallerIdentity(
            caller.user, caller.decisions, caller.proof, caller.expires_at_ms, on_refused
        )

    def refused(
        self,
        caller: CallerIdentity | None,
        rpc: Rpc,
        call: Call,
        alternatives: Alternatives,
        error: RefusedError,
    ) -> None:
        """Report a refusal of one of some permissions; without a caller, of wrong credentials.

        A wrong token is reported by the name of its user at most.
        """
        claimed = None
        if caller is None:
            if error.code != ResponseCode.NO_PERMISSION:
                return
            claimed = claimed_user(call.metadata.get(AUTHORIZATION_KEY, ""), self._table())
        resource = next((str(need[1]) for need in alternatives if need is not None), None)
        fields = {"claimed": claimed, "resource": resource, "reason": error.remark}
        self._put(EventKind.REFUSED, caller, rpc, call, REFUSED, **fields)

    def _begun(
        self, rpc: Rpc, rule: Rule, contents: Contents, call: Call, request: Any
    ) -> Callable[..., None]:
        """Return the function that reports a request once it has an outcome."""
        parts, resource = contents(request, self._table()), resources_of(rule, request)
        kind = EventKind.SESSION if rpc is SESSION else EventKind.ADMIN
        permits = call.permits
        caller = permits.caller if isinstance(permits, GuardedStream) else permits
        caller = caller if isinstance(caller, CallerIdentity) else None

        def on_outcome(outcome: str, reason: str | None) -> None:
            if rpc is REGISTER_BROKER and outcome == ALLOWED:  # brokers repeat it every 30 s
                if (key := (rpc, *parts)) in self._known:
                    return
                self._remember(key)
            for part in parts:
                fields = {"resource": resource, "reason": reason, "details": part or None}
                self._put(kind, caller, rpc, call, outcome, **fields)

        return on_outcome

    def _remember(self, key: tuple[object, ...]) -> None:
        if len(self._known) >= KNOWN_MAX:
            del self._known[next(iter(self._known))]
        self._known[key] = None

    def _put(
        self,
        kind: EventKind,
        caller: CallerIdentity | None,
        rpc: Rpc,
        call: Call,
        outcome: str,
        **fields: str | None,
    ) -> None:
        event = SecurityEvent(
            kind=kind,
            user=None if caller is None else caller.user,
            certificate=None if call.certificate is None else call.certificate.subject,
            address=call.peer,
            action=rpc.name,
            outcome=outcome,
            **fields,
        )
        self._report(event)


def outcome_of(reply: Any) -> Outcome:
    """Return the outcome of a reply and its reason: that of its status, or of its parts."""
    results = getattr(reply, "results", ())
    refused = [each.status for each in results if each.status.code]
    if reply.status.code or not refused:
        return _outcome(reply.status.code, reply.status.remark)
    return _outcome(refused[0].code, f"{len(refused)} of {len(results)}: {refused[0].remark}")


def error_outcome(error: Exception) -> Outcome:
    """Return the outcome of a handler that has raised an error, and its reason."""
    if isinstance(error, RefusedError):
        return _outcome(error.code, error.remark)
    return type(error).__name__, str(error)


def _outcome(code: int, remark: str) -> Outcome:
    name = ResponseCode(code).name if code in _CODES else str(code)
    return name if code else ALLOWED, remark or None
