"""One term of a broker: from opening its store to closing it, in one role."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Final

from ternmq_broker.assembly.broker_assembly import BrokerAssembly
from ternmq_broker.config import BrokerConfig
from ternmq_broker.environment import BrokerEnvironment, broker_environment
from ternmq_broker.live_settings import LiveSettings
from ternmq_broker.registration import Registrant, Registrar
from ternmq_broker.replication.role import start_role
from ternmq_broker.replication.role.epoch_poll import EpochPoll
from ternmq_broker.replication.role.member_discovery import MemberDiscovery
from ternmq_broker.replication.role.membership import EndReason, Membership
from ternmq_broker.replication.role.replication_state import ReplicationState
from ternmq_broker.replication.role.start_policy import StartDecision, StartRole
from ternmq_broker.replication.tables.offset_takeover import take_over_offsets
from ternmq_broker.state.recovered_topics import put_found_topics
from ternmq_broker.state.replication_record import LogCut
from ternmq_broker.state.table_formats import REPLICATION
from ternmq_broker.state.table_generations import config_folder
from ternmq_broker.state.tables import Tables, load_tables
from ternmq_broker.steady_clock import SteadyClock
from ternmq_broker.storage.record_addresses import own_host
from ternmq_model.address import Address
from ternmq_model.errors import ClosedError, StoreError
from ternmq_model.names import WHEEL_TOPIC
from ternmq_model.offsets import PhysicalOffset
from ternmq_protos.v1 import common_pb2 as common
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc import Identity, Listener
from ternmq_runtime.lifecycle import Lifecycle
from ternmq_runtime.metrics.port import Scrape
from ternmq_runtime.metrics.scrape import LabelValues
from ternmq_runtime.service import Job, JobRunner, OwnedTasks
from ternmq_store.config import StoreConfig
from ternmq_store.disk.fail_stop import FailStopFileSystem
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.log.clock_moves import ClockDoubt, moved_ms
from ternmq_store.message_store import MessageStore
from ternmq_store.truncation.log_truncation import reset_log, truncate_log

logger = logging.getLogger(__name__)

_RANDOM_BITS: Final = 64


class Term(Lifecycle):
    """A broker in one role, while its `async with` block runs.

    A role never changes during a term: the term ends, and another one begins. The owner leaves the
    block when `over` returns. Leaving withdraws the registration, answers all sends, stops the
    jobs, syncs the store and unlocks the data directory. A failed job cancels the block and raises
    its error from it.

    Entering waits until the role is known. The term may be over before it serves; then `is_serving`
    is False.

    A term owns all mutable state of the broker, on one event loop.

    Args:
        config: Settings of the broker.
        store_config: Settings of the store.
        env: Network, randomness, blocking calls, and `clock`.
        clock: Clock of the broker.
        files: File system of the data directory.
        listener: Port of the broker.
        is_forced: True to begin as master without a confirmation that no newer master exists.
        is_promoted: True when the previous term ended with a promotion.
        registered: Registrations of the previous term; withdrawn once this term has registered.

    Attributes:
        registered: Registrations that remain after the end, for the next term or the caller.

    Raises:
        TernError: The errors of `Broker`.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store_config: StoreConfig,
        env: Environment,
        clock: SteadyClock,
        files: FileSystem,
        *,
        listener: Listener,
        is_forced: bool = False,
        is_promoted: bool = False,
        registered: Registrar | None = None,
    ) -> None:
        self.registered = registered
        # A promoted member must take messages, also with settings that begin a master drained.
        self._config = replace(config, draining=False) if is_promoted else config
        self._store_config = store_config
        self._env = env
        self._clock = clock
        self._files = files
        self._listener = listener
        self._is_forced = is_forced
        self._is_promoted = is_promoted
        self._member: Membership | None = None
        self._assembly: BrokerAssembly | None = None
        self._address: Address | None = None
        self._outcome: EndReason | None = None
        self._is_over = asyncio.Event()
        self._cut: LogCut | None = None
        self._doubts: dict[str, str] = {}
        """Reason for the last refusal of an epoch, by the sender of that epoch."""

    @property
    def is_serving(self) -> bool:
        """True while the broker listens."""
        return self._address is not None

    @property
    def member(self) -> Membership:
        """Membership in the broker name.

        Raises:
            ClosedError: The membership is not known yet.
        """
        if self._member is None:
            raise ClosedError(f"broker {self._config.name} has no role yet")
        return self._member

    @property
    def environment(self) -> BrokerEnvironment:
        """Store and tables of the serving term, to look into.

        Raises:
            ClosedError: The broker does not serve.
        """
        if self._assembly is None:
            raise ClosedError(f"broker {self._config.name} does not serve")
        return self._assembly.env

    @property
    def identity(self) -> Identity:
        """Identity that goes with every reply.

        Raises:
            ClosedError: The membership is not known yet.
        """
        return self.member.identity

    @property
    def address(self) -> Address:
        """Address on which the broker listens, with its real port.

        Raises:
            ClosedError: The broker does not serve.
        """
        if self._address is None:
            raise ClosedError(f"broker {self._config.name} does not serve")
        return self._address

    async def collect(self, scrape: Scrape, node: LabelValues) -> None:
        """Add the metrics of the term, which serves."""
        assert self._assembly is not None
        await self._assembly.metrics.collect(scrape, node)

    def end(self, reason: EndReason) -> None:
        """End the term soon. Only the first reason counts. Safe to repeat."""
        if self._outcome is None:
            self._outcome = reason
            self._is_over.set()
            logger.info("term ends broker=%s reason=%s", self._config.name, reason.value)

    async def over(self) -> EndReason:
        """Wait until the term is to end, and return why. Cancelling is safe."""
        await self._is_over.wait()
        assert self._outcome is not None
        return self._outcome

    def note_epoch(self, epoch: int, who: str) -> None:
        """Record that an epoch of the broker's name has begun.

        A master with a lower epoch ends its acknowledgements and its term.

        Args:
            epoch: Number of the epoch.
            who: Name of the sender, for the log.
        """
        if doubt := self.member.state.note_epoch(epoch):
            if self._doubts.get(who) != doubt:  # NameServers repeat it
                self._doubts[who] = doubt
                logger.error("epoch refused member=%s reason=%s", who, doubt)
            return
        self._save_soon()
        if self._assembly is not None:
            self._assembly.fence(epoch, who)

    async def _open(self, stack: AsyncExitStack) -> None:
        """Open, build and begin the parts. `stack` ends them in reverse order."""
        stack.callback(lambda: logger.info("broker ended broker=%s", self._config.name))
        config, env, blocking = self._config, self._env, self._env.blocking
        files = FailStopFileSystem(self._files, config.data)
        state = await ReplicationState.load(config.data, files, blocking)
        was_slave = not start_role.is_master(config, state.record)
        is_slave = was_slave and not self._is_forced
        cut = state.record.cut
        if cut is not None:
            await self._cut_log(cut, confirmed=state.record.confirmed)
        store = await blocking.run(
            MessageStore.open,
            config.data,
            self._store_config,
            config.flush_mode,
            files,
            env.clock,
            serve_to=state.record.confirmed if is_slave else None,
        )
        stack.push_async_callback(blocking.run, store.close)
        await self._begin_clock(stack, store)
        stack.push_async_callback(self._conclude, state, store)
        tables = await load_tables(
            config,
            files,
            blocking,
            store,
            is_slave=is_slave,
            now_ms=env.clock.wall_ms(),
        )
        await state.settle_cut(store, tables, was_slave=was_slave)
        member = await self._member_of(state, store, is_slave=is_slave)
        if member is None:
            return
        self._member = member
        stack.push_async_callback(tables.save)
        await self._note_tables(tables, store)
        await self._take_over(member, tables, store)
        registrar = self._registrar(tables)
        parts = self._assembly = BrokerAssembly(
            broker_environment(
                env,
                LiveSettings(config, self._store_config),
                self._clock,
                store,
                tables,
                registrar,
                is_slave=is_slave,
                port_counts=self._listener.counts,
            ),
            member,
        )
        await self._serve(stack, parts, registrar, member)
        logger.info(
            "broker serves broker=%s broker_id=%s epoch=%s address=%s flush_mode=%s folder=%s",
            config.name,
            member.identity.broker_id,
            member.identity.epoch,
            self.address,
            config.flush_mode.value,
            config.data,
        )

    async def _begin_clock(self, stack: AsyncExitStack, store: MessageStore) -> None:
        session = store.session
        session.timer_cut(store.next_offset(WHEEL_TOPIC, 0))
        last = PhysicalOffset(max(store.max_physical - 1, 0))
        newest_ms = store.last_stored_at_ms and (
            store.last_stored_at_ms + moved_ms(session.clock.moves, last)
        )
        newest_ms = max(newest_ms, session.clock.left_at_ms)
        ahead_ms = self._clock.begin(newest_ms, was_doubted=session.clock.doubt is not None)
        stack.callback(lambda: session.clock_left(self._clock.believed_ms()))
        if ahead_ms is None:
            return
        doubt = ClockDoubt(store.max_physical, behind_ms=max(0, -ahead_ms))
        try:
            await self._env.blocking.run(session.note_doubt, doubt)
        except OSError as error:
            # The broker serves on a full disk, too. A later checkpoint saves the doubt.
            logger.warning("doubt of the clock not saved err=%s", error)

    def _registrar(self, tables: Tables) -> Registrar:
        return Registrar(
            self._env,
            tables.topics,
            nameservers=self._config.nameserver_addresses,
            interval_ms=self._config.registration_interval_ms,
            on_epoch=self.note_epoch,
            on_members=self._note_members,
            on_registered=self._registered,
        )

    async def _member_of(
        self, state: ReplicationState, store: MessageStore, *, is_slave: bool
    ) -> Membership | None:
        """Return the membership of this term; None when the term is over already."""
        config, env = self._config, self._env
        discovery = MemberDiscovery(
            env,
            cluster=config.cluster,
            name=config.name,
            nameservers=config.nameserver_addresses,
            remembered=lambda: state.members,
            remember=state.remember,
        )
        epoch_poll = EpochPoll(
            env,
            cluster=config.cluster,
            name=config.name,
            nameservers=config.nameserver_addresses,
            members=discovery.members,
            store_id=lambda: state.store_id,
            known=lambda: state.highest_epoch,
        )
        if not is_slave:
            if not store.report.was_clean:
                await state.note_unclean()
            decision = await self._decide(state, store, epoch_poll)
            if decision is None:
                return None
            was_master = start_role.is_master(config, state.record)
            if decision.start is not StartRole.MASTER:
                confirmed = store.confirm_offset if was_master else state.record.confirmed
                await state.become_slave(state.highest_epoch, confirmed=confirmed)
                self.end(EndReason.FENCED)
                return None
            if decision.begins is not None:
                # The bytes of a log without epochs belong to the first epoch.
                start = store.max_physical if state.epochs else store.min_physical
                store_id = f"{env.random.getrandbits(_RANDOM_BITS):016x}"
                begin = state.begin_epoch if was_master else state.promote
                await begin(decision.begins, start, store_id=store_id)
        record, broker_id = state.record, start_role.registered_id(config, is_slave=is_slave)
        epoch = start_role.registered_epoch(record, is_slave=is_slave)
        return Membership(
            identity=Identity(config.cluster, config.name, broker_id, epoch),
            is_slave=is_slave,
            slave_id=start_role.registered_id(config, is_slave=True),
            role=start_role.role_as_master(config, record),
            replicas_needed=start_role.replicas_needed(config, record),
            incarnation=f"{env.random.getrandbits(_RANDOM_BITS):016x}",
            state=state,
            discovery=discovery,
            epoch_poll=epoch_poll,
            note_epoch=self.note_epoch,
            end=self.end,
            cut=self._end_with_cut,
        )

    async def _decide(
        self, state: ReplicationState, store: MessageStore, epoch_poll: EpochPoll
    ) -> StartDecision | None:
        """Return the role of the term; None when the term ends before the decision."""
        own = start_role.own_of(self._config, state.record, store)
        deciding = start_role.decide(
            own,
            epoch_poll.ask,
            name=self._config.name,
            is_forced=self._is_forced,
            is_promoted=self._is_promoted,
        )
        async with OwnedTasks() as tasks:
            decision = tasks.spawn(deciding, "decide-role")
            is_over = tasks.spawn(self.over(), "over")
            await asyncio.wait((decision, is_over), return_when=asyncio.FIRST_COMPLETED)
            if not decision.done():
                return None
            decided = decision.result()
        role = decided.start.name.lower()
        logger.info(
            "role decided broker=%s role=%s reason=%r", self._config.name, role, decided.reason
        )
        return decided

    async def _note_tables(self, tables: Tables, store: MessageStore) -> None:
        """Record the names of the tables, so that the next start detects a lost one."""
        path = config_folder(self._config.data) / REPLICATION.name
        try:
            names = await tables.begin()
            if await self._env.blocking.run(self._files.exists, path):
                names = [*names, path.name]
            await self._env.blocking.run(store.session.note_tables, tuple(names))
        except (StoreError, OSError) as error:
            # The broker serves on a full disk, too. The next start saves the names.
            logger.warning("names of tables not saved err=%s", error)

    async def _take_over(self, member: Membership, tables: Tables, store: MessageStore) -> None:
        """Take over the offsets that slaves committed while their master was away."""
        if member.is_slave or not member.state.record.is_replicated:
            return
        put_found_topics(tables.topics, store.queues(), now_ms=self._env.clock.wall_ms())
        if not member.state.members:
            return
        await take_over_offsets(self._env, member.discovery, tables, end_of=store.next_offset)

    async def _serve(
        self, stack: AsyncExitStack, parts: BrokerAssembly, registrar: Registrar, member: Membership
    ) -> None:
        config, env = self._config, self._env
        stack.push_async_callback(parts.settle)
        await parts.begin()
        stack.push_async_callback(parts.end)
        await self._run(stack, [*parts.jobs(), member.state.saving])
        stack.push_async_callback(parts.access.leave)
        await parts.access.begin()
        server = await stack.enter_async_context(
            self._listener.serve(parts.handlers(), identity=member.identity, gate=parts.access.gate)
        )
        stack.push_async_callback(parts.drain)
        port = server.address.port
        found = config.store_host or await env.blocking.run(own_host, config.own_name)
        parts.listening(config.store_host_bytes(port, own_host=found))
        await self._run(stack, parts.writing_jobs())
        stack.push_async_callback(parts.leave)
        registrant = Registrant(member.identity, config.endpoints(port), member.incarnation)
        await self._run(stack, registrar.jobs(registrant))
        # Runs before the jobs end: they may wait for a NameServer that does not answer.
        stack.push_async_callback(self._leave_nameservers, registrar, member)
        await registrar.wait_registered()
        if self.registered is not None:
            await self.registered.leave()
            self.registered = None
        self._address = server.address
        stack.callback(self._forget)

    async def _leave_nameservers(self, registrar: Registrar, member: Membership) -> None:
        """Withdraw the registration, unless this is a slave and another term follows.

        Readers keep using the slave until the next term has registered. A replaced master withdraws
        at once, so that no client takes it for the master.
        """
        if member.is_slave and self._outcome not in (None, EndReason.LEFT):
            if self.registered is not None:
                await self.registered.leave()  # one registrar alone is passed on
            await registrar.rest()
            self.registered = registrar
        else:
            await registrar.leave()

    async def _cut_log(self, cut: LogCut, *, confirmed: PhysicalOffset) -> None:
        """Cut the closed log as planned. Safe to repeat.

        Raises:
            StoreError: The log cannot be cut.
        """
        config, blocking, at = self._config, self._env.blocking, PhysicalOffset(cut.keep_to)
        store = (config.data, self._store_config, config.flush_mode, self._files, self._env.clock)
        if cut.starts_over:
            done = await blocking.run(reset_log, *store, at, cut.file_bytes)
        else:
            done = await blocking.run(truncate_log, *store, at, serve_to=min(confirmed, at))
        logger.warning(
            "log was cut to follow broker=%s log_offset=%s starts_over=%s cut_bytes=%s"
            " cut_records=%s end=%s copy=%s",
            config.name,
            cut.keep_to,
            cut.starts_over,
            done.bytes,
            done.records,
            done.log_end,
            done.kept,
        )

    async def _conclude(self, state: ReplicationState, store: MessageStore) -> None:
        """Save the state with which the next term begins. The store is still open."""
        if self._cut is not None:
            await state.decide_cut(self._cut)
        elif self._outcome is EndReason.FENCED and start_role.is_master(self._config, state.record):
            # A slave continues to serve the messages that its master confirmed, and no others.
            await state.become_slave(state.highest_epoch, confirmed=store.confirm_offset)
        else:
            await state.save()

    def _note_members(self, brokers: Iterable[common.BrokerData], nameserver: Address) -> None:
        self.member.discovery.note(brokers, nameserver, self.identity.broker_id)
        self._save_soon()

    def _registered(self) -> None:
        assert self._assembly is not None, "registration begins after the parts are built"
        self._assembly.registered()

    def _save_soon(self) -> None:
        if not self.member.state.is_saved:
            self.member.state.saving.wake()

    def _end_with_cut(self, cut: LogCut) -> None:
        self._cut = cut
        self.end(EndReason.CUT)

    def _forget(self) -> None:
        self._address = None

    async def _run(self, stack: AsyncExitStack, jobs: Sequence[Job]) -> None:
        await stack.enter_async_context(JobRunner(*jobs, timers=self._env.timers))
