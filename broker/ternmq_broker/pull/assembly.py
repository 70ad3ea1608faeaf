"""Pulls of one broker: the modules of this room, wired to each other."""

from typing import Final

from ternmq_broker.environment import BrokerEnvironment
from ternmq_broker.groups.assembly import GroupAssembly
from ternmq_broker.pull.answers import PullAnswers
from ternmq_broker.pull.long_polling import PullHoldService
from ternmq_broker.pull.offset_moved import OffsetMovedPublisher
from ternmq_broker.pull.rules import PullRules
from ternmq_broker.pull.service import PullService
from ternmq_broker.replication.role.membership import ReplicaView
from ternmq_broker.state.topic_deletion_listeners import TopicDeletionListeners
from ternmq_broker.storage.internal_append import InternalWriter

_SECOND_MS: Final = 1000


class PullAssembly:
    """Pull service and held pulls. Owned by `BrokerAssembly`.

    Args:
        env: Settings, store and tables of the term.
        groups: Sessions, filters and offsets of groups.
        writer: Stores events of corrected offsets.
        replica_view: Id, epochs and slaves of the broker.

    Attributes:
        holds: Pulls that wait for a message.
        deletion_listeners: Pulls and scans that end when their topic is deleted.
        offset_moved: Publisher of corrected offsets.
        rules: Checks of the queues that readers name.
        service: Handlers of pulls.
    """

    def __init__(
        self,
        env: BrokerEnvironment,
        groups: GroupAssembly,
        writer: InternalWriter,
        replica_view: ReplicaView,
    ) -> None:
        live, store, tables = env.live, env.store, env.tables
        self.deletion_listeners = TopicDeletionListeners()
        self.holds = PullHoldService(
            lambda topic, queue_id: store.queue_range(topic, queue_id)[1],
            short_polling_s=live.broker.short_polling_ms / _SECOND_MS,
            is_long_polling=live.broker.long_polling_enabled,
        )
        self.offset_moved = OffsetMovedPublisher(
            writer, tables.topics, env.clock, live.broker.name, env.registrar.changed
        )
        self.rules = PullRules(
            tables.topics, tables.groups, groups.sessions.table, groups.filter_rules
        )
        self.service = PullService(
            env=env,
            rules=self.rules,
            answers=PullAnswers(
                store,
                tables.groups,
                tables.offsets,
                self.offset_moved,
                replica_view,
                live,
            ),
            offset_rules=groups.offset_rules,
            holds=self.holds,
            deletion_listeners=self.deletion_listeners,
        )
