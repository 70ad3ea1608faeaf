"""The broker's lifecycle: opens the store, serves, registers, and takes all down in order."""

import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final

from ternmq_broker.config import BrokerConfig
from ternmq_broker.filters import with_room_for_bit_maps
from ternmq_broker.hosts import own_host
from ternmq_broker.parts import Parts
from ternmq_broker.registration import Registrant, Registrar
from ternmq_broker.tables import load_tables
from ternmq_model.address import Address
from ternmq_model.errors import ClosedError
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc import Identity
from ternmq_runtime.clock import rest
from ternmq_runtime.lifecycle import Lifecycle
from ternmq_runtime.service import Job, JobRunner
from ternmq_store.config import StoreConfig
from ternmq_store.disk.filesystem import FileSystem, RealFileSystem
from ternmq_store.message_store import MessageStore

logger = logging.getLogger(__name__)

EPOCH: Final = 1
"""Counts the lives of a master; one that never fails over has one."""


class Broker(Lifecycle):
    """A broker that serves while its `async with` block runs.

    Entering returns when it listens and every NameServer that can be reached knows it. Leaving
    withdraws the registration, answers what was sent, stops, brings everything to the disk and lets
    go of the data directory. A job's failure cancels the block and comes out of it.

    Owns all mutable state of the broker, on one event loop.

    Args:
        config: How it serves.
        store_config: How it keeps messages.
        env: Clock, network, randomness, blocking calls.
        files: Where the data directory is; the operating system's files if left out.

    Raises:
        ConfigError: The settings of broker and store do not go together.
        StoreLocked: On entering: another broker holds the data directory.
        StoreError: On entering: what lies there cannot be read. On leaving: a table could not be
            saved; everything else was ended as it should.
        CannotListen: On entering: the address is taken.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store_config: StoreConfig,
        env: Environment,
        *,
        files: FileSystem | None = None,
    ) -> None:
        self._config = config
        self._store_config = with_room_for_bit_maps(config, store_config)
        self._env = env
        self._files: FileSystem = RealFileSystem(rest) if files is None else files
        self._identity = Identity(config.cluster, config.name, config.broker_id, EPOCH)
        self._address: Address | None = None
        self._runners: dict[str, JobRunner] = {}

    @property
    def name(self) -> str:
        """The broker's name."""
        return self._config.name

    @property
    def identity(self) -> Identity:
        """Who it says it is, with every reply."""
        return self._identity

    @property
    def address(self) -> Address:
        """Where it listens, the port known.

        Raises:
            ClosedError: It does not serve.
        """
        if self._address is None:
            raise ClosedError(f"broker {self.name} does not serve")
        return self._address

    async def _open(self, stack: AsyncExitStack) -> None:
        """Build and begin everything. `stack` unwinds it backwards: the order of leaving."""
        stack.callback(logger.info, "broker ended name=%s", self.name)
        config, env, blocking = self._config, self._env, self._env.blocking
        store = await blocking.run(
            MessageStore.open,
            config.data,
            self._store_config,
            config.flush_mode,
            self._files,
            env.clock,
        )
        stack.push_async_callback(blocking.run, store.close)
        tables = await load_tables(
            config,
            self._files,
            blocking,
            end_of=store.next_offset,
            now_ms=env.clock.wall_ms(),
            wake=self._wake,
        )
        stack.push_async_callback(tables.save)
        registrar = Registrar(
            env,
            tables.topics,
            nameservers=config.nameserver_addresses,
            interval_ms=config.registration_interval_ms,
            wake=self._wake,
        )
        parts = Parts(
            config,
            store_config=self._store_config,
            identity=self._identity,
            env=env,
            store=store,
            tables=tables,
            registrar=registrar,
            wake=self._wake,
        )
        stack.push_async_callback(parts.settle)
        await parts.begin()
        stack.push_async_callback(parts.end)
        await self._run(stack, parts.jobs())
        server = await stack.enter_async_context(
            env.network.serve(parts.handlers(), config.listen_address, identity=self._identity)
        )
        stack.push_async_callback(parts.drain)
        port = server.address.port
        found = config.store_host or await blocking.run(own_host, config.own_name)
        parts.listening(config.store_host_bytes(port, own_host=found))
        await self._run(stack, parts.writing_jobs())
        registrant = Registrant(
            self._identity, config.endpoints(port), f"{env.random.getrandbits(64):016x}"
        )
        await self._run(stack, registrar.jobs(registrant))
        # Before the jobs are left: they may wait for a NameServer that does not answer.
        stack.push_async_callback(registrar.leave)
        await registrar.told()
        self._address = server.address
        stack.callback(self._forget)
        logger.info(
            "broker serves name=%s address=%s flush_mode=%s data=%s",
            self.name,
            self.address,
            config.flush_mode.value,
            config.data,
        )

    def _forget(self) -> None:
        self._address = None

    async def _run(self, stack: AsyncExitStack, jobs: Sequence[Job]) -> None:
        runner = JobRunner(*jobs)
        self._runners.update({job.name: runner for job in jobs})
        await stack.enter_async_context(runner)

    def _wake(self, job: str) -> None:
        """Run a job now; one that has not begun yet will run when it does."""
        runner = self._runners.get(job)
        if runner is not None:
            runner.wake(job)
