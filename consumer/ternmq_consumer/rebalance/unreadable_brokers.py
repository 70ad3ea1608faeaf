"""Brokers whose queues of a topic may not be read, while other brokers' queues may."""

import logging

from ternmq_model.route import TopicRoute

logger = logging.getLogger(__name__)


class UnreadableBrokers:
    """Unreadable brokers by topic, as a reader has logged them last. Owned by that reader."""

    def __init__(self) -> None:
        self._logged: dict[str, list[str]] = {}

    def note(self, route: TopicRoute) -> None:
        """Log the brokers by which a topic is read only in part, once for each change.

        A topic of which no queue may be read is an error elsewhere.
        """
        closed = route.closed_brokers() if route.read_queues() else []
        if closed and closed != self._logged.get(route.topic):
            logger.warning(
                "topic is read in part topic=%s not_permitted_at=%s", route.topic, ",".join(closed)
            )
        self._logged[route.topic] = closed
