"""Clients of one cluster, made by the cluster or by the application."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from inspect import iscoroutinefunction
from typing import Any

from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.blocking_client import BlockingClient
from ternmq_consumer.listener.listener_call import Listener
from ternmq_consumer.pull.blocking_pull_consumer import BlockingPullConsumer
from ternmq_consumer.pull.pull_consumer import PullConsumer
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_consumer.subscriptions import Subscriptions
from ternmq_producer.blocking_producer import BlockingProducer, BlockingTransactionProducer
from ternmq_producer.producer import Producer
from ternmq_producer.transactions.transaction_checks import Check
from ternmq_producer.transactions.transaction_producer import Execute, TransactionProducer
from ternmq_remoting.environment import Environment, EnvironmentSource, EnvironmentUser
from ternmq_remoting.system_environment import clients_installed


class ClientFactories(ABC):
    """Base of what has clients with `await`."""

    @property
    @abstractmethod
    def nameserver(self) -> str:
        """Address of the NameServer.

        Raises:
            UsageError: The cluster is not open.
        """
        ...

    @abstractmethod
    def environment(self, client: EnvironmentUser) -> AbstractAsyncContextManager[Environment]:
        """Return the environment of a client of this cluster, not entered: an `EnvironmentSource`.

        Raises:
            UsageError: The cluster is not open.
        """
        ...

    def producer(self, group: str, **options: Any) -> Producer:
        """Return a producer of this cluster, not entered. See `Producer`."""
        return Producer(group, env=self.environment, **options)

    def transaction_producer(
        self, group: str, *, execute: Execute, check: Check, **options: Any
    ) -> TransactionProducer:
        """Return a transaction producer of this cluster, not entered."""
        env = self.environment
        return TransactionProducer(group, execute=execute, check=check, env=env, **options)

    def push_consumer(
        self, group: str, topics: Subscriptions, *, listener: Listener | None = None, **options: Any
    ) -> PushConsumer:
        """Return a push consumer of this cluster, not entered."""
        return PushConsumer(group, topics, listener=listener, env=self.environment, **options)

    def pull_consumer(self, group: str = "", **options: Any) -> PullConsumer:
        """Return a pull consumer of this cluster, not entered."""
        return PullConsumer(group, env=self.environment, **options)

    def admin(self, **options: Any) -> AdminClient:
        """Return an admin client of this cluster, not entered."""
        return AdminClient(env=self.environment, **options)

    @contextmanager
    def installed(self) -> Generator[None]:
        """Give every client that is opened in this process meanwhile to this cluster.

        Addresses that they are given do not matter.

        Raises:
            UsageError: The cluster is not open.
        """
        _ = self.nameserver  # checks that it is open
        with clients_installed(self.environment):
            yield


class BlockingAdminClient(BlockingClient[AdminClient]):
    """`AdminClient` without `await`: its methods, with their arguments, results and errors."""

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        if not iscoroutinefunction(method):
            raise AttributeError(f"the blocking admin client has no {name!r}")
        return partial(self._call, method)

    def _call(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self._run(method(*args, **kwargs))


class BlockingClientFactories(ABC):
    """Base of what has clients without `await`."""

    @property
    @abstractmethod
    def nameserver(self) -> str:
        """Address of the NameServer.

        Raises:
            UsageError: The cluster is not open.
        """
        ...

    @property
    @abstractmethod
    def _source(self) -> EnvironmentSource:
        """Source of the environments of all clients of this cluster."""
        ...

    def producer(self, group: str, **options: Any) -> BlockingProducer:
        """Return a producer of this cluster, not entered."""
        return BlockingProducer(group, env=self._source, **options)

    def transaction_producer(
        self, group: str, *, execute: Execute, check: Check, **options: Any
    ) -> BlockingTransactionProducer:
        """Return a transaction producer of this cluster, not entered."""
        env = self._source
        return BlockingTransactionProducer(group, execute=execute, check=check, env=env, **options)

    def pull_consumer(self, group: str = "", **options: Any) -> BlockingPullConsumer:
        """Return a pull consumer of this cluster, not entered."""
        return BlockingPullConsumer(group, env=self._source, **options)

    def push_consumer(
        self, group: str, topics: Subscriptions, *, listener: Listener | None = None, **options: Any
    ) -> BlockingClient[PushConsumer]:
        """Return a push consumer of this cluster, which consumes while its block is open."""
        env = self._source
        return BlockingClient(PushConsumer(group, topics, listener=listener, env=env, **options))

    def admin(self, **options: Any) -> BlockingAdminClient:
        """Return an admin client of this cluster, not entered."""
        return BlockingAdminClient(AdminClient(env=self._source, **options))

    @contextmanager
    def installed(self) -> Generator[None]:
        """Give every client that is opened in this process meanwhile to this cluster.

        Raises:
            UsageError: The cluster is not open.
        """
        _ = self.nameserver  # checks that it is open
        with clients_installed(self._source):
            yield
