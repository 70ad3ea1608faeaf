"""Cluster for synchronous tests."""

from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from ternmq_client.blocking_client import BlockingClient, blocking, on_loop
from ternmq_remoting.environment import EnvironmentSource
from ternmq_testing.cluster.cluster import Cluster
from ternmq_testing.cluster.elsewhere import elsewhere
from ternmq_testing.cluster.factories import BlockingClientFactories
from ternmq_testing.cluster.members import BrokerHandle

P = ParamSpec("P")
T = TypeVar("T")


def _asserting(method: Callable[P, T]) -> Callable[P, T]:
    """Return a method whose `AssertionError` has no traceback of the way to the other thread."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        __tracebackhide__ = True
        try:
            return method(*args, **kwargs)
        except AssertionError as error:
            raise error.with_traceback(None) from None

    return call


class BlockingBroker:
    """A broker of a `BlockingCluster`. See `BrokerHandle`."""

    def __init__(self, cluster: "BlockingCluster", broker: BrokerHandle) -> None:
        self.name = broker.name
        self._cluster, self._broker = cluster, broker

    @property
    def is_running(self) -> bool:
        """The broker serves."""
        return self._broker.is_running

    def start(self) -> None:
        """Start the broker. See `BrokerHandle.start`."""
        self._cluster.run(self._broker.start())

    def stop(self) -> None:
        """Let the broker leave in order. See `BrokerHandle.stop`."""
        self._cluster.run(self._broker.stop())

    def crash(self, *, power: bool = True) -> None:
        """End the broker at once. See `BrokerHandle.crash`."""
        self._cluster.run(self._broker.crash(power=power))

    def restart(self) -> None:
        """Start the broker again. See `BrokerHandle.restart`."""
        self._cluster.run(self._broker.restart())

    def pause(self) -> None:
        """Answer nothing until `resume`. See `BrokerHandle.pause`."""
        self._cluster.run(_called(self._broker.pause))

    def resume(self) -> None:
        """Go on after `pause`."""
        self._cluster.run(_called(self._broker.resume))

    def refuse(self, *, next: int = 1) -> None:
        """Refuse the next requests to send. See `BrokerHandle.refuse`."""
        self._broker.refuse(next=next)

    def disk_full(self, is_full: bool = True) -> None:
        """Let the disk have no space, or space again. See `BrokerHandle.disk_full`."""
        self._cluster.run(_called(lambda: self._broker.disk_full(is_full)))


class BlockingCluster(BlockingClientFactories, BlockingClient[Cluster]):
    """`Cluster` without `await`: `with BlockingCluster() as cluster:`.

    Arguments, results and errors are those of `Cluster`. It runs on the event loop of all blocking
    clients of this process. Any thread may use it.

    A doctest opens it in a block:

    >>> from ternmq import Message
    >>> from ternmq.testing import BlockingCluster
    >>> with BlockingCluster() as cluster, cluster.producer("shop") as producer:
    ...     sent = producer.send(Message("orders", b"book"))
    ...     [message.body for message in cluster.messages("orders")]
    [b'book']
    """

    def __init__(
        self,
        *,
        brokers: int = 1,
        flush: str = "async",
        network: str = "memory",
        data: str | Path | None = None,
        topics: Iterable[str] = (),
        seed: int = 0,
        **settings: Any,
    ) -> None:
        super().__init__(
            Cluster(
                brokers=brokers,
                flush=flush,
                network=network,
                data=data,
                topics=topics,
                seed=seed,
                **settings,
            )
        )

    advance = blocking(Cluster.advance)
    settled = _asserting(blocking(Cluster.settled))
    now = on_loop(Cluster.now)
    freeze = on_loop(Cluster.freeze)
    partition = on_loop(Cluster.partition)
    drop_answers = on_loop(Cluster.drop_answers)
    heal = on_loop(Cluster.heal)
    messages = on_loop(Cluster.messages)
    dead_letters = on_loop(Cluster.dead_letters)
    lag = on_loop(Cluster.lag)
    expect = _asserting(on_loop(Cluster.expect))
    report = on_loop(Cluster.report)
    leaks = on_loop(Cluster.leaks)

    @property
    def asynchronous(self) -> Cluster:
        """The cluster with `await`, for use on any event loop."""
        return elsewhere(self._client, self._opened_on.loop)

    @property
    def nameserver(self) -> str:
        """Address of the NameServer. See `Cluster.nameserver`."""
        return self._client.nameserver

    @property
    def brokers(self) -> list[BlockingBroker]:
        """All brokers, by name."""
        return [BlockingBroker(self, each) for each in self._client.brokers]

    def broker(self, name: str = "") -> BlockingBroker:
        """Return a broker; the first without a name."""
        return BlockingBroker(self, self._client.broker(name))

    @property
    def _source(self) -> EnvironmentSource:
        return self._client.environment

    def run(self, coroutine: Any) -> Any:
        """Run a coroutine on the cluster's loop and return its result."""
        return self._run(coroutine)


async def _called(function: Any) -> Any:
    return function()
