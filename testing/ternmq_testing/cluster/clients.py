"""Environments of a cluster's clients, and the clients that are open."""

import asyncio
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.instance import ClientInstance
from ternmq_model.address import Address
from ternmq_model.queue import MessageQueue
from ternmq_remoting.environment import Environment, EnvironmentUser
from ternmq_runtime.blocking_pool import BlockingPool
from ternmq_testing.cluster.wires import Wires
from ternmq_testing.memory.other_loop import check_not_blocked
from ternmq_testing.time.cluster_time import ClusterTime

if TYPE_CHECKING:
    from types import FrameType

P = ParamSpec("P")
T = TypeVar("T")

_OWN_MODULES: Final = ("ternmq", "contextlib", "asyncio", "threading", "uvloop")


class OpenClients:
    """Open clients of a cluster, and what those that have left did not answer. Threads add theirs.

    Attributes:
        open: Open clients, each with the place in the test that opened it, if that is known.
        unanswered: Offsets behind the last messages that consumers which have left took without an
            answer, by group and queue.
    """

    def __init__(self) -> None:
        self.open: dict[EnvironmentUser, str] = {}
        self.unanswered: dict[tuple[str, MessageQueue], int] = {}

    def note_unanswered(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Add what a consumer took without an answer. See `Environment.on_unanswered`."""
        key = group, queue
        self.unanswered[key] = max(offset, self.unanswered.get(key, 0))

    def consumed_topics(self) -> dict[str, set[str]]:
        """Return the topics of each consumer group."""
        topics: dict[str, set[str]] = {}
        for client in list(self.open):
            if isinstance(client, ClientInstance):
                for group, consumed in client.consumed_topics.items():
                    topics.setdefault(group, set()).update(consumed)
        return topics

    def described(self) -> list[str]:
        """Return a sentence about each open client: what it is, and the place that opened it."""
        found: list[str] = []
        for client, place in list(self.open.items()):
            kind = "admin client" if isinstance(client, AdminClient) else "client"
            roles = client.roles if isinstance(client, ClientInstance) else []
            who = ", ".join(roles) or kind
            article = "an" if who.startswith("a") else "a"
            found.append(f"{article} {who} is open{f', opened at {place}' if place else ''}")
        return found


class ClientEnvironments(OpenClients):
    """Environments of a cluster's clients, on any loop of any thread.

    Args:
        nameserver: Function that returns the address of the NameServer.

    Attributes:
        loop: Event loop of the cluster.
    """

    def __init__(
        self, wires: Wires, time: ClusterTime, random: Random, nameserver: Callable[[], Address]
    ) -> None:
        super().__init__()
        self._wires, self._time, self._random = wires, time, random
        self._nameserver = nameserver
        self.loop = asyncio.get_running_loop()

    def open_for(self, client: EnvironmentUser) -> AbstractAsyncContextManager[Environment]:
        """Return the environment of one client, to be entered on the loop of the client.

        Entering raises `UsageError` if the loop of the cluster is blocked, as by the caller of a
        blocking client.
        """
        return _ClientEnvironment(self, client)

    def new_environment(self, blocking: BlockingPool) -> Environment:
        """Return an environment on the running loop."""
        return Environment(
            clock=self._time,
            timers=self._time.agenda(),
            network=self._wires.of_client(self._nameserver()),
            random=Random(self._random.getrandbits(64)),
            blocking=blocking,
            on_unanswered=self.note_unanswered,
        )

    def new_pool(self) -> BlockingPool:
        """Return threads for one client."""
        return _WatchedPool(self._time)


class _ClientEnvironment(AbstractAsyncContextManager[Environment]):
    """The environment of one client.

    A loop that ends closes its asynchronous generators in any order, also one that another one has
    entered, which logs an error: this is none.
    """

    def __init__(self, environments: ClientEnvironments, client: EnvironmentUser) -> None:
        self._environments, self._client = environments, client
        self._blocking = environments.new_pool()

    async def __aenter__(self) -> Environment:
        if asyncio.get_running_loop() is not self._environments.loop:
            await check_not_blocked(self._environments.loop)
        env = self._environments.new_environment(self._blocking)
        self._environments.open[self._client] = place_outside()
        return env

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc_type is not GeneratorExit:  # its loop ends without it, and nothing can be awaited
            del self._environments.open[self._client]
            await self._blocking.close()


class _WatchedPool(BlockingPool):
    """A pool for whose calls moves of time wait."""

    def __init__(self, time: ClusterTime) -> None:
        super().__init__()
        self._time = time

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `function` in a thread. See `BlockingPool.run`."""
        with self._time.busy():
            return await super().run(function, *args, **kwargs)


def place_outside() -> str:
    """Return file and line of the caller outside this project and asyncio; empty = there is none.

    A blocking client is opened by the thread of its loop, where no caller is known.
    """
    frame: FrameType | None = sys._getframe()  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if not module.startswith(_OWN_MODULES):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
