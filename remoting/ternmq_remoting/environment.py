"""Environment of a service or client: its seams to the outside world."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Final, Protocol

from ternmq_model.clock import SystemTime
from ternmq_model.queue import MessageQueue
from ternmq_remoting.rpc import Network
from ternmq_remoting.security_event import SecurityEvent
from ternmq_runtime.blocking_pool import Blocking as Blocking
from ternmq_runtime.processes import Processes
from ternmq_runtime.timers import LOOP_TIMERS, Timers

if TYPE_CHECKING:
    from ternmq_remoting.rpc_latency import RpcLatencies


@dataclass(frozen=True, kw_only=True, slots=True)
class Safeguards:
    """Safeguards of the connections of a process."""

    has_identity: bool = False
    """True when connections show who opened them, by a token or a certificate."""

    has_tls: bool = False
    """True when ports have TLS."""

    asks_clients: bool = False
    """True when ports let in callers with certificates alone."""

    accepts_insecure: bool = False
    """True when the operator accepts ports beyond this machine without TLS and users."""


UNSAFE: Final = Safeguards()


def _ignore(group: str, queue: MessageQueue, offset: int) -> None:
    """Ignore what a consumer left unanswered: another one gets it again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """Clock, timers, network, randomness, blocking calls, processes. Files: a seam of the store.

    A simulation builds an environment with a seed, `system_environment()` that of real processes.
    """

    clock: SystemTime
    network: Network
    random: Random
    blocking: Blocking
    timers: Timers = LOOP_TIMERS
    processes: Processes | None = None
    """Factory of child processes; None = functions that need them are refused."""

    safeguards: Safeguards = UNSAFE

    on_security_event: Callable[[SecurityEvent], None] | None = None
    """Called with each refused attempt, administrative change and new session of a service. None =
    nobody asks for them."""

    rpc_latencies: "RpcLatencies | None" = None
    """Times of the RPCs of one service; None = nobody asks for metrics."""

    on_unanswered: Callable[[str, MessageQueue, int], None] = _ignore
    """Called when a consumer leaves, with its group, a queue and the offset behind the last message
    that the application took, unless it has answered for all below."""

    send_interceptors: tuple[Any, ...] = ()
    """Interceptors of every producer, called after its own ones before a send."""

    consume_interceptors: tuple[Any, ...] = ()
    """Interceptors of every listener, called after its own ones before a call."""


class EnvironmentUser(Protocol):
    """A client, whose environment may be another one for a while.

    Attributes:
        disowned: Reason for which the client may not be used now; empty = it may.
    """

    disowned: str


EnvironmentSource = Callable[[EnvironmentUser], AbstractAsyncContextManager[Environment]]
"""Function that opens the environment of a client, which it gets, on the running loop."""
