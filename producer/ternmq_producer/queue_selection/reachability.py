"""Reachability of the brokers that a producer sends to, found without a send."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from ternmq_client.instance import ClientInstance
from ternmq_model.errors import TernError, TransportError
from ternmq_producer.queue_selection.topic_publish_info import TopicPublishInfo, no_queues
from ternmq_producer.send_stream.broker_link import BrokerLink
from ternmq_runtime.timers import Wait

LOOK_S: Final = 1.0
"""Interval between attempts to reach brokers and routes, while no broker is connected."""


class BrokerReachability:
    """Reachability of the brokers of one producer's topics. Owned by its `MessageSender`.

    The client knows the outcome of the last attempt to reach each broker; this class knows the
    brokers that count: those in the current routes of the topics sent to.

    Args:
        client: Client that dials brokers and asks for routes.
        publish_infos: Publish infos of the owner by topic.
        links: Links of the owner by broker name, never removed.
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
        """Topics that lost their route, or every queue to write to, after a send."""
        self._unanswered: set[str] = set()
        """Topics without an answer about their route, or without a master, at the last request."""

    def is_connected(self) -> bool:
        """Return whether a broker could be reached at the last attempt."""
        links = self._counting()
        return any(not link.is_away for link in links) if links else not self._unanswered

    def lose(self, topic: str) -> None:
        """Record that a topic has lost its queues after a send."""
        self._lost.add(topic)

    def is_lost(self, topic: str) -> bool:
        """Return whether a topic lost its queues and has none."""
        return topic in self._lost and topic not in self._publish_infos

    def note(self, topic: str, error: TernError) -> None:
        """Record the error of a send that found no queues."""
        if isinstance(error, TransportError):
            self._unanswered.add(topic)
        else:
            self._unanswered.discard(topic)

    async def run(self) -> None:
        """Try brokers and routes at each interval until cancelled, which is safe at any moment."""
        while True:
            await self._client.env.timers.sleep(LOOK_S, wait=Wait.PERIODIC)
            await self._look()

    async def _look(self) -> None:
        """Try every broker and ask for missing routes, while no broker is connected.

        So `is_connected` follows brokers that return at another address, and those never sent to.
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
        """Return the links of the topics sent to, each once; all while no topic has queues."""
        infos = self._publish_infos.values()
        counting = {link.broker_name: link for info in infos for link in info.links}
        return list((counting or self._links).values())
