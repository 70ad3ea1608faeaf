"""The seams, bundled: what a service or client needs of the world outside it."""

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
    """Runs calls that block (system calls on files) off the event loop."""

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what `function` returns, or raise what it raises.

        Cancelling stops the waiting, not the function.
        """
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """Clock, network, randomness, blocking calls and processes. Files are a seam of the store.

    A simulation builds one with a seed, `system_environment()` the real one.
    """

    clock: SystemTime
    network: Network
    random: Random
    blocking: Blocking
    processes: Processes | None = None
    """Spawns child processes; None = there are none, and what needs them is refused."""
