"""Pulls of one broker: the modules of this room, wired to each other."""

from typing import Final

from ternmq_broker.config import BrokerConfig
from ternmq_broker.groups.offset_rules import OffsetRules
from ternmq_broker.live_settings import LiveSettings
from ternmq_broker.pull.answers import PullAnswers
from ternmq_broker.pull.long_polling import PullHoldService, PullHoldTable
from ternmq_broker.pull.offset_moved import OffsetMovedPublisher
from ternmq_broker.pull.rules import PullRules
from ternmq_broker.pull.service import PullService
from ternmq_broker.replication.replica_view import ReplicaView
from ternmq_broker.state.tables import Tables
from ternmq_broker.state.topic_deletion_listeners import TopicDeletionListeners
from ternmq_broker.storage.admission import Admission
from ternmq_broker.storage.reader import StoreReader
from ternmq_remoting.environment import Environment
from ternmq_store.message_store import MessageStore

_SECOND_MS: Final = 1000


class PullAssembly:
    """Pull service and held pulls. Owned by `BrokerAssembly`.

    Args:
        config: The broker's settings.
        env: Clock, blocking calls.
        store: What is read.
        admission: Admission of readers.

    Attributes:
        holds: Pulls that wait for a message.
        deletion_listeners: Pulls and scans that end when their topic is deleted.
        hold_service: Wakes pulls that wait.
    """

    def __init__(
        self,
        config: BrokerConfig,
        env: Environment,
        store: MessageStore,
        admission: Admission,
    ) -> None:
        self._env = env
        self._store = store
        self._admission = admission
        self.holds = PullHoldTable()
        self.deletion_listeners = TopicDeletionListeners()
        self.hold_service = PullHoldService(
            self.holds,
            lambda topic, queue_id: store.queue_range(topic, queue_id)[1],
            short_polling_s=config.short_polling_ms / _SECOND_MS,
            is_long_polling=config.long_polling_enabled,
        )

    def service(
        self,
        live: LiveSettings,
        tables: Tables,
        offset_moved: OffsetMovedPublisher,
        replica_view: ReplicaView,
        *,
        rules: PullRules,
        offset_rules: OffsetRules,
    ) -> PullService:
        """Return the service of pulls.

        Args:
            live: Settings that may change.
            tables: Loaded.
            offset_moved: Publisher of corrected offsets.
            replica_view: Id, epochs and slaves of the broker.
            rules: Rules of pulls.
            offset_rules: Rules of committed offsets.
        """
        env, store = self._env, self._store
        return PullService(
            store=store,
            reader=StoreReader(store, env.blocking),
            rules=rules,
            answers=PullAnswers(
                store,
                tables.groups,
                tables.offsets,
                offset_moved,
                replica_view,
                slave_read_enabled=lambda: live.broker.slave_read_enabled,
                slave_offset_check_enabled=lambda: live.broker.slave_offset_check_enabled,
            ),
            offset_rules=offset_rules,
            holds=self.holds,
            deletion_listeners=self.deletion_listeners,
            clock=env.clock,
            wait_ms_max=lambda: live.broker.pull_wait_ms,
            admission=self._admission,
        )

    def drain(self) -> None:
        """Answer held pulls: their readers ask again, elsewhere or later."""
        for pull in self.holds.take_all():
            pull.wake()
