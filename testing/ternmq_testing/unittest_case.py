"""Test cases of unittest that have a cluster."""

import functools
import inspect
import unittest
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from ternmq_model.errors import UsageError
from ternmq_testing.cluster.blocking_cluster import BlockingCluster
from ternmq_testing.cluster.cluster import Cluster


class _WithCluster(unittest.TestCase):
    """Base of test cases with a cluster: its options, and what a failure tells about it.

    Attributes:
        brokers: Number of brokers.
        flush: `async`, or `sync`: a send is answered when the disk of the broker has it.
        network: `memory`, or `grpc`: other processes can use the cluster by its `nameserver`.
        topics: Topics that exist when a test begins.
        seed: Seed of everything that is drawn.
        settings: Settings of every broker by their names in `BrokerConfig` and `StoreConfig`.
        leaks: Kinds of leaks that fail a test. See `Cluster.leaks`.
        is_installed: True = every client that is opened in this process during a test reaches the
            cluster of the test, whatever address it is given.
    """

    brokers: ClassVar[int] = 1
    flush: ClassVar[str] = "async"
    network: ClassVar[str] = "memory"
    topics: ClassVar[Sequence[str]] = ()
    seed: ClassVar[int] = 0
    settings: ClassVar[Mapping[str, Any]] = {}
    leaks: ClassVar[str] = "fail"
    is_installed: ClassVar[bool] = False

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Tell why there is no cluster."""
            hint = ": a `setUp` or `asyncSetUp` calls that of `super()` first"
            missing = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(missing + (hint if name == "cluster" else ""))

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Refuse an attribute that is an option but for an `s` or an `is_`.

        Raises:
            UsageError: There is one, with the type of the option.
        """
        super().__init_subclass__(**kwargs)
        options: dict[str, type[Any]] = {
            name: type(getattr(_WithCluster, name))
            for name in _WithCluster.__annotations__
            if not name.startswith("_")
        }
        for name, value in vars(cls).items():
            for near in (f"{name}s", name.removesuffix("s"), f"is_{name}"):
                if name not in options and options.get(near) is type(value):
                    raise UsageError(f"{cls.__name__}.{name}: did you mean {near!r}?")

    _report: Callable[[], str] | None = None
    _has_failed = False

    def run(self, result: unittest.TestResult | None = None) -> unittest.TestResult | None:
        """Run the test. A failure has the report of the cluster."""
        name = self._testMethodName
        setattr(self, name, self._reporting(getattr(self, name)))
        try:
            return super().run(result)
        finally:
            delattr(self, name)

    @contextmanager
    def subTest(self, *args: Any, **params: Any) -> Generator[None]:
        """Run a part of the test. See `unittest.TestCase.subTest`."""
        with super().subTest(*args, **params), self._noted():
            yield

    def _options(self) -> dict[str, Any]:
        return {
            "brokers": self.brokers,
            "flush": self.flush,
            "network": self.network,
            "topics": self.topics,
            "seed": self.seed,
            **self.settings,
        }

    def _reporting(self, test: Callable[[], Any]) -> Callable[[], Any]:
        if inspect.iscoroutinefunction(test):

            @functools.wraps(test)
            async def run_async() -> None:
                with self._noted():
                    await test()

            return run_async

        @functools.wraps(test)
        def run() -> Any:
            with self._noted():
                return test()

        return run

    @contextmanager
    def _noted(self) -> Generator[None]:
        """Add to an error what the cluster has."""
        try:
            yield
        except unittest.SkipTest:
            raise
        except Exception as error:
            if self._report is not None and not self._has_failed:
                error.add_note(f"The cluster has:\n{self._report()}")
            self._has_failed = True
            raise

    def _check_leaks(self, found: list[str]) -> None:
        if found and not self._has_failed:
            self.fail(f"left behind: {'; '.join(found)}")


class ClusterTestCase(_WithCluster):
    """A test case with a `BlockingCluster` of its own for each test: `self.cluster`.

        class OrderTest(ClusterTestCase):
            brokers = 2

            def test_order_is_announced(self) -> None:
                with self.cluster.producer("shop") as producer:
                    producer.send(Message("orders", b"book"))
                self.cluster.expect("orders", count=1)

    Class attributes choose the cluster. A `setUp` of the class calls that of this one first. The
    cluster ends after `tearDown` and the cleanups of the test.
    """

    cluster: BlockingCluster

    def setUp(self) -> None:
        """Open the cluster."""
        super().setUp()
        self.cluster = cluster = self.enterContext(BlockingCluster(**self._options()))
        if self.is_installed:
            self.enterContext(cluster.installed())
        self._report = cluster.report
        self.addCleanup(lambda: self._check_leaks(cluster.leaks(self.leaks)))


class AsyncClusterTestCase(_WithCluster, unittest.IsolatedAsyncioTestCase):
    """A test case with a `Cluster` of its own for each test, on the loop of the test.

        class OrderTest(AsyncClusterTestCase):
            async def test_order_is_announced(self) -> None:
                async with self.cluster.producer("shop") as producer:
                    await producer.send(Message("orders", b"book"))
                self.cluster.expect("orders", count=1)

    Class attributes choose the cluster. An `asyncSetUp` of the class calls that of this one first.
    """

    cluster: Cluster

    async def asyncSetUp(self) -> None:
        """Open the cluster."""
        await super().asyncSetUp()
        self.cluster = cluster = await self.enterAsyncContext(Cluster(**self._options()))
        if self.is_installed:
            self.enterContext(cluster.installed())
        self._report = cluster.report
        self.addCleanup(lambda: self._check_leaks(cluster.leaks(self.leaks)))
