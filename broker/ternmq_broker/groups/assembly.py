"""The parts of a broker that serve consumer groups, wired to each other."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from ternmq_broker.groups.client_queries import ClientQueries, ClientQueryService
from ternmq_broker.groups.filters.bloom_bit_maps import FilterBitMaps
from ternmq_broker.groups.filters.filter_registry import FilterRegistry
from ternmq_broker.groups.filters.filter_rules import FilterRules
from ternmq_broker.groups.group_admin import GroupAdminService
from ternmq_broker.groups.locks import LockService
from ternmq_broker.groups.offset_rules import OffsetRules
from ternmq_broker.groups.retry.group_topics import GroupTopics
from ternmq_broker.groups.retry.retry_topic_routing import RetryTopicRouting
from ternmq_broker.groups.retry.send_back import SendBackService
from ternmq_broker.groups.service import GroupService
from ternmq_broker.groups.sessions import SessionManager
from ternmq_broker.live_settings import LiveSettings
from ternmq_broker.registration import Registrar
from ternmq_broker.state.clients import ClientTable
from ternmq_broker.state.lock_table import LockTable
from ternmq_broker.state.tables import Tables
from ternmq_broker.statistics.broker_statistics import BrokerStatistics
from ternmq_broker.storage.admission import Admission
from ternmq_broker.storage.internal_append import InternalWriter
from ternmq_broker.storage.reader import StoreReader
from ternmq_broker.storage.system_topic_routing import delayed
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc import RpcService
from ternmq_runtime.service import Job
from ternmq_store.message_store import MessageStore

_SESSIONS_PAUSE_S: Final = 1.0


class GroupAssembly:
    """Sessions, locks, offsets, filters and retries of groups. Owned by `BrokerAssembly`.

    Args:
        live: The broker's settings.
        env: Clock, randomness, blocking calls.
        store: Open.
        tables: Loaded.
        registrar: Registers changed topics.
        statistics: Counters of messages that are sent back.
        is_slave: The broker follows a master: it gives no locks, and creates no topics.

    Attributes:
        sessions: Sessions of clients.
        locks: Locks of queues.
        filter_rules: Rules by which subscriptions filter reads.
        offset_rules: Rules for committed offsets.
        topics: Retry and dead-letter topics of groups.
    """

    def __init__(
        self,
        live: LiveSettings,
        *,
        env: Environment,
        store: MessageStore,
        tables: Tables,
        registrar: Registrar,
        statistics: BrokerStatistics,
        is_slave: bool = False,
    ) -> None:
        config = live.broker
        self._env = env
        self._reader = StoreReader(store, env.blocking)
        self._tables = tables
        self._statistics = statistics
        # Whether a name may be is up to the master: its groups' members come to a slave, too.
        allows_dots = is_slave or config.dots_in_names_allowed
        tables.topics.allows_dots = tables.groups.allows_dots = allows_dots
        self.locks = LockTable(
            first_token=tables.offsets.versions.first_token(now_ms=env.clock.wall_ms()),
            lease_ms=config.lock_lease_ms,
        )
        clients = ClientTable(
            broken_ms=config.broken_session_ms, silent_ms=config.silent_session_ms
        )
        self.offset_rules = OffsetRules(
            store,
            tables.topics,
            tables.offsets,
            None if is_slave else self.locks,
            env.clock,
        )
        # Conditions of a loaded table are unused until a member subscribes by them.
        tables.filters.all_dead(now_ms=env.clock.wall_ms())
        if config.filter_bit_maps_enabled:
            store.keep_bit_maps(FilterBitMaps(tables.filters))
        self.filter_rules = FilterRules(
            clients,
            tables.filters,
            property_filter_enabled=config.property_filter_enabled,
            retry_filter_enabled=config.retry_filter_enabled,
            bit_maps_enabled=config.filter_bit_maps_enabled,
        )
        self._filter_registry = FilterRegistry(
            tables.filters, clients, env.clock, log_end=lambda: store.max_physical
        )
        self.sessions = SessionManager(
            env.clock,
            clients,
            on_left=self.locks.left,
            on_group=self._filter_registry.group_changed,
            is_told=tables.groups.tells_members,
            must_agree=lambda: live.broker.same_subscriptions_required,
        )
        self._client_queries = ClientQueries(self.sessions)
        self.topics = GroupTopics(
            tables.topics,
            env.clock,
            on_created=registrar.changed,
            is_slave=is_slave,
        )
        self._lock_service = LockService(
            locks=self.locks, clients=clients, tables=tables, clock=env.clock
        )

    def services(
        self,
        writer: InternalWriter,
        admission: Admission,
    ) -> Sequence[RpcService]:
        """Return the services of groups.

        Args:
            writer: Stores messages that are sent back.
            admission: Admission of requests.
        """
        return (
            GroupService(
                reader=self._reader,
                tables=self._tables,
                filters=self.filter_rules,
                offset_rules=self.offset_rules,
                sessions=self.sessions,
                group_topics=self.topics,
                client_queries=self._client_queries,
                clock=self._env.clock,
            ),
            self._lock_service,
            SendBackService(
                reader=self._reader,
                writer=writer,
                delayed=delayed,
                group_topics=self.topics,
                tables=self._tables,
                locks=self.locks,
                statistics=self._statistics,
                random=self._env.random,
                clock=self._env.clock,
                admission=admission,
            ),
            ClientQueryService(self.sessions, self._client_queries),
        )

    def admin_service(self, delete_topic: Callable[[str], Awaitable[None]]) -> GroupAdminService:
        """Return the service for operators of groups.

        Args:
            delete_topic: Deletes a topic that exists, with its messages.
        """
        return GroupAdminService(
            reader=self._reader,
            tables=self._tables,
            locks=self.locks,
            sessions=self.sessions,
            statistics=self._statistics,
            group_topics=self.topics,
            clock=self._env.clock,
            delete_topic=delete_topic,
        )

    def retry_topic_routing(self) -> RetryTopicRouting:
        """Return the routing of records that clients send to retry topics."""
        return RetryTopicRouting(self._tables.groups, self.locks, self.topics, self._env.clock)

    def jobs(self) -> Sequence[Job]:
        """Return the jobs of sessions, locks and filters."""
        sessions = Job(name="sessions", interval_s=_SESSIONS_PAUSE_S, step=self.sessions.expire)
        return sessions, self._lock_service.job(), self._filter_registry.job()
