"""Environment of a service or client: its seams to the outside world."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import ParamSpec, Protocol, TypeVar

from ternmq_model.clock import SystemTime
from ternmq_remoting.rpc import Network
from ternmq_runtime.processes import Processes

P = ParamSpec("P")
T = TypeVar("T")


class Blocking(Protocol):
    """Runner of blocking calls (system calls on files) outside the event loop."""

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of `function`, or raise its error.

        Cancelling stops the wait, not the function.
        """
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """Clock, network, randomness, blocking calls and processes. Files are a seam of the store.

    A simulation builds an environment with a seed, `system_environment()` that of real processes.
    """

    clock: SystemTime
    network: Network
    random: Random
    blocking: Blocking
    processes: Processes | None = None
    """Factory of child processes; None = functions that need them are refused."""
