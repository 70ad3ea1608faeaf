"""The broker's parts, built around an open store and loaded tables, and wired to each other."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from ternmq_broker.admin.query import QueryService
from ternmq_broker.admin.service import AdminService
from ternmq_broker.admin.settings import SettingsService
from ternmq_broker.admin.store_service import StoreService
from ternmq_broker.assembly.roles import MasterRole, SlaveRole
from ternmq_broker.config import BrokerConfig
from ternmq_broker.groups.assembly import GroupAssembly
from ternmq_broker.live_settings import LiveSettings
from ternmq_broker.pull.assembly import PullAssembly
from ternmq_broker.pull.offset_moved import OffsetMovedPublisher
from ternmq_broker.pull.rules import PullRules
from ternmq_broker.registration import Registrar
from ternmq_broker.replication.assembly import (
    claims_of,
    replica_view_of,
    replicas_of,
    replication_services,
)
from ternmq_broker.replication.master.epoch_claims import EpochClaims
from ternmq_broker.replication.role.membership import Membership
from ternmq_broker.replication.slave.promotion import PromotionService
from ternmq_broker.replication.slave.rpc_policy import slave_handlers
from ternmq_broker.replication.slave.slave_replication import SlaveReplication
from ternmq_broker.replication.tables.service import MetadataService
from ternmq_broker.scan.service import ScanService
from ternmq_broker.scheduled.assembly import ScheduledAssembly
from ternmq_broker.send.dedup import DuplicateSearch
from ternmq_broker.send.message_writer import MessageWriter
from ternmq_broker.send.processor import SendProcessor, properties_suffix
from ternmq_broker.send.request_reply import ReplyForwarder
from ternmq_broker.send.service import SendService
from ternmq_broker.state.epochs import newest_start
from ternmq_broker.state.table_formats import table_paths
from ternmq_broker.state.tables import Tables
from ternmq_broker.statistics.broker_statistics import BrokerStatistics
from ternmq_broker.statistics.service import StatisticsService
from ternmq_broker.steady_clock import SteadyClock
from ternmq_broker.storage.ack_policy import AckPolicy
from ternmq_broker.storage.admission import Admission
from ternmq_broker.storage.confirmations import Confirmations
from ternmq_broker.storage.internal_append import InternalWriter
from ternmq_broker.storage.loop import StoreLoop
from ternmq_broker.storage.memory_limit import memory_bytes
from ternmq_broker.storage.reader import StoreReader
from ternmq_broker.storage.real_topics import RealTopics
from ternmq_broker.storage.retention import StoreRetention
from ternmq_broker.storage.verification import StoreVerification
from ternmq_broker.transactions.assembly import Transactions
from ternmq_model.errors import refusal
from ternmq_model.response_code import ResponseCode
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc import Handler, RpcService
from ternmq_runtime.service import Job
from ternmq_store.config import StoreConfig
from ternmq_store.dispatch.log_dispatcher import Arrival
from ternmq_store.message_store import MessageStore

logger = logging.getLogger(__name__)

_DRAIN_TIMEOUT_S: Final = 5.0


class BrokerAssembly:
    """Parts of one term of a broker, wired to each other. Owned by `Term`.

    Args:
        config: The broker's settings.
        store_config: Settings of the store.
        member: Membership of the broker in its name.
        env: Randomness, blocking calls, and `clock`.
        clock: The broker's.
        store: Open.
        tables: Loaded.
        registrar: Registers changed topics at the NameServers.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        store_config: StoreConfig,
        member: Membership,
        env: Environment,
        clock: SteadyClock,
        store: MessageStore,
        tables: Tables,
        registrar: Registrar,
    ) -> None:
        self._config = config
        self._live = LiveSettings(config, store_config)
        self._live.on_change(self._settings_changed)
        self._member = member
        self._env, self._clock = env, clock
        self._store, self._tables, self._registrar = store, tables, registrar
        store.reads.memory_bytes = config.memory_bytes or memory_bytes()
        self._store_host: bytes | None = None
        self._admission = Admission(
            bytes_max=config.unanswered_max_bytes,
            bytes_per_stream_max=config.stream_unanswered_max_bytes,
        )
        self._pulls = PullAssembly(config, env, store, self._admission)
        self._statistics = BrokerStatistics(started_at_ms=env.clock.monotonic_ms())
        store.statistics.observer = self._statistics
        self._counted = StatisticsService(self._statistics, env.clock, member.identity.cluster)
        self._groups = self._group_parts()
        self._confirmations = Confirmations(lambda: store.failure)
        self.replicas: Final = replicas_of(config, member, store, self._confirmations, env.clock)
        """Slaves of this master; None for a slave."""
        claims = claims_of(self.replicas)
        self._replica_view = replica_view_of(member, self.replicas)
        self._retention = self._build_retention()
        self._store_loop = self._build_store_loop()
        self._verification = StoreVerification(store, tables.offsets, env.clock, env.blocking)
        self._ack_policy = self._build_ack_policy(store_config)
        self._internal_writer = self._build_internal_writer(store_config)
        self._offset_moved = self._build_offset_moved()
        self._real_topics = RealTopics(
            tables.topics,
            deletions=lambda: store.deletions,
            epoch_start=newest_start(member.state.epochs),
            clock=env.clock,
            on_made=registrar.changed,
        )
        self._scheduled = ScheduledAssembly(
            config,
            store,
            self._internal_writer,
            tables,
            env,
            topics=self._real_topics,
        )
        self._transactions = self._build_transactions()
        self._admin = self._admin_service()
        self._following = self._slave_side() if member.is_slave else None
        self._metadata = MetadataService(
            tables, store, env, incarnation=member.incarnation, admission=self._admission
        )
        self._role = self._role_of(claims)
        rules = PullRules(
            tables.topics,
            tables.groups,
            self._groups.sessions.table,
            self._groups.filter_rules,
        )
        self._scans = self._scan_service(rules)
        self._services = self._build_services(store_config, rules, claims)

    def _build_services(
        self, store_config: StoreConfig, rules: PullRules, claims: EpochClaims | None
    ) -> Sequence[RpcService]:
        tables = self._tables
        return (
            self._send_service(store_config),
            self._pulls.service(
                self._live,
                tables,
                self._offset_moved,
                self._replica_view,
                rules=rules,
                offset_rules=self._groups.offset_rules,
            ),
            self._scans,
            *self._groups.services(self._internal_writer, self._admission),
            self._admin,
            self._groups.admin_service(self._admin.remove_topic),
            QueryService(self._store, tables.topics, self._env.blocking),
            StoreService(self._store, self._verification, self._clock),
            self._transactions.service,
            self._counted,
            SettingsService(self._live),
            self._metadata,
            *replication_services(
                self._live,
                self._member,
                self._store,
                self._env.blocking,
                replicas=self.replicas,
                claims=claims,
                following=self._following,
                admission=self._admission,
            ),
            PromotionService(
                self._member,
                self._env,
                self._store,
                self._tables,
                own_id=self._config.broker_id,
                following=self._following,
                make_readable=self._store_loop.confirmed,
            ),
        )

    def _role_of(self, claims: EpochClaims | None) -> MasterRole | SlaveRole:
        if self._following is not None:
            return SlaveRole(
                self._following,
                refusals=partial(
                    slave_handlers,
                    name=self._config.name,
                    broker_id=self._replica_view.broker_id,
                    may_be_read=lambda: self._live.broker.slave_read_enabled,
                ),
            )
        assert self.replicas is not None
        assert claims is not None
        return MasterRole(
            self._store,
            self._scheduled,
            self._transactions,
            self._offset_moved,
            self.replicas,
            claims,
            self._metadata,
            flush_to=self._store_loop.flush_to,
        )

    def _scan_service(self, rules: PullRules) -> ScanService:
        return ScanService(
            self._config,
            self._env,
            self._store,
            self._tables.topics,
            rules,
            self._pulls.deletion_listeners,
            is_slave=self._member.is_slave,
            admission=self._admission,
        )

    def _group_parts(self) -> GroupAssembly:
        return GroupAssembly(
            self._live,
            env=self._env,
            store=self._store,
            tables=self._tables,
            registrar=self._registrar,
            statistics=self._statistics,
            is_slave=self._member.is_slave,
        )

    def _slave_side(self) -> SlaveReplication:
        return SlaveReplication(
            self._member,
            self._env,
            self._store,
            self._tables,
            flush_mode=self._config.flush_mode,
            no_cleaning=self._retention.passes,
            store_loop=self._store_loop,
            topics_changed=self._registrar.changed,
            topic_gone=self._pulls.deletion_listeners.deleted,
        )

    def _build_retention(self) -> StoreRetention:
        return StoreRetention(
            self._store,
            self._clock,
            self._env.blocking,
            self._tables.topics,
            is_slave=self._member.is_slave,
            interval_s=self._live.store.clean_interval_ms / 1000,
        )

    def _build_store_loop(self) -> StoreLoop:
        store_loop = StoreLoop(
            self._store,
            self._confirmations,
            self._env.clock,
            self._env.blocking,
            on_arrivals=self._arrived,
            on_moved=None if self.replicas is None else self.replicas.appended,
            on_short=self._retention.cleaning.wake,
        )
        self._store.missing_files.tables = table_paths(self._config.data)
        if self.replicas is not None:
            self.replicas.on_confirmed = store_loop.confirmed
        return store_loop

    def _build_ack_policy(self, store_config: StoreConfig) -> AckPolicy:
        needs_slaves = self.replicas is not None and self.replicas.in_sync.needed > 0
        return AckPolicy(
            confirmations=self._confirmations,
            topics_saved=self._tables.topics_file.saved,
            sync_flush_timeout_ms=store_config.sync_flush_timeout_ms,
            slave_timeout_ms=self._config.slave_timeout_ms if needs_slaves else None,
            refuses_without_replicas=needs_slaves and self._config.refuse_without_replicas,
        )

    def _build_transactions(self) -> Transactions:
        return Transactions(
            self._live,
            self._store,
            StoreReader(self._store, self._env.blocking),
            self._tables,
            self._internal_writer,
            self._ack_policy,
            self._real_topics,
            self._groups.sessions,
            self._env.clock,
            is_clock_doubted=lambda: self._clock.is_doubted,
            admission=self._admission,
            rules=self._scheduled.rules,
            topics_changed=self._registrar.changed,
        )

    def _build_internal_writer(self, store_config: StoreConfig) -> InternalWriter:
        return InternalWriter(
            self._store,
            store_host=self.store_host,
            on_appended=self._store_loop.appended,
            space_made=self._store_loop.space_made,
            ack_policy=self._ack_policy,
            is_checksummed=store_config.record_checksum,
        )

    def _send_service(self, store_config: StoreConfig) -> SendService:
        retried = self._groups.retry_topic_routing()
        writer = MessageWriter(
            log=self._store,
            topics=self._tables.topics,
            clock=self._env.clock,
            on_appended=self._store_loop.appended,
            on_created=self._registrar.changed,
            is_checksummed=store_config.record_checksum,
            rules=lambda: replace(
                self._scheduled.rules(),
                retried=retried,
                no_transactions=self._transactions.refusal(),
            ),
            on_halves=self._transactions.begun,
        )
        return SendService(
            SendProcessor(
                live=self._live,
                clock=self._env.clock,
                random=self._env.random,
                writer=writer,
                ack_policy=self._ack_policy,
                admission=self._admission,
                properties_suffix=lambda: properties_suffix(
                    self._live.broker, is_checksummed=store_config.record_checksum
                ),
                store_host=self.store_host,
                space_made=self._store_loop.space_made,
                duplicates=self._duplicates(),
                replies=ReplyForwarder(
                    sessions=self._groups.sessions,
                    topics=self._tables.topics,
                    clock=self._env.clock,
                    cluster=self._config.cluster,
                    are_stored=self._config.store_replies,
                    on_created=self._registrar.changed,
                ),
            )
        )

    def _duplicates(self) -> DuplicateSearch | None:
        if not self._store.searches.has_index:
            return None
        return DuplicateSearch(StoreReader(self._store, self._env.blocking), self._confirmations)

    def _build_offset_moved(self) -> OffsetMovedPublisher:
        return OffsetMovedPublisher(
            self._internal_writer,
            self._tables.topics,
            self._env.clock,
            broker_name=self._config.name,
            store_host=self.store_host,
            on_created=self._registrar.changed,
        )

    def _admin_service(self) -> AdminService:
        return AdminService(
            self._member,
            self._env,
            self._store,
            self._tables,
            self._registrar,
            self._statistics,
            locks=self._groups.locks,
            sessions=self._groups.sessions,
            retention=self._retention,
            scheduled=self._scheduled,
            transactions=self._transactions,
            holds=self._pulls.holds,
            deletion_listeners=self._pulls.deletion_listeners,
            flush_mode=self._config.flush_mode,
        )

    def handlers(self) -> Sequence[Handler]:
        """Return the handlers of all services in this role."""
        return self._role.handlers(
            [handler for service in self._services for handler in service.handlers()]
        )

    def jobs(self) -> Sequence[Job]:
        """Return the jobs that run beside the handlers."""
        store_jobs = (*self._store_loop.jobs(), *self._retention.jobs(), self._verification.job())
        others = (*self._groups.jobs(), self._pulls.hold_service.job(), *self._scans.jobs())
        others += (self._counted.job(), *self._role.jobs())
        return (self._clock.job(), *store_jobs, *self._tables.jobs(), *others)

    def writing_jobs(self) -> Sequence[Job]:
        """Return the jobs that store: begun when the broker listens, ended before `jobs`."""
        return self._role.writing_jobs()

    async def leave(self) -> None:
        """Refuse new requests, and end the waits of `writing_jobs`, which are about to end."""
        self._admission.close()
        await self._role.leave()

    async def settle(self) -> None:
        """Bring the progress of `writing_jobs`, which have ended, into the tables."""
        await self._role.settle()

    def fence(self, epoch: int, who: str) -> None:
        """Stop acknowledging and end the term if `epoch` is above that of a master."""
        self._role.fence(epoch, who)

    def registered(self) -> None:
        """Notify clients that a NameServer has registered this member."""
        self._groups.sessions.registered(self._member.identity)

    def _arrived(self, arrivals: Sequence[Arrival]) -> None:
        self._pulls.hold_service.arrived(arrivals)
        self._role.arrived(arrivals)

    async def begin(self) -> None:
        """Prepare retention, role and lock tokens before the jobs begin.

        The bound of lock tokens is saved before the first is assigned; where the disk refuses that,
        tokens rise by the wall clock.
        """
        self._clock.on_step = self._role.stepped
        self._clock.on_believed = self._store.session.clock_believed
        self._clock.has_records = lambda: self._store.last_stored_at_ms > 0
        await self._retention.begin()
        await self._role.begin()
        await self._tables.versions_file.save()

    async def end(self) -> None:
        """End the scan processes and the role after the jobs, without storing: slaves are gone."""
        await self._scans.close()
        self._role.close()

    def listening(self, store_host: bytes) -> None:
        """Set the STOREHOST of messages: sends are accepted from now on."""
        self._store_host = store_host

    def store_host(self) -> bytes:
        """Return STOREHOST of every message.

        Raises:
            RefusedError: The broker does not know yet where it listens.
        """
        if self._store_host is None:
            raise refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "the broker is starting")
        return self._store_host

    async def drain(self) -> None:
        """Refuse new requests, release waiting readers, and wait for the calls that store.

        Slaves that keep up have all of it then, too, with what transactions leave in the log, and
        the tables as they are: groups go on at the offsets that they committed here last. Sends
        that wait longer than the drain does stay unanswered; they are in the log.
        """
        self._admission.close()
        self._pulls.drain()
        self._scans.drain()
        if not await self._admission.emptied(_DRAIN_TIMEOUT_S):
            logger.warning("sends left unanswered bytes=%s", self._admission.bytes)
        await self._role.drain()

    def _settings_changed(self) -> None:
        """Pass changed settings to the parts that do not read them at each use."""
        config = self._live.broker
        self._store.retune(self._live.store)
        self._admission.limit(
            bytes_max=config.unanswered_max_bytes,
            bytes_per_stream_max=config.stream_unanswered_max_bytes,
        )
        self._pulls.hold_service.is_long_polling = config.long_polling_enabled
        self._tables.topics.set_template(
            queues=config.default_topic_queues,
            is_allowed=config.auto_create_topics,
            now_ms=self._env.clock.wall_ms(),
        )
        self._registrar.changed()
