"""Reachability of the brokers that a producer sends to, found out without a send."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from ternmq_client.instance import ClientInstance
from ternmq_model.errors import TernError, TransportError
from ternmq_producer.queue_selection.topic_publish_info import TopicPublishInfo, no_queues
from ternmq_producer.send_stream.broker_link import BrokerLink

LOOK_S: Final = 1.0
"""Interval between attempts to reach brokers and routes, while no broker is connected."""


class BrokerReachability:
    """Reachability of the brokers of one producer's topics. Owned by its `MessageSender`.

    Whether a broker can be reached the client knows, whichever part of it tried last; this class
    knows which brokers count: those of the topics sent to, by their routes of now.

    Args:
        client: Dials brokers, asks for routes.
        publish_infos: By topic, as the owner has them now.
        links: By broker name: every one that there ever was.
    """

    def __init__(
        self,
        client: ClientInstance,
        publish_infos: Mapping[str, TopicPublishInfo],
        links: Mapping[str, BrokerLink],
    ) -> None:
        self._client = client
        self._publish_infos = publish_infos
        self._links = links
        self._lost: set[str] = set()
        """Topics that were sent to and have no route any more, or nothing to be written."""
        self._unanswered: set[str] = set()
        """Topics whose route nobody told, or that had no master, when it was asked for last."""

    def is_connected(self) -> bool:
        """Return whether a broker can be reached, as far as known."""
        links = self._counting()
        return any(not link.is_away for link in links) if links else not self._unanswered

    def lose(self, topic: str) -> None:
        """Record that a topic that was sent to has no queues any more."""
        self._lost.add(topic)

    def is_lost(self, topic: str) -> bool:
        """Return whether a topic had queues and has none."""
        return topic in self._lost and topic not in self._publish_infos

    def note(self, topic: str, error: TernError) -> None:
        """Record why a send found no queues."""
        if isinstance(error, TransportError):
            self._unanswered.add(topic)
        else:
            self._unanswered.discard(topic)

    async def run(self) -> None:
        """Look until cancelled, which is safe at any moment: what it began goes on for others."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self._look()

    async def _look(self) -> None:
        """While no broker is connected, try each, and ask for routes that are gone.

        So `is_connected` follows brokers that come back elsewhere, and those never sent to.
        """
        self._lost -= self._publish_infos.keys()
        self._unanswered -= self._publish_infos.keys()
        links = self._counting()
        for link in links:
            if link.is_away:  # its route may have been gone, and be there again
                link.look()
        if any(self._client.reaches(link.broker_name) for link in links):
            return
        await asyncio.gather(*(self._dial(link.broker_name) for link in links))
        for topic in sorted(self._lost | self._unanswered):
            try:
                route = await self._client.routes.route(topic)
            except TernError as error:
                self.note(topic, error)
            else:
                if route.write_queues():
                    self._unanswered.discard(topic)
                else:
                    self.note(topic, no_queues(route))

    async def _dial(self, broker_name: str) -> None:
        with suppress(TernError):
            await self._client.broker(broker_name)

    def _counting(self) -> list[BrokerLink]:
        """Return the links of the topics sent to, each once; all, while no topic has queues."""
        infos = self._publish_infos.values()
        counting = {link.broker_name: link for info in infos for link in info.links}
        return list((counting or self._links).values())
