"""Changes of topics by operators: saved, told to NameServers and to readers."""

import logging
from collections.abc import Sequence

from ternmq_broker.pull.long_polling import PullHoldTable
from ternmq_broker.registration import Registrar
from ternmq_broker.state.tables import Tables
from ternmq_broker.state.topic_deletion_listeners import TopicDeletionListeners
from ternmq_broker.statistics.broker_statistics import BrokerStatistics

logger = logging.getLogger(__name__)


class TopicChanges:
    """Consequences of created, changed and deleted topics.

    Args:
        tables: Hold the topics.
        registrar: Tells NameServers.
        statistics: Counts by topic.
        holds: Pulls that wait.
        deletion_listeners: Pulls and scans that end when their topic is deleted.
    """

    def __init__(
        self,
        tables: Tables,
        registrar: Registrar,
        statistics: BrokerStatistics,
        *,
        holds: PullHoldTable,
        deletion_listeners: TopicDeletionListeners,
    ) -> None:
        self._tables = tables
        self._registrar = registrar
        self._statistics = statistics
        self._holds = holds
        self._deletion_listeners = deletion_listeners

    async def changed(self, topics: Sequence[str]) -> None:
        """Save the topics and register them; let who waits for one of these look again.

        Raises:
            StoreError: The table could not be saved; it is, as soon as the disk allows it.
            RefusedError: A NameServer refuses them; names it. They are saved.
        """
        for topic in topics:
            for pull in self._holds.take_topic(topic):
                pull.wake()
        version = self._tables.topics.version
        self._registrar.changed()
        if (saved := self._tables.topics_file.saved()) is not None:
            await saved
        if not await self._registrar.told(version):
            logger.warning("a NameServer is told later topics=%s of %s", topics[:3], len(topics))
        self._registrar.check_taken(version, " ".join(("topic", *topics))[:200])

    def deleted(self, topic: str) -> None:
        """End who reads the topic, and forget what else is known of it."""
        self._deletion_listeners.deleted(topic)
        self._tables.filters.remove_topic(topic)
        self._statistics.forget_topic(topic)

    async def deletions_saved(self, topics: Sequence[str]) -> None:
        """Let neither deleted topics nor their offsets come back after a crash.

        Raises:
            StoreError: A table could not be saved; it is, as soon as the disk allows it.
            RefusedError: A NameServer refuses to hear of it; names it. They are saved.
        """
        saved = (self._tables.offsets_file.saved(), self._tables.versions_file.saved())
        try:
            await self.changed(topics)
        finally:
            for each in filter(None, saved):
                await each
