"""One life of a broker: from opening its store to closing it, in one role."""

import asyncio
import enum
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final

from ternmq_broker.config import BrokerConfig
from ternmq_broker.hosts import own_host
from ternmq_broker.parts import Parts
from ternmq_broker.registration import Registrant, Registrar
from ternmq_broker.tables import load_tables
from ternmq_model.address import Address
from ternmq_model.errors import ClosedError
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc import Identity
from ternmq_runtime.lifecycle import Lifecycle
from ternmq_runtime.service import Job, JobRunner
from ternmq_store.config import StoreConfig
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.message_store import MessageStore

logger = logging.getLogger(__name__)

EPOCH: Final = 1
"""Counts the lives of a master; one that never fails over has one."""


class Outcome(enum.Enum):
    """Why a life is over."""

    LEFT = "the broker stops"
    """There is no next one."""

    PROMOTED = "it was promoted"
    """The next one is a master's."""

    FENCED = "a higher epoch has begun"
    """The next one is a slave's."""

    CUT = "its log is to be cut"
    """The next one begins with that."""


class Life(Lifecycle):
    """A broker in one role, while its `async with` block runs.

    Nothing changes its role while it lives: it ends, and another one begins. It ends by leaving its
    block, which whoever entered it does when `over` returns: withdraws the registration, answers
    what was sent, stops, brings everything to the disk and lets go of the data directory. A job's
    failure cancels the block and comes out of it.

    Owns all mutable state of the broker, on one event loop.

    Args:
        config: How it serves.
        store_config: How it keeps messages.
        env: Clock, network, randomness, blocking calls.
        files: Where the data directory is.
        listen: Where to listen.

    Raises:
        As `Broker`.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store_config: StoreConfig,
        env: Environment,
        files: FileSystem,
        *,
        listen: Address,
    ) -> None:
        self.identity: Final = Identity(config.cluster, config.name, config.broker_id, EPOCH)
        self._config = config
        self._store_config = store_config
        self._env = env
        self._files = files
        self._listen = listen
        self._address: Address | None = None
        self._runners: dict[str, JobRunner] = {}
        self._outcome: Outcome | None = None
        self._is_over = asyncio.Event()

    @property
    def address(self) -> Address:
        """Where it listens, the port known.

        Raises:
            ClosedError: It does not serve.
        """
        if self._address is None:
            raise ClosedError(f"broker {self._config.name} does not serve")
        return self._address

    def end(self, reason: Outcome) -> None:
        """Let the life be over, soon. The first reason counts; safe to repeat, at any time."""
        if self._outcome is None:
            self._outcome = reason
            self._is_over.set()
            logger.info("life ends name=%s reason=%s", self._config.name, reason.value)

    async def over(self) -> Outcome:
        """Wait until the life is to end, and return why. Cancelling is safe."""
        await self._is_over.wait()
        assert self._outcome is not None
        return self._outcome

    async def _open(self, stack: AsyncExitStack) -> None:
        """Build and begin everything. `stack` unwinds it backwards: the order of leaving."""
        stack.callback(logger.info, "broker ended name=%s", self._config.name)
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
            identity=self.identity,
            env=env,
            store=store,
            tables=tables,
            registrar=registrar,
            wake=self._wake,
        )
        await self._serve(stack, parts, registrar)
        logger.info(
            "broker serves name=%s address=%s flush_mode=%s data=%s",
            config.name,
            self.address,
            config.flush_mode.value,
            config.data,
        )

    async def _serve(self, stack: AsyncExitStack, parts: Parts, registrar: Registrar) -> None:
        config, env = self._config, self._env
        stack.push_async_callback(parts.settle)
        await parts.begin()
        stack.push_async_callback(parts.end)
        await self._run(stack, parts.jobs())
        server = await stack.enter_async_context(
            env.network.serve(parts.handlers(), self._listen, identity=self.identity)
        )
        stack.push_async_callback(parts.drain)
        port = server.address.port
        found = config.store_host or await env.blocking.run(own_host, config.own_name)
        parts.listening(config.store_host_bytes(port, own_host=found))
        await self._run(stack, parts.writing_jobs())
        registrant = Registrant(
            self.identity, config.endpoints(port), f"{env.random.getrandbits(64):016x}"
        )
        await self._run(stack, registrar.jobs(registrant))
        # Before the jobs are left: they may wait for a NameServer that does not answer.
        stack.push_async_callback(registrar.leave)
        await registrar.told()
        self._address = server.address
        stack.callback(self._forget)

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
