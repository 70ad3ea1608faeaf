"""Faults of an exploration, drawn from its seed."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, Protocol

from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_model.errors import TernError, UsageError
from ternmq_runtime.service import OwnedTasks
from ternmq_runtime.timers import Timers
from ternmq_testing.cluster.members import BrokerHandle
from ternmq_testing.cluster.wires import CLIENTS, NAMESERVER
from ternmq_testing.memory.memory_network import MemoryNetwork, no_loss, random_loss

_STRIKES: Final = (0, 1, 1, 2, 2, 3, 4, 6)
"""Numbers of faults of one seed."""

_FIRST_S: Final = (0.001, 0.4)
"""Pause before the first fault: a scenario that does little work lasts some 100 ms."""

_PAUSE_S: Final = (0.002, 4.0)
_OUTAGE_S: Final = (0.01, 8.0)
_SLOW_S: Final = (0.02, 1.0)


@dataclass(eq=False)
class TwinnedConsumer:
    """Push consumer of the scenario, with twins: other members of its group with its listener.

    Attributes:
        join: Function that returns another consumer of the group on a host, not entered.
        is_leaving: The consumer leaves: no twin may come any more.
        twins: Tasks of twins, and what wakes each to leave.
    """

    group: str
    join: Callable[[str], PushConsumer]
    is_leaving: bool = False
    twins: dict[asyncio.Task[None], asyncio.Event] = field(
        default_factory=dict[asyncio.Task[None], asyncio.Event]
    )

    async def leave(self) -> None:
        """Let the twins leave before the scenario's consumer does."""
        self.is_leaving = True
        for task, woken in self.twins.items():
            woken.set()
            await asyncio.wait([task])


class Troubled(Protocol):
    """A cluster, as its faults see it."""

    network: MemoryNetwork
    slow_s: dict[str, float]
    """Longest blocking call of a slow host, s."""

    members: dict[TwinnedConsumer, None]
    """Push consumers that are open and may get company."""

    @property
    def brokers(self) -> list[BrokerHandle]:
        """All brokers."""
        ...

    def note(self, text: str) -> None:
        """Add an event."""
        ...


class Trouble:
    """Faults that strike a cluster, from the first send of the scenario until `end`.

    Args:
        cluster: Cluster.
        timers: Timers of the cluster.
        random: Draws everything.
        faults: Names of the faults that may strike.
        tasks: Owner of the tasks.
    """

    def __init__(
        self,
        cluster: Troubled,
        timers: Timers,
        random: Random,
        faults: Collection[str],
        tasks: OwnedTasks,
    ) -> None:
        self._cluster, self._timers, self._random, self._tasks = cluster, timers, random, tasks
        drawn = sorted(faults)
        self._kinds = random.sample(drawn, random.randint(1, len(drawn))) if drawn else []
        self._count = random.choice(_STRIKES) if drawn else 0
        self._began, self._ended = asyncio.Event(), asyncio.Event()
        self._down: dict[str, None] = {}
        self._pauses: dict[asyncio.Event, None] = {}
        self._joined = 0
        self._running: list[asyncio.Task[None]] = [tasks.spawn(self._run(), "trouble")]

    def begin(self) -> None:
        """Let faults strike from now on. Safe to repeat."""
        self._began.set()

    async def end(self) -> None:
        """End all faults, and return when everything works again. Safe to repeat."""
        self._ended.set()
        self._began.set()
        for woken in self._pauses:
            woken.set()
        while self._running:
            await asyncio.wait([self._running.pop()])

    async def _run(self) -> None:
        await self._began.wait()
        for number in range(self._count):
            await self._pause(_PAUSE_S if number else _FIRST_S)
            if self._ended.is_set():
                return
            strike = _STRIKE_BY_NAME[self._random.choice(self._kinds)]
            self._running.append(self._tasks.spawn(strike(self), f"fault {number}"))

    async def _pause(self, span_s: tuple[float, float], woken: asyncio.Event | None = None) -> None:
        """Wait for a time between the two, short ones as often as long ones.

        The wait is shorter when `woken` is set, or when the faults end.
        """
        low, high = span_s
        seconds = low * (high / low) ** self._random.random()
        woken = woken or asyncio.Event()
        if self._ended.is_set():
            return
        self._pauses[woken] = None
        call = self._timers.call_later(seconds, woken.set)
        try:
            await woken.wait()
        finally:
            call.cancel()
            self._pauses.pop(woken, None)

    @asynccontextmanager
    async def _outage(self) -> AsyncGenerator[BrokerHandle | None]:
        """Yield a broker to end, which starts again after a while; None = none runs."""
        running = [
            each
            for each in self._cluster.brokers
            if each.is_running and each.name not in self._down
        ]
        if not running:
            yield None
            return
        broker = self._random.choice(running)
        self._down[broker.name] = None
        try:
            yield broker
            await self._pause(_OUTAGE_S)
            if not broker.is_running:  # the scenario may have started it
                await broker.start()
        finally:
            del self._down[broker.name]

    async def lose_power(self) -> None:
        """End a broker as a power cut does."""
        async with self._outage() as broker:
            if broker is not None:
                await broker.crash(chance=self._random)

    async def kill(self) -> None:
        """End a broker as `kill -9` does."""
        async with self._outage() as broker:
            if broker is not None:
                await broker.crash(power=False)

    async def restart(self) -> None:
        """Let a broker leave in order."""
        async with self._outage() as broker:
            if broker is not None:
                await broker.stop()

    async def lose_answers(self) -> None:
        """Lose answers of streams that send, or requests and answers of all calls for a while."""
        broker = self._random.choice(self._cluster.brokers)
        if self._random.random() < 0.6:
            broker.faults.drop_answers("SendStream", self._random.randint(1, 3))
            self._cluster.note(f"{broker.name}: the next answers of SendStream are lost")
            await self._pause(_OUTAGE_S)
            broker.faults.heal()
            return
        request, reply = self._random.random() * 0.4, self._random.random() * 0.4
        network = self._cluster.network
        network.loss = random_loss(self._random, request=request, reply=reply)
        self._cluster.note(f"calls lose {request:.0%} of requests, {reply:.0%} of answers")
        await self._pause(_OUTAGE_S)
        network.loss = no_loss
        self._cluster.note("no call is lost any more")

    async def slow_disk(self) -> None:
        """Slow the disk of a broker down."""
        broker = self._random.choice(self._cluster.brokers)
        low, high = _SLOW_S
        seconds = low * (high / low) ** self._random.random()
        self._cluster.slow_s[broker.name] = seconds
        self._cluster.note(f"{broker.name}: the disk takes up to {seconds:.3f} s")
        await self._pause(_OUTAGE_S)
        self._cluster.slow_s.pop(broker.name, None)
        self._cluster.note(f"{broker.name}: the disk is fast again")

    async def partition(self) -> None:
        """Cut two hosts off from each other, in both directions or in one."""
        broker = self._random.choice(self._cluster.brokers).name
        pair = self._random.choice(
            [(broker, CLIENTS), (CLIENTS, broker), (broker, NAMESERVER), (CLIENTS, NAMESERVER)]
        )
        one_way = self._random.random() < 0.3
        self._cluster.network.partition(*pair, one_way=one_way)
        how = f"{pair[1]} does not hear {pair[0]}" if one_way else f"{pair[0]} and {pair[1]} part"
        self._cluster.note(f"network: {how}")
        await self._pause(_OUTAGE_S)
        self._cluster.network.heal()
        self._cluster.note("network: whole again")

    async def cut(self) -> None:
        """Break the connections of clients to a broker."""
        broker = self._random.choice(self._cluster.brokers).name
        self._cluster.network.cut(CLIENTS, broker)
        self._cluster.note(f"network: connections of clients to {broker} break")

    async def stall(self) -> None:
        """Pause a broker, unless it is down."""
        broker = self._random.choice(self._cluster.brokers)
        if broker.is_running:
            broker.pause()
        await self._pause(_OUTAGE_S)
        broker.resume()

    async def refuse(self) -> None:
        """Refuse sends, unless the broker is down."""
        broker = self._random.choice(self._cluster.brokers)
        count = self._random.randint(1, 3)
        if broker.is_running:
            broker.refuse(next=count)

    async def join(self) -> None:
        """Let another member join a group, and leave it in order or die."""
        open_ = [each for each in self._cluster.members if not each.is_leaving]
        if not open_:
            return
        consumer = self._random.choice(open_)
        self._joined += 1
        host, woken = f"member-{self._joined}", asyncio.Event()
        task = self._tasks.spawn(self._be_member(consumer, host, woken), host)
        consumer.twins[task] = woken
        self._running.append(task)

    async def _be_member(self, consumer: TwinnedConsumer, host: str, woken: asyncio.Event) -> None:
        note, is_killed = self._cluster.note, self._random.random() < 0.5
        with suppress(TernError):  # brokers may be away
            async with consumer.join(host):
                note(f"{host} joins group {consumer.group}")
                await self._pause(_OUTAGE_S, woken)
                if is_killed:
                    self._cluster.network.kill(host)
                note(f"{host} {'dies' if is_killed else 'leaves'}")


_STRIKE_BY_NAME: Final[dict[str, Callable[[Trouble], Any]]] = {
    "power loss": Trouble.lose_power,
    "kill": Trouble.kill,
    "restart": Trouble.restart,
    "lost answers": Trouble.lose_answers,
    "slow disk": Trouble.slow_disk,
    "partition": Trouble.partition,
    "cut connections": Trouble.cut,
    "pause": Trouble.stall,
    "refused sends": Trouble.refuse,
    "members": Trouble.join,
}

FAULTS: Final = tuple(_STRIKE_BY_NAME)
"""Names of all faults."""


def check_faults(faults: Collection[str]) -> None:
    """Check names of faults.

    Raises:
        UsageError: There is no such fault.
    """
    if isinstance(faults, str):
        raise UsageError(f"faults={faults!r} must be a list: [{faults!r}]")
    for name in faults:
        if name not in _STRIKE_BY_NAME:
            raise UsageError(f"no fault {name!r}: there are {', '.join(FAULTS)}")
