"""TernMQ in containers: one container with all of it, or a cluster."""

from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Final, Self

from testcontainers.core.network import Network

from ternmq_model.arguments import check_whole
from ternmq_model.errors import UsageError
from ternmq_testing.cluster.broker_settings import broker_names, flush_of, setting_variables
from ternmq_testing.containers.contained_cluster import ContainedCluster
from ternmq_testing.containers.container_broker import ContainerBroker
from ternmq_testing.containers.service_container import (
    NAMESERVER_PORT,
    ServiceContainer,
    engine_needed,
)

_NAMESERVER: Final = "nameserver"
_SMALL: Final[Mapping[str, Any]] = {
    "commit_log_file_bytes": 64 << 20,
    "index_slots": 50_000,
    "index_entries": 200_000,
}
"""Files of the size of `ternmq dev`, for machines that run many clusters."""


class TernMQContainer(ContainedCluster, ServiceContainer):
    """A NameServer and a broker in one container, in the conventions of testcontainers.

        with TernMQContainer() as mq, mq.producer("shop") as producer:
            producer.send(Message("orders", b"book"))
            mq.expect("orders", count=1)

    The application gets `mq.get_nameserver()` as the address of its NameServer.

    Args:
        image: Name of the image; empty = built from the Dockerfile of the checkout.
        kwargs: Arguments of `DockerContainer`.
    """

    def __init__(self, image: str = "", **kwargs: Any) -> None:
        ContainedCluster.__init__(self)
        ServiceContainer.__init__(self, image, "dev", **kwargs)
        self._brokers = {"broker-a": ContainerBroker("broker-a", 0, self, self._until_it_serves)}

    def with_settings(self, **settings: Any) -> Self:
        """Set settings of the broker by their names in `BrokerConfig` and `StoreConfig`.

        Raises:
            UsageError: There is no such setting.
        """
        return self.with_envs(**setting_variables(settings))

    def start(self) -> Self:
        """Start the container, and return when both serve. See `DockerContainer.start`."""
        super().start()
        self._address = f"{self.get_container_host_ip()}:{self.get_exposed_port(NAMESERVER_PORT)}"
        self._until_all_serve(self.brokers)
        return self

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:
        """Remove the container and its data. See `DockerContainer.stop`."""
        self._address = ""
        super().stop(force, delete_volume)

    def _until_it_serves(self, broker: ContainerBroker) -> None:
        self._until_all_serve([broker])


class TernMQCluster(ContainedCluster):
    """A NameServer and brokers, each in a container of its own, in one network.

        with TernMQCluster(brokers=2) as cluster:
            cluster.broker().crash()
            ...
            cluster.broker().restart()

    The application gets `cluster.get_nameserver()` as the address of its NameServer. Containers in
    `cluster.network` reach it as `nameserver:9876`.

    Args:
        image: Name of the image; empty = built from the Dockerfile of the checkout.
        brokers: Number of masters: `broker-a`, `broker-b`, …
        slaves: Number of slaves of each: `broker-a-1`, … A send waits for one of them then.
        flush: `async`, or `sync`: a send is answered when the disk of the broker has it.
        settings: Settings of every broker by their names in `BrokerConfig` and `StoreConfig`.

    Raises:
        UsageError: There is no such setting.
    """

    def __init__(
        self,
        image: str = "",
        *,
        brokers: int = 1,
        slaves: int = 0,
        flush: str = "async",
        **settings: Any,
    ) -> None:
        super().__init__()
        self._image = image
        self._names = broker_names(brokers)
        self._slaves = check_whole("slaves", slaves, 0)
        role = {"role": "sync_master"} if slaves else {}
        given = {**_SMALL, "flush_mode": flush_of(flush), **role, **settings}
        self._variables = setting_variables(given)
        self._network: Network | None = None
        self._stack = ExitStack()

    def with_settings(self, **settings: Any) -> Self:
        """Set settings of every broker by their names in `BrokerConfig` and `StoreConfig`."""
        self._variables |= setting_variables(settings)
        return self

    def with_env(self, key: str, value: str) -> Self:
        """Set a variable of the environment of every broker."""
        self._variables[key] = value
        return self

    def with_network(self, network: Network) -> Self:
        """Put the containers into a network, which is not removed at the end."""
        self._network = network
        return self

    @property
    def network(self) -> Network:
        """The network of the containers."""
        if self._network is None:
            raise UsageError("the containers do not run: use them inside `with`, or call `start`")
        return self._network

    def start(self) -> Self:
        """Start the containers, and return when all brokers serve."""
        with ExitStack() as stack:
            if self._network is None:
                with engine_needed():
                    network = Network()
                self._network = stack.enter_context(network)
                stack.callback(self._forget_network)
            nameserver = self._container(_NAMESERVER).with_network_aliases(_NAMESERVER)
            stack.enter_context(nameserver)
            for name in self._names:
                for broker_id in range(self._slaves + 1):
                    broker = self._new_broker(name, broker_id)
                    stack.enter_context(broker.container)
                    self._brokers[broker.name] = broker
            for container in (nameserver, *(each.container for each in self.brokers)):
                container.until_serving()
            host = nameserver.get_container_host_ip()
            self._address = f"{host}:{nameserver.get_exposed_port(NAMESERVER_PORT)}"
            self._until_all_serve(self.brokers)
            self._stack = stack.pop_all()
        return self

    def stop(self) -> None:
        """Remove the containers and their data."""
        self._address = ""
        self._brokers.clear()
        self._stack.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _forget_network(self) -> None:
        self._network = None

    def _container(self, verb: str) -> ServiceContainer:
        return ServiceContainer(self._image, verb, waits=False).with_network(self.network)

    def _new_broker(self, broker_name: str, broker_id: int) -> ContainerBroker:
        container = self._container("broker").with_envs(**self._variables)
        broker = ContainerBroker(broker_name, broker_id, container, self._until_it_serves)
        own = {
            "name": broker_name,
            "broker_id": broker_id,
            "hostname": broker.name,
            "nameservers": f"{_NAMESERVER}:{NAMESERVER_PORT}",
        }
        container.with_envs(**setting_variables(own)).with_network_aliases(broker.name)
        return broker

    def _until_it_serves(self, broker: ContainerBroker) -> None:
        self._until_all_serve([broker])
