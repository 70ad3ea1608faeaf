"""One NameServer: its stores, service and jobs."""

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from ternmq_model.address import Address
from ternmq_model.errors import ClosedError
from ternmq_nameserver.access_service import AccessService
from ternmq_nameserver.config import NameServerConfig
from ternmq_nameserver.epoch_store import FILE_NAME as EPOCHS_FILE
from ternmq_nameserver.epoch_store import EpochStore
from ternmq_nameserver.kv_store import FILE_NAME as SETTINGS_FILE
from ternmq_nameserver.kv_store import KvStore
from ternmq_nameserver.metrics import add_routes
from ternmq_nameserver.route_table import RouteTable
from ternmq_nameserver.service import NameServerService
from ternmq_remoting.environment import Environment
from ternmq_remoting.service_metrics import add_service
from ternmq_runtime.lifecycle import Lifecycle
from ternmq_runtime.metrics.port import Scrape
from ternmq_runtime.metrics.scrape import LabelValues
from ternmq_runtime.service import Job, JobRunner
from ternmq_security.access_control import AccessControl
from ternmq_security.access_store import FILE_NAME as ACCESS_FILE
from ternmq_security.access_store import AccessFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ternmq_remoting.rpc import Handler, Listener, Server


class NameServer(Lifecycle):
    """Serves routes and settings between `async with` and its end.

    Entering returns when the NameServer listens. Leaving stops the server, then the jobs.
    Brokers register with each NameServer, and clients query any. NameServers know each other for
    users and permissions alone, which each takes from its peers.

    Args:
        config: Settings of the NameServer.
        env: Network, clock and blocking calls.

    Raises:
        CannotListen: On entering: the address cannot be bound.
        StoreLocked: On entering: another NameServer holds the data directory.
        StoreError: On entering: the file of settings or epochs cannot be read.
    """

    def __init__(self, config: NameServerConfig, env: Environment) -> None:
        self._config = config
        self._env = env
        self._server: Server | None = None
        self._listener: Listener | None = None
        self._routes: RouteTable | None = None

    @property
    def address(self) -> Address:
        """Address on which the NameServer listens, with its real port.

        Raises:
            ClosedError: The NameServer does not serve.
        """
        if self._server is None:
            raise ClosedError("the NameServer is not serving")
        return self._server.address

    @property
    def node(self) -> LabelValues:
        """Type and address of the NameServer, and no cluster: the labels of its metrics."""
        address = self._config.listen_address if self._server is None else self._server.address
        return "", "nameserver", str(address)

    @property
    def unready(self) -> str:
        """Reason for which the NameServer does not serve clients; empty = it does."""
        return "the NameServer does not listen" if self._server is None else ""

    async def collect(self, scrape: Scrape) -> None:
        """Add the metrics of the NameServer. It need not serve."""
        add_service(scrape, self.node, self._env.rpc_latencies, self._listener)
        if self._routes is not None:
            add_routes(scrape, self.node, self._routes)

    async def _open(self, stack: AsyncExitStack) -> None:
        config, env = self._config, self._env
        data, blocking = config.data, env.blocking
        settings = KvStore(data / SETTINGS_FILE if data else None, blocking)
        stack.callback(settings.close)
        await settings.load()  # locks the directory
        epochs = EpochStore(data / EPOCHS_FILE if data else None, blocking)
        await epochs.load()
        file = AccessFile(data / ACCESS_FILE) if data else None
        access = AccessControl(
            env,
            config.listen_address,
            file,
            config.peer_addresses,
            has_plain_port=config.plain_port is not None,
        )
        await access.load()
        users = AccessService(access.store, env.timers)
        routes = RouteTable(config.registered_bytes_max)
        service = NameServerService(
            routes,
            settings,
            epochs,
            env.clock,
            expiry_ms=config.expiry_ms,
            warnings=access.warnings,
        )
        jobs = JobRunner(
            Job(name="expiry", interval_s=config.scan_interval_s, step=service.expire),
            settings.job,
            epochs.job,
            *access.jobs(),
            timers=env.timers,
        )
        await stack.enter_async_context(jobs)
        stack.push_async_callback(access.leave)
        await access.begin()
        listener = env.network.listener(config.listen_address, plain_port=config.plain_port)
        listener.stays_open = False
        handlers: Sequence[Handler] = access.guarded([*service.handlers(), *users.handlers()])
        if env.rpc_latencies is not None:
            handlers = env.rpc_latencies.measured(handlers)
        self._server = await stack.enter_async_context(listener.serve(handlers, gate=access.gate))
        stack.callback(users.close)
        self._routes, self._listener = routes, listener
        stack.callback(self._forget)

    def _forget(self) -> None:
        self._server = self._routes = None
