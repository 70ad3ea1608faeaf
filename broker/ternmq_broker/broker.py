"""The broker: one term after the other, each in the role of its state."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import Final

from ternmq_broker.config import BrokerConfig
from ternmq_broker.groups.filters.bloom_bit_maps import fit_bit_maps
from ternmq_broker.replication.role.membership import EndReason
from ternmq_broker.steady_clock import SteadyClock
from ternmq_broker.term import Term
from ternmq_model.address import Address
from ternmq_model.errors import ClosedError, TernError
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc import Identity, Listener
from ternmq_remoting.service_metrics import add_service
from ternmq_runtime.clock import rest
from ternmq_runtime.lifecycle import Lifecycle
from ternmq_runtime.metrics.port import Scrape
from ternmq_runtime.metrics.scrape import LabelValues
from ternmq_runtime.service import OwnedTasks
from ternmq_store.config import StoreConfig
from ternmq_store.disk.filesystem import FileSystem, RealFileSystem

_QUICK_MS: Final = 1_000
_PAUSE_S: Final = 0.2
"""Pause after a short term that ended with a cut, so that repeated cuts do not spin."""


class Broker(Lifecycle):
    """A broker that serves while its `async with` block runs.

    Entering returns when the broker listens and every reachable NameServer has registered it. A
    master with slaves waits, without a limit, until a NameServer or member confirms that no other
    has taken its place, or until `stop_waiting`.

    Leaving withdraws the registration, answers all sends, stops the jobs, syncs the store and
    unlocks the data directory. A failed job cancels the block and raises its error from it.

    A broker runs one `Term` after the other: a term ends when its role or log must change, and the
    next term begins behind the same port. The port stays open between terms and answers calls as
    unreachable.

    Args:
        config: Settings of the broker.
        store_config: Settings of the store.
        env: Clock, network, randomness, blocking calls.
        files: File system of the data directory; None = of the operating system.

    Raises:
        ConfigError: The settings of broker and store contradict each other.
        StoreLocked: On entering: another broker holds the data directory.
        StoreError: On entering: the data cannot be read. On leaving: a table could not be saved;
            all other parts ended in order.
        CannotListen: On entering: the address is in use.
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
        self._store_config = fit_bit_maps(config, store_config)
        self._env = env
        self._files: FileSystem = RealFileSystem(rest) if files is None else files
        self._listen = config.listen_address
        self._listener: Listener | None = None
        self._term: Term | None = None
        self._is_open = False
        self._leaving = asyncio.Event()

    @property
    def name(self) -> str:
        """Name of the broker."""
        return self._config.name

    @property
    def term(self) -> Term:
        """Present term.

        Raises:
            ClosedError: The broker has no term now.
        """
        if self._term is None:
            raise ClosedError(f"broker {self.name} does not serve")
        return self._term

    @property
    def identity(self) -> Identity:
        """Identity that goes with every reply.

        Raises:
            ClosedError: The broker has no term now.
        """
        return self.term.identity

    @property
    def address(self) -> Address:
        """Address on which the broker listens, with its real port; the same in all terms.

        Raises:
            ClosedError: The broker does not serve.
        """
        if not self._is_open:
            raise ClosedError(f"broker {self.name} does not serve")
        return self._listen

    @property
    def node(self) -> LabelValues:
        """Cluster, type and name of the broker: the labels of its metrics."""
        return self._config.cluster, "broker", self.name

    @property
    def unready(self) -> str:
        """Reason for which the broker does not serve clients; empty = it does."""
        if self._leaving.is_set():
            return f"broker {self.name} stops"
        if self._term is None or not self._term.is_serving:
            return f"broker {self.name} is not registered: it starts, or waits for a confirmation"
        failure = self._term.environment.store.failure
        return "" if failure is None else f"the store failed: {failure}"

    async def collect(self, scrape: Scrape) -> None:
        """Add the metrics of the broker, with rests; between terms those of the service alone."""
        add_service(scrape, self.node, self._env.rpc_latencies, self._listener)
        term = self._term
        if term is None or not term.is_serving:
            return
        try:
            await term.collect(scrape, self.node)
        except TernError:
            if term.is_serving:  # else it ended meanwhile
                raise

    def stop_waiting(self) -> None:
        """End serving soon: entering returns at once, and leaving is quick. Safe to repeat.

        The first signal calls this for a master that waits for a confirmation.
        """
        self._leaving.set()
        if self._listener is not None:
            self._listener.stays_open = False
        if self._term is not None:
            self._term.end(EndReason.LEFT)

    async def _open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self._alive())

    @asynccontextmanager
    async def _alive(self) -> AsyncGenerator[None]:
        """Run terms while the block runs. Entering returns when the first term serves."""
        self._leaving.clear()
        serves = asyncio.Event()
        terms: asyncio.Task[Exception | None] | None = None
        try:
            async with OwnedTasks() as tasks:
                terms = tasks.spawn(self._supervise(serves), f"terms of {self.name}")
                await serves.wait()
                if not terms.done() or terms.result() is None:
                    self._is_open = not terms.done()
                    yield
                    self.stop_waiting()
                failure = await terms
                if failure is not None:
                    raise failure
        except ExceptionGroup as failures:
            # Failed jobs of a term raise a group of their own; a group around it adds nothing.
            has_failed = terms is not None and terms.done() and not terms.cancelled()
            failed = terms.exception() if terms is not None and has_failed else None
            if failed is not failures.exceptions[0] or not isinstance(failed, ExceptionGroup):
                raise
            raise failed from None
        finally:
            self._is_open = False

    async def _supervise(self, serves: asyncio.Event) -> Exception | None:
        """Run terms until the block is left; set `serves` when the first one serves or fails.

        Returns:
            Error of entering or leaving, which the block raises.

        Raises:
            Exception: A term failed during the block, which this cancels.
        """
        try:
            await self._live(serves)
        except Exception as error:
            if self._is_open and not self._leaving.is_set():
                raise
            return error
        finally:
            term, self._term = self._term, None
            try:
                if term is not None and term.registered is not None:
                    await term.registered.leave()  # no term has followed
            finally:
                try:
                    if self._listener is not None:
                        await self._listener.close()
                finally:
                    serves.set()
        return None

    async def _live(self, serves: asyncio.Event) -> None:
        is_forced, is_promoted = self._config.force_master, False
        clock = SteadyClock(self._env.clock, follow_after_ms=self._config.clock_follow_ms)
        env = replace(self._env, clock=clock)
        self._listener = listener = env.network.listener(
            self._listen, plain_port=self._config.plain_port
        )
        while not self._leaving.is_set():
            begun_ms = self._env.clock.monotonic_ms()
            self._term = Term(
                self._config,
                self._store_config,
                env,
                clock,
                self._files,
                listener=listener,
                is_forced=is_forced,
                is_promoted=is_promoted,
                registered=None if self._term is None else self._term.registered,
            )
            is_forced = False  # the setting is about the first term of the process
            async with self._term as term:
                if term.is_serving:
                    self._listen = term.address
                    serves.set()
                outcome = await term.over()
            is_promoted = outcome is EndReason.PROMOTED
            if outcome is EndReason.CUT and self._env.clock.monotonic_ms() - begun_ms < _QUICK_MS:
                await self._pause()

    async def _pause(self) -> None:
        """Wait for a moment, or until the broker ends."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_PAUSE_S):
                await self._leaving.wait()
