"""Reports of a guard to an audit trail: changes, refused attempts, new sessions."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from ternmq_model.errors import RefusedError
from ternmq_model.permission import Need
from ternmq_model.response_code import ResponseCode
from ternmq_remoting.rpc import AUTHORIZATION_KEY, Call, Handler, Permits, StreamRpc
from ternmq_remoting.security_event import ALLOWED, REFUSED, EventKind, SecurityEvent
from ternmq_remoting.service_methods import REGISTER_BROKER, SESSION
from ternmq_security.access.access_table import AccessTable
from ternmq_security.audit.audited_rpcs import CHANGES, Contents, resources_of
from ternmq_security.caller import CallerIdentity
from ternmq_security.guarded_stream import GuardedStream, OnRefused
from ternmq_security.identifier import claimed_user
from ternmq_security.rules import Alternatives, Rpc, Rule

KNOWN_MAX: Final = 10_000
"""Remembered users with their addresses, and remembered registrations."""


class ReportedPermits:
    """Permissions of the caller of one call, which report each refusal."""

    __slots__ = ("_call", "_reporter", "_rpc", "caller")

    def __init__(
        self, reporter: "AuditReporter", caller: CallerIdentity, rpc: Rpc, call: Call
    ) -> None:
        self.caller = caller
        self._reporter = reporter
        self._rpc = rpc
        self._call = call

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
            self._reporter.refused(self.caller, self._rpc, self._call, alternatives, error)
            raise


class ReportedStream:
    """Handler's side of a stream, which reports messages that the handler has read."""

    def __init__(self, stream: Any, on_read: Callable[[Any], None]) -> None:
        self._on_read = on_read
        self._stream = stream
        self.write = stream.write

    async def read(self) -> Any:
        """Read the next message, as the stream does."""
        request = await self._stream.read()
        if request is not None:
            self._on_read(request)
        return request


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
        contents = CHANGES.get(handler.rpc)
        if contents is None and handler.rpc is not SESSION:
            return handler.function
        serve = handler.function

        async def serve_call(request: Any, call: Call) -> Any:
            assert contents is not None, "sessions are streams"
            details = contents(request, self._table())
            resource = resources_of(rule, request)
            outcome, reason = "cancelled", None
            try:
                reply = await serve(request, call)
                outcome, reason = outcome_of(reply)
                return reply
            except Exception as error:
                outcome, reason = error_outcome(error)
                raise
            finally:
                if outcome != ALLOWED or self._is_new(handler.rpc, request):
                    self._change(handler.rpc, call, resource, outcome, reason, details)

        async def serve_stream(stream: Any, call: Call) -> None:
            on_read = partial(self._read, handler.rpc, rule, contents, call)
            await serve(ReportedStream(stream, on_read), call)

        return serve_stream if isinstance(handler.rpc, StreamRpc) else serve_call

    def permits(self, caller: CallerIdentity, rpc: Rpc, call: Call) -> Permits:
        """Return the permissions of a caller for one call, which report refusals.

        The first call of a user from a host is reported.
        """
        self.entered(caller, rpc, call)
        return ReportedPermits(self, caller, rpc, call)

    def on_refused(self, caller: CallerIdentity, rpc: Rpc, call: Call) -> OnRefused:
        """Return the function that reports a refusal of one call."""
        return partial(self.refused, caller, rpc, call)

    def unproved(self, rpc: Rpc, call: Call, error: RefusedError) -> None:
        """Report wrong credentials: without the token, and with the name of its user if any."""
        if error.code == ResponseCode.NO_PERMISSION:
            self.refused(None, rpc, call, (), error)

    def entered(self, caller: CallerIdentity, rpc: Rpc, call: Call) -> None:
        """Report the first call of a user from a host with a token or certificate."""
        key = (caller.name, caller.proof.token_id, call.peer.host)
        if key in self._known or caller.name is None or rpc is SESSION:
            return
        self._remember(key)
        token = caller.proof.token_id
        details = f"token={token}" if token else None
        self._report(_event(EventKind.SESSION, caller, rpc, call, ALLOWED, details=details))

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
        self._report(
            _event(
                EventKind.REFUSED,
                caller,
                rpc,
                call,
                REFUSED,
                claimed=claimed,
                resource=next((str(need[1]) for need in alternatives if need is not None), None),
                reason=error.remark,
            )
        )

    def _change(
        self,
        rpc: Rpc,
        call: Call,
        resource: str | None,
        outcome: str,
        reason: str | None,
        details: str,
    ) -> None:
        self._report(
            _event(
                EventKind.ADMIN,
                _caller_of(call.permits),
                rpc,
                call,
                outcome,
                resource=resource,
                reason=reason,
                details=details or None,
            )
        )

    def _read(
        self, rpc: Rpc, rule: Rule, contents: Contents | None, call: Call, request: Any
    ) -> None:
        """Report a message of a stream that begins something: others have no `hello`."""
        if contents is None:
            if request.WhichOneof("request") == "hello":
                self._session(call, request.hello, resources_of(rule, request))
        elif "hello" not in request.DESCRIPTOR.fields_by_name or request.HasField("hello"):
            details = contents(request, self._table())
            self._change(rpc, call, resources_of(rule, request), ALLOWED, None, details)

    def _session(self, call: Call, hello: Any, resource: str | None) -> None:
        caller = _caller_of(call.permits)
        groups = ",".join(hello.producer_groups)
        details = f"client_id={hello.client_id} producer_groups={groups}"
        event = _event(
            EventKind.SESSION, caller, SESSION, call, ALLOWED, resource=resource, details=details
        )
        self._report(event)

    def _is_new(self, rpc: Rpc, request: Any) -> bool:
        """Return whether a change is none that a broker repeats every 30 s."""
        if rpc is not REGISTER_BROKER:
            return True
        key = (request.cluster, request.broker_name, request.broker_id, request.incarnation)
        if key in self._known:
            return False
        self._remember(key)
        return True

    def _remember(self, key: tuple[object, ...]) -> None:
        if len(self._known) >= KNOWN_MAX:
            del self._known[next(iter(self._known))]
        self._known[key] = None


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


def _caller_of(permits: Permits) -> CallerIdentity | None:
    return permits.caller if isinstance(permits, ReportedPermits | GuardedStream) else None


def _event(
    kind: EventKind,
    caller: CallerIdentity | None,
    rpc: Rpc,
    call: Call,
    outcome: str,
    **fields: str | None,
) -> SecurityEvent:
    certificate = call.certificate
    return SecurityEvent(
        kind=kind,
        user=None if caller is None else caller.name,
        certificate=None if certificate is None else certificate.subject,
        address=call.peer,
        action=rpc.name,
        outcome=outcome,
        **fields,
    )
