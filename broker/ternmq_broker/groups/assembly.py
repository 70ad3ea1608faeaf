"""The parts of a broker that serve consumer groups, wired to each other."""

from collections.abc import Sequence
from typing import Final

from ternmq_broker.environment import BrokerEnvironment
from ternmq_broker.groups.client_queries import ClientQueries, ClientQueryService
from ternmq_broker.groups.filters.bloom_bit_maps import FilterBitMaps
from ternmq_broker.groups.filters.filter_registry import FilterRegistry
from ternmq_broker.groups.filters.filter_rules import FilterRules
from ternmq_broker.groups.locks import LockService
from ternmq_broker.groups.offset_rules import OffsetRules
from ternmq_broker.groups.retry.group_topics import GroupTopics
from ternmq_broker.groups.retry.retry_topic_routing import RetryTopicRouting
from ternmq_broker.groups.retry.send_back import SendBackService
from ternmq_broker.groups.service import GroupService
from ternmq_broker.groups.sessions import SessionManager
from ternmq_broker.state.clients import ClientTable
from ternmq_broker.state.lock_table import LockTable
from ternmq_broker.storage.internal_append import InternalWriter
from ternmq_runtime.service import Job

_SESSIONS_PAUSE_S: Final = 1.0


class GroupAssembly:
    """Sessions, locks, offsets, filters and retries of groups. Owned by `BrokerAssembly`.

    A slave assigns no locks, and creates no topics.

    Attributes:
        sessions: Sessions of clients.
        locks: Locks of queues.
        filter_rules: Rules by which subscriptions filter reads.
        offset_rules: Rules for committed offsets.
        topics: Retry and dead-letter topics of groups.
        retry_routing: Routing of records that clients send to retry topics.
        services: Services of clients; operators have services of their own.
    """

    def __init__(self, env: BrokerEnvironment, writer: InternalWriter) -> None:
        live, tables, clock = env.live, env.tables, env.clock
        config = live.broker
        # The master checks new names: a slave gets the members of its groups, too.
        allows_dots = env.is_slave or config.dots_in_names_allowed
        tables.topics.allows_dots = tables.groups.allows_dots = allows_dots
        self.locks = LockTable(
            first_token=tables.offsets.versions.first_token(now_ms=clock.wall_ms()),
            lease_ms=config.lock_lease_ms,
        )
        clients = ClientTable(
            broken_ms=config.broken_session_ms, silent_ms=config.silent_session_ms
        )
        self.offset_rules = OffsetRules(env, None if env.is_slave else self.locks)
        self.filter_rules = _filter_rules(env, clients)
        self._filter_registry = FilterRegistry(
            tables.filters, clients, clock, log_end=lambda: env.store.max_physical
        )
        self.sessions = SessionManager(
            clock,
            clients,
            on_left=self.locks.left,
            on_group=self._filter_registry.group_changed,
            notifies_members=tables.groups.notifies_members,
            must_agree=lambda: live.broker.same_subscriptions_required,
        )
        self.topics = GroupTopics(
            tables.topics, clock, on_created=env.registrar.changed, is_slave=env.is_slave
        )
        self.retry_routing = RetryTopicRouting(tables.groups, self.locks, self.topics, clock)
        self._lock_service = LockService(env=env, locks=self.locks, clients=clients)
        client_queries = ClientQueries(self.sessions)
        self.services = (
            GroupService(
                env=env,
                filters=self.filter_rules,
                offset_rules=self.offset_rules,
                sessions=self.sessions,
                group_topics=self.topics,
                client_queries=client_queries,
            ),
            self._lock_service,
            SendBackService(env=env, writer=writer, group_topics=self.topics, locks=self.locks),
            ClientQueryService(self.sessions, client_queries),
        )

    def jobs(self) -> Sequence[Job]:
        """Return the jobs of sessions, locks and filters."""
        sessions = Job(name="sessions", interval_s=_SESSIONS_PAUSE_S, step=self.sessions.expire)
        return sessions, self._lock_service.job(), self._filter_registry.job()


def _filter_rules(env: BrokerEnvironment, clients: ClientTable) -> FilterRules:
    config, filters = env.live.broker, env.tables.filters
    # Conditions of a loaded table are unused until a member subscribes by them.
    filters.all_dead(now_ms=env.clock.wall_ms())
    if config.filter_bit_maps_enabled:
        env.store.keep_bit_maps(FilterBitMaps(filters))
    return FilterRules(
        clients,
        filters,
        property_filter_enabled=config.property_filter_enabled,
        retry_filter_enabled=config.retry_filter_enabled,
        bit_maps_enabled=config.filter_bit_maps_enabled,
    )
