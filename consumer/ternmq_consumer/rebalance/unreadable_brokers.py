"""Brokers without read permission for a topic that other brokers let a client read."""

import logging

from ternmq_model.route import TopicRoute

logger = logging.getLogger(__name__)


class UnreadableBrokers:
    """Unreadable brokers of each topic in the last log line. Owned by one reader."""

    def __init__(self) -> None:
        self._logged: dict[str, list[str]] = {}

    def note(self, route: TopicRoute) -> None:
        """Log each change of the brokers that restrict the read of a topic to a part.

        A topic without a readable queue is an error elsewhere.
        """
        closed = route.closed_brokers() if route.read_queues() else []
        if closed and closed != self._logged.get(route.topic):
            logger.warning(
                "topic is read in part topic=%s not_permitted_at=%s", route.topic, ",".join(closed)
            )
        self._logged[route.topic] = closed
