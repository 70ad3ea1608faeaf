"""Reports of a guard to an audit trail: changes, refused attempts, new sessions."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from ternmq_model.errors import RefusedError
from ternmq_model.permission import Need
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

OnOutcome = Callable[[str, str | None], None]
"""Function that gets the outcome of a request, and its reason."""

_CANCELLED: Final[tuple[str, str | None]] = (CANCELLED, None)


@dataclass(slots=True, eq=False)
class ReportedPermits:
    """Permissions of one call, whose refusals are reported."""

    reporter: "AuditReporter"
    caller: CallerIdentity
    rpc: Rpc
    call: Call

    @property
    def user(self) -> str | None:
        """Name of the caller; None = an unknown identity."""
        return self.caller.name

    def allows(self, need: Need | None) -> bool:
        """Return whether the caller has a permission; None = the one of every known identity."""
        return self.caller.allows(need)

    def check(self, *alternatives: Need | None) -> None:
        """Return if the caller has one of the permissions.

        Raises:
            PermissionRefused: The caller has none of them. The refusal is reported.
        """
        try:
            self.caller.check(*alternatives)
        except RefusedError as error:
            self.on_refused(alternatives, error)
            raise

    def on_refused(self, alternatives: Alternatives, error: RefusedError) -> None:
        """Report a refusal: the permissions one of which the caller needs, and the error."""
        self.reporter.refused(self.caller, self.rpc, self.call, alternatives, error)


class ReportedStream:
    """Handler's side of a stream, which reports requests with the outcome that a reply has."""

    def __init__(self, stream: Any, rpc: Rpc, on_read: Callable[[Any], OnOutcome]) -> None:
        self._stream = stream
        self._answer = _ANSWERS.get(rpc)
        self._on_read = on_read
        self._on_outcome: OnOutcome | None = None

    async def read(self) -> Any:
        """Read the next message, as the stream does."""
        request = await self._stream.read()
        if request is not None and (self._answer is None or request.HasField("hello")):
            self.end(ALLOWED, None)
            self._on_outcome = self._on_read(request)
        return request

    async def write(self, message: Any) -> None:
        """Send a message, as the stream does."""
        if self._on_outcome is not None:
            if self._answer is None:
                self.end(ALLOWED, None)
            elif message.HasField(self._answer):
                self.end(*outcome_of(getattr(message, self._answer)))
        await self._stream.write(message)

    def end(self, outcome: str, reason: str | None) -> None:
        """Report the last request with this outcome, unless a reply had one."""
        on_outcome, self._on_outcome = self._on_outcome, None
        if on_outcome is not None:
            on_outcome(outcome, reason)


class AuditReporter:
    """Reports of one guard. Owned by the loop of its service.

    Args:
        report: Function that takes each event.
        table: Function that returns the present table of users.
    """

    def __init__(
        self, report: Callable[[SecurityEvent], None], table: Callable[[], AccessTable]
    ) -> None:
        self._report = report
        self._table = table
        self._known: dict[tuple[object, ...], None] = {}

    def reporting(self, handler: Handler, rule: Rule) -> Callable[..., Awaitable[Any]]:
        """Return the function of a handler, which reports what it changes or opens.

        The functions of other RPCs stay as they are.
        """
        rpc, serve, contents = handler.rpc, handler.function, REPORTED.get(handler.rpc)
        if contents is None:
            return serve
        begun = partial(self._begun, rpc, rule, contents)

        async def serve_call(request: Any, call: Call) -> Any:
            on_outcome, outcome = begun(call, request), _CANCELLED
            try:
                reply = await serve(request, call)
                outcome = outcome_of(reply)
                return reply
            except Exception as error:
                outcome = error_outcome(error)
                raise
            finally:
                on_outcome(*outcome)

        async def serve_stream(stream: Any, call: Call) -> None:
            reported, outcome = ReportedStream(stream, rpc, partial(begun, call)), _CANCELLED
            try:
                await serve(reported, call)
                outcome = ALLOWED, None
            except Exception as error:
                outcome = error_outcome(error)
                raise
            finally:
                reported.end(*outcome)

        return serve_stream if isinstance(rpc, StreamRpc) else serve_call

    def permits(self, caller: CallerIdentity, rpc: Rpc, call: Call) -> ReportedPermits:
        """Return the permissions of a caller for one call; report the first one from a host."""
        token = caller.proof.token_id
        key = (caller.name, token, call.peer.host)
        if key not in self._known and caller.name is not None and rpc is not SESSION:
            self._remember(key)
            details = f"token={token}" if token else None
            self._put(EventKind.SESSION, caller, rpc, call, ALLOWED, details=details)
        return ReportedPermits(self, caller, rpc, call)

    def unproved(self, rpc: Rpc, call: Call, error: RefusedError) -> None:
        """Report wrong credentials: without the token, and with the name of its user if any."""
        if error.code == ResponseCode.NO_PERMISSION:
            self.refused(None, rpc, call, (), error)

    def refused(
        self,
        caller: CallerIdentity | None,
        rpc: Rpc,
        call: Call,
        alternatives: Alternatives,
        error: RefusedError,
    ) -> None:
        """Report a refusal.

        Args:
            caller: Caller; None = its credentials are wrong.
            rpc: RPC of the call.
            call: Call of the caller.
            alternatives: Permissions one of which the caller needs.
            error: Refusal.
        """
        claimed = None
        if caller is None:
            claimed = claimed_user(call.metadata.get(AUTHORIZATION_KEY, ""), self._table())
        resource = next((str(need[1]) for need in alternatives if need is not None), None)
        fields = {"claimed": claimed, "resource": resource, "reason": error.remark}
        self._put(EventKind.REFUSED, caller, rpc, call, REFUSED, **fields)

    def _begun(
        self, rpc: Rpc, rule: Rule, contents: Contents, call: Call, request: Any
    ) -> OnOutcome:
        """Return the function that reports a request once it has an outcome."""
        parts = contents(request, self._table())
        resource = resources_of(rule, request)
        kind = EventKind.SESSION if rpc is SESSION else EventKind.ADMIN
        permits = call.permits
        caller = permits.caller if isinstance(permits, ReportedPermits | GuardedStream) else None

        def on_outcome(outcome: str, reason: str | None) -> None:
            if outcome == ALLOWED and rpc is REGISTER_BROKER and not self._is_new(request):
                return
            for part in parts:
                fields = {"resource": resource, "reason": reason, "details": part or None}
                self._put(kind, caller, rpc, call, outcome, **fields)

        return on_outcome

    def _is_new(self, request: Any) -> bool:
        """Return whether a registration is none that a broker repeats every 30 s."""
        broker = (request.cluster, request.broker_name, request.broker_id)
        key = (*broker, request.incarnation, request.epoch)
        is_new = key not in self._known
        self._remember(key)
        return is_new

    def _remember(self, key: tuple[object, ...]) -> None:
        if key not in self._known and len(self._known) >= KNOWN_MAX:
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
            user=None if caller is None else caller.name,
            certificate=None if call.certificate is None else call.certificate.subject,
            address=call.peer,
            action=rpc.name,
            outcome=outcome,
            **fields,
        )
        self._report(event)


def outcome_of(reply: Any) -> tuple[str, str | None]:
    """Return the outcome of a reply and its reason: that of its status, or of its parts."""
    if reply.status.code:
        return _code_name(reply.status.code), reply.status.remark or None
    refused = [each for each in getattr(reply, "results", ()) if each.status.code]
    if refused:
        status = refused[0].status
        reason = f"{len(refused)} of {len(reply.results)}: {status.remark}"
        return _code_name(status.code), reason
    return ALLOWED, reply.status.remark or None


def error_outcome(error: Exception) -> tuple[str, str]:
    """Return the outcome of a handler that has raised an error, and its reason."""
    if isinstance(error, RefusedError):
        return _code_name(error.code), error.remark
    return type(error).__name__, str(error)


def _code_name(code: int) -> str:
    try:
        return ResponseCode(code).name
    except ValueError:
        return str(code)
