"""The pull streams of one consumer, and from which member of a broker name each queue is read.

Everything is read from masters until one says that a slave is to be asked, since what the reader
wants is no longer in its memory. A slave that fails, or does not have a queue, gives it back to its
master, and is left alone for a while.

Source: RocketMQ `PullAPIWrapper.recalculatePullFromWhichNode`.
"""

import logging
from collections.abc import Sequence
from typing import Final, Protocol

from ternmq_consumer.brokers import Brokers
from ternmq_consumer.flow_control import Window
from ternmq_consumer.pull_link import PulledQueue, PullLink, PullReceiver
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.route import MASTER_ID
from ternmq_model.subscription import Subscription
from ternmq_remoting.environment import Environment
from ternmq_runtime.service import OwnedTasks

logger = logging.getLogger(__name__)

AVOID_S: Final = 30.0
"""How long a member that failed is not read from: as long as a route is kept."""


class Members(Brokers, Protocol):
    """Connections by broker name and id, and which members there are: a `ClientInstance`."""

    def has_member(self, broker_name: str, broker_id: int) -> bool:
        """Tell whether a route has named that member of a broker name."""
        ...


class PullLinks:
    """The pull streams of one consumer, one for each broker it reads from.

    Args:
        env: The seams.
        brokers: Gives the connections.
        tasks: Owns what keeps the streams open.
        client_id: Whose streams they are.
        group: For whom they read; may be empty.
    """

    def __init__(
        self,
        env: Environment,
        brokers: Members,
        tasks: OwnedTasks,
        *,
        client_id: str,
        group: str,
    ) -> None:
        self._env = env
        self._brokers = brokers
        self._tasks = tasks
        self._client_id = client_id
        self._group = group
        self._links: dict[tuple[str, int], PullLink] = {}
        self._avoided_until_ms: dict[tuple[str, int], int] = {}

    def subscribe(
        self,
        queue: MessageQueue,
        subscription: Subscription,
        start: QueueOffset,
        window: Window,
        receiver: PullReceiver,
    ) -> PulledQueue:
        """Begin to read `queue` at `start`; `receiver` gets what is read."""
        link = self._link(queue.broker_name, MASTER_ID)
        return link.subscribe(queue, subscription, start, window, receiver)

    def renew_stale(self) -> None:
        """See `PullLink.renew_stale`."""
        for link in self._links.values():
            link.renew_stale()

    def suggested(self, pulled_queue: PulledQueue, broker_id: int) -> None:
        """Read a queue from the member that is named. See `Elsewhere`."""
        name = pulled_queue.queue.broker_name
        if broker_id != MASTER_ID:
            now_ms = self._env.clock.monotonic_ms()
            if now_ms < self._avoided_until_ms.get((name, broker_id), now_ms):
                return
            if not self._brokers.has_member(name, broker_id):
                return
        logger.info("queue is read elsewhere queue=%s broker_id=%s", pulled_queue.queue, broker_id)
        pulled_queue.go_to(self._link(name, broker_id))

    def failed(self, pulled_queues: Sequence[PulledQueue], broker_id: int, reason: str) -> None:
        """Read queues from their masters again. See `Elsewhere`."""
        until_ms = self._env.clock.monotonic_ms() + int(AVOID_S * 1000)
        for pulled_queue in pulled_queues:
            name = pulled_queue.queue.broker_name
            self._avoided_until_ms[name, broker_id] = until_ms
            logger.warning(
                "queue is read from its master again queue=%s broker_id=%s reason=%s",
                *(pulled_queue.queue, broker_id, reason),
            )
            pulled_queue.go_to(self._link(name, MASTER_ID))

    def _link(self, broker_name: str, broker_id: int) -> PullLink:
        link = self._links.get((broker_name, broker_id))
        if link is None:
            link = self._links[broker_name, broker_id] = PullLink(
                self._env,
                self._brokers,
                broker_name=broker_name,
                client_id=self._client_id,
                group=self._group,
                broker_id=broker_id,
                elsewhere=self,
            )
            suffix = "" if broker_id == MASTER_ID else f"-{broker_id}"
            self._tasks.spawn(link.run(), f"pull-{broker_name}{suffix}")
        return link
