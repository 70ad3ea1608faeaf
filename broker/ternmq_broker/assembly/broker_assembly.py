"""The broker's parts, built around an open store and loaded tables, and wired to each other.

A master and a slave are built of the same parts and serve the same RPCs. A master delivers delayed
and timed messages, checks transactions, stores events, and waits for its slaves. A slave has no
timers: it copies the log of its master, and refuses requests that only a master may serve.

Three more differences lie where they matter. A slave gives no locks and creates no topics
(`groups/assembly`). It directs readers to the master (`pull/answers`). Its retention counts ages to
its newest record at most, because the clock of its master gave the store times
(`storage/retention`).
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from ternmq_broker.admin.group_service import GroupAdminService
from ternmq_broker.admin.query import QueryService
from ternmq_broker.admin.service import AdminService
from ternmq_broker.admin.settings import SettingsService
from ternmq_broker.admin.store_service import StoreService
from ternmq_broker.environment import BrokerEnvironment
from ternmq_broker.groups.assembly import GroupAssembly
from ternmq_broker.metrics.broker_metrics import BrokerMetrics
from ternmq_broker.pull.assembly import PullAssembly
from ternmq_broker.replication.master.epoch_claims import EpochClaims
from ternmq_broker.replication.master.replicas import Replicas
from ternmq_broker.replication.master.service import FollowService
from ternmq_broker.replication.role.membership import Membership, ReplicaView
from ternmq_broker.replication.slave.promotion import PromotionService
from ternmq_broker.replication.slave.rpc_policy import slave_handlers
from ternmq_broker.replication.slave.slave_replication import SlaveReplication
from ternmq_broker.replication.status_service import MasterStatus, StatusService
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
from ternmq_broker.statistics.service import StatisticsService
from ternmq_broker.storage.ack_policy import AckPolicy
from ternmq_broker.storage.confirmations import Confirmations
from ternmq_broker.storage.internal_append import InternalWriter
from ternmq_broker.storage.loop import StoreLoop
from ternmq_broker.storage.memory_limit import memory_bytes
from ternmq_broker.storage.real_topics import RealTopics
from ternmq_broker.storage.retention import StoreRetention
from ternmq_broker.storage.verification import StoreVerification
from ternmq_broker.transactions.assembly import Transactions
from ternmq_model.errors import refusal
from ternmq_model.response_code import ResponseCode
from ternmq_remoting.rpc import Handler, RpcService
from ternmq_runtime.service import Job
from ternmq_security.access_control import AccessControl
from ternmq_store.dispatch.log_dispatcher import Arrival

logger = logging.getLogger(__name__)

_DRAIN_TIMEOUT_S: Final = 5.0
_SETTLE_TIMEOUT_S: Final = 2.0


class BrokerAssembly:
    """Parts of one term of a broker, wired to each other. Owned by `Term`.

    Args:
        env: Settings, store and tables of the term.
        member: Membership of the broker in its name.

    Attributes:
        access: Users and permissions, which check every call.
        metrics: Metrics of all parts.
    """

    def __init__(self, env: BrokerEnvironment, member: Membership) -> None:
        config, store, tables = env.live.broker, env.store, env.tables
        self.env = env
        self._member = member
        self._store_host: bytes | None = None
        env.live.on_change(self._settings_changed)
        store.reads.memory_bytes = config.memory_bytes or memory_bytes()
        store.statistics.observer = env.statistics
        store.missing_files.tables = table_paths(config.data)
        self._confirmations = Confirmations(lambda: store.failure)
        self._replicas = None if member.is_slave else self._build_replicas()
        self._claims: EpochClaims | None = None
        self._retention = StoreRetention(
            store,
            env.clock,
            env.blocking,
            tables.topics,
            is_slave=member.is_slave,
            interval_s=env.live.store.clean_interval_ms / 1000,
        )
        self._store_loop = self._build_store_loop()
        self._retention.checkpoint = self._store_loop.checkpoint
        self._verification = StoreVerification(store, tables.offsets, env.clock, env.blocking)
        self._ack_policy = self._build_ack_policy()
        self._writer = InternalWriter(
            store,
            store_host=self.store_host,
            on_appended=self._store_loop.appended,
            space_made=self._store_loop.space_made,
            ack_policy=self._ack_policy,
            is_checksummed=env.live.store.record_checksum,
        )
        self._groups = GroupAssembly(env, self._writer)
        slaves = tuple if self._replicas is None else self._replicas.ids
        view = ReplicaView(member.identity.broker_id, member.state.epochs, slaves)
        self._pulls = PullAssembly(env, self._groups, self._writer, view)
        real_topics = RealTopics(
            tables.topics,
            deletions=lambda: store.deletions,
            epoch_start=newest_start(member.state.epochs),
            clock=env.clock,
            on_made=env.registrar.changed,
        )
        self._scheduled = ScheduledAssembly(env, self._writer, real_topics)
        self._transactions = Transactions(
            env,
            self._writer,
            self._ack_policy,
            real_topics,
            self._groups.sessions,
            rules=self._scheduled.rules,
        )
        self._following = self._build_following() if member.is_slave else None
        self._counted = StatisticsService(env.statistics, env.clock, member.identity.cluster)
        self._metadata = MetadataService(
            tables, store, env, incarnation=member.incarnation, admission=env.admission
        )
        self._scans = ScanService(
            config,
            env,
            store,
            tables.topics,
            self._pulls.rules,
            self._pulls.deletion_listeners,
            is_slave=member.is_slave,
            admission=env.admission,
        )
        self.access: Final = self._build_access()
        self.metrics: Final = self._build_metrics()
        self._services = [*self._build_services(), *self._build_replication_services()]

    def _build_access(self) -> AccessControl:
        env, config = self.env, self.env.live.broker
        file, sources = env.tables.access_file, config.nameserver_addresses
        return AccessControl(
            env,
            config.listen_address,
            file,
            sources,
            is_copy=True,
            has_plain_port=config.plain_port is not None,
        )

    def _build_replicas(self) -> Replicas:
        env = self.env
        timeout_ms = env.live.broker.slave_timeout_ms
        return Replicas(
            self._member, env.store, self._confirmations, env.clock, slave_timeout_ms=timeout_ms
        )

    def _build_store_loop(self) -> StoreLoop:
        env, replicas = self.env, self._replicas
        store_loop = StoreLoop(
            env.store,
            self._confirmations,
            env.clock,
            env.blocking,
            on_arrivals=self._arrived,
            on_moved=None if replicas is None else replicas.appended,
            on_short=self._retention.cleaning.wake,
        )
        if replicas is not None:
            replicas.on_confirmed = store_loop.confirmed
        return store_loop

    def _build_ack_policy(self) -> AckPolicy:
        config = self.env.live.broker
        needs_slaves = self._replicas is not None and self._replicas.in_sync.needed > 0
        return AckPolicy(
            confirmations=self._confirmations,
            topics_saved=self.env.tables.topics_file.saved,
            sync_flush_timeout_ms=self.env.live.store.sync_flush_timeout_ms,
            slave_timeout_ms=config.slave_timeout_ms if needs_slaves else None,
            refuses_without_replicas=needs_slaves and config.refuse_without_replicas,
        )

    def _build_following(self) -> SlaveReplication:
        env = self.env
        return SlaveReplication(
            self._member,
            env,
            no_cleaning=self._retention.passes,
            store_loop=self._store_loop,
            topic_gone=self._pulls.deletion_listeners.deleted,
        )

    def _build_metrics(self) -> BrokerMetrics:
        is_slave = self._member.is_slave
        return BrokerMetrics(
            self.env,
            self._member,
            self._groups.sessions,
            scheduled=None if is_slave else self._scheduled,
            transactions=None if is_slave else self._transactions,
            behind=self._behind,
        )

    def _behind(self) -> Sequence[tuple[int, int]]:
        if self._replicas is not None:
            return self._replicas.behind()
        assert self._following is not None
        return self._following.behind()

    def _build_services(self) -> Sequence[RpcService]:
        env, groups = self.env, self._groups
        admin = AdminService(
            env,
            self._member,
            groups,
            self._pulls,
            self._scheduled,
            self._transactions,
            self._retention,
            warnings=self.access.warnings,
        )
        return (
            SendService(self._send_processor()),
            self._pulls.service,
            self._scans,
            *groups.services,
            admin,
            GroupAdminService(env, groups, admin.remove_topic),
            QueryService(env.store, env.reader, env.tables.topics),
            StoreService(env.store, self._verification, env.clock),
            self._transactions.service,
            self._counted,
            SettingsService(env.live),
        )

    def _build_replication_services(self) -> Iterator[RpcService]:
        env, member, replicas = self.env, self._member, self._replicas
        yield self._metadata
        if replicas is not None:
            # The poll includes this master: a member that has replaced it is member 0, too.
            self._claims = EpochClaims(replicas, member.epoch_poll.ask)
            yield FollowService(
                replicas, env.blocking, on_claim=self._claims.add, admission=env.admission
            )
            describe = MasterStatus(replicas, env.blocking, env.live).describe
        else:
            assert self._following is not None
            describe = self._following.describe
        yield StatusService(member, env.store, env.live.broker.flush_mode, describe)
        yield PromotionService(
            member,
            env,
            following=self._following,
            make_readable=self._store_loop.confirmed,
        )

    def _send_processor(self) -> SendProcessor:
        env, groups, loop = self.env, self._groups, self._store_loop
        has_index, is_checksummed = env.store.searches.has_index, self._writer.is_checksummed
        duplicates = DuplicateSearch(env.reader, self._confirmations)
        return SendProcessor(
            live=env.live,
            clock=env.clock,
            random=env.random,
            writer=MessageWriter(
                log=env.store,
                topics=env.tables.topics,
                clock=env.clock,
                on_appended=loop.appended,
                on_created=env.registrar.changed,
                is_checksummed=is_checksummed,
                rules=lambda: replace(
                    self._scheduled.rules(),
                    retried=groups.retry_routing,
                    no_transactions=self._transactions.refusal(),
                ),
                on_halves=self._transactions.begun,
                on_delayed=env.statistics.delayed,
            ),
            ack_policy=self._ack_policy,
            admission=env.admission,
            properties_suffix=lambda: properties_suffix(
                env.live.broker, is_checksummed=is_checksummed
            ),
            store_host=self.store_host,
            space_made=loop.space_made,
            duplicates=duplicates if has_index else None,
            replies=ReplyForwarder(
                sessions=groups.sessions,
                topics=env.tables.topics,
                clock=env.clock,
                cluster=env.live.broker.cluster,
                are_stored=env.live.broker.store_replies,
                on_created=env.registrar.changed,
            ),
        )

    def handlers(self) -> Sequence[Handler]:
        """Return the handlers of all services, which check permissions.

        Those of a slave refuse requests for its master. Their times count where metrics are shown.
        """
        handlers = [handler for service in self._services for handler in service.handlers()]
        if self._member.is_slave:
            identity, live = self._member.identity, self.env.live
            handlers = slave_handlers(
                handlers,
                name=identity.name,
                broker_id=identity.broker_id,
                may_be_read=lambda: live.broker.slave_read_enabled,
            )
        guarded, latencies = self.access.guarded(handlers), self.env.rpc_latencies
        return guarded if latencies is None else latencies.measured(guarded)

    def jobs(self) -> Sequence[Job]:
        """Return the jobs that run beside the handlers."""
        return (
            self.env.clock.job(),
            *self._store_loop.jobs(),
            *self._retention.jobs(),
            self._verification.job(),
            *self.env.tables.jobs(),
            *self._groups.jobs(),
            self._pulls.holds.job(),
            *self._scans.jobs(),
            self._counted.job(),
            *(() if self._claims is None else (self._claims.job,)),
            *self.access.jobs(),
        )

    def writing_jobs(self) -> Sequence[Job]:
        """Return the jobs that store: begun when the broker listens, ended before `jobs`."""
        if self._following is not None:
            return self._following.jobs()
        return (
            *self._scheduled.jobs(),
            *self._transactions.jobs(),
            self._pulls.offset_moved.job(),
        )

    async def leave(self) -> None:
        """Refuse new requests, and end the waits of `writing_jobs`, which are about to end."""
        self.env.admission.close()
        if self._following is not None:
            await self._following.leave()

    async def settle(self) -> None:
        """Save the progress of `writing_jobs`, which have ended."""
        if self._following is not None:
            await self._following.end()
        else:
            await self._scheduled.settle(self._store_loop.flush_to)

    def fence(self, epoch: int, who: str) -> None:
        """Stop acknowledging and end the term if `epoch` is above that of a master."""
        if self._replicas is not None:
            self._replicas.fence(epoch, who)

    def registered(self) -> None:
        """Notify clients that a NameServer has registered this member."""
        self._groups.sessions.registered(self._member.identity)

    def _arrived(self, arrivals: Sequence[Arrival]) -> None:
        self._pulls.holds.arrived(arrivals)
        if not self._member.is_slave:
            self._scheduled.arrived(arrivals)

    def _clock_stepped(self, by_ms: int) -> None:
        store = self.env.store
        store.session.clock_stepped(by_ms, store.max_physical)
        self._scheduled.stepped(by_ms)

    async def begin(self) -> None:
        """Prepare clock, retention, deliveries, lock tokens and users before the jobs begin.

        The bound of lock tokens is saved before the first is assigned; where the disk refuses that,
        tokens rise by the wall clock.
        """
        clock, store = self.env.clock, self.env.store
        # The clock of its master gave the records of a slave their times.
        clock.on_step = (lambda _: None) if self._member.is_slave else self._clock_stepped
        clock.on_believed = store.session.clock_believed
        clock.has_records = lambda: store.last_stored_at_ms > 0
        await self._retention.begin()
        if not self._member.is_slave:
            await self._scheduled.begin()
        await self.env.tables.versions_file.save()
        await self.access.load()

    async def end(self) -> None:
        """End the scan processes and transactions after the jobs, without storing: slaves left."""
        await self._scans.close()
        if not self._member.is_slave:
            self._transactions.close()

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

        Then slaves that keep up get all of the log, including the last op message, and the tables,
        so that groups resume at the offsets that they committed here last. Sends that take longer
        than the drain stay unanswered; their messages are in the log.
        """
        admission = self.env.admission
        admission.close()
        self._pulls.holds.wake_all()
        self._scans.drain()
        if not await admission.emptied(_DRAIN_TIMEOUT_S):
            logger.warning("sends left unanswered bytes=%s", admission.bytes)
        if self._replicas is not None:
            await self._transactions.settle()
            await self._replicas.settle(_SETTLE_TIMEOUT_S)
            await self._metadata.settle(_SETTLE_TIMEOUT_S)

    def _settings_changed(self) -> None:
        """Pass changed settings to the parts that do not read them at each use."""
        env, config = self.env, self.env.live.broker
        env.store.retune(env.live.store)
        env.admission.limit(
            bytes_max=config.unanswered_max_bytes,
            bytes_per_stream_max=config.stream_unanswered_max_bytes,
        )
        self._pulls.holds.is_long_polling = config.long_polling_enabled
        env.tables.topics.set_template(
            queues=config.default_topic_queues,
            is_allowed=config.auto_create_topics,
            now_ms=env.clock.wall_ms(),
        )
        env.registrar.changed()
