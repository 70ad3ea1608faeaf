"""The pull streams of one consumer, and from which member of a broker name each queue is read.

Everything is read from masters until one says that a slave is to be asked, since what the reader
wants is no longer in its memory. A slave that fails, or does not have a queue, gives it back to its
master, and is left alone for a while.

While a master is away everything is read from a slave that stands in for it. What such a slave does
not have, or not yet, is waited for where reading stands: only a master says where a queue goes on.

Source: RocketMQ `PullAPIWrapper.recalculatePullFromWhichNode`.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from ternmq_consumer.broker_connections import BrokerConnections
from ternmq_consumer.pull_stream.flow_control import FlowControlWindow
from ternmq_consumer.pull_stream.pull_link import PullLink
from ternmq_consumer.pull_stream.pulled_queue import PulledQueue, PullReceiver
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.route import MASTER_ID
from ternmq_model.subscription import Subscription
from ternmq_remoting.environment import Environment
from ternmq_runtime.service import OwnedTasks

logger = logging.getLogger(__name__)

AVOID_S: Final = 30.0
"""Time for which a member that failed is not read from: as long as a route is kept."""


class BrokerMembers(BrokerConnections, Protocol):
    """Connections by broker name and id, and which members there are: a `ClientInstance`."""

    def members(self, broker_name: str) -> Sequence[int]:
        """Return the ids of the members of a broker name, as a route has named them."""
        ...

    def member_to_ask(self, broker_name: str) -> int:
        """Return the id of the member that serves readers now: the master, unless it is away."""
        ...

    def epoch(self, broker_name: str) -> int:
        """Return the newest epoch of a broker name that is known; 0 = none is."""
        ...

    def look_for(self, broker_name: str) -> None:
        """Ask soon where the members of a broker name are."""
        ...

    def on_reader_moved(self, listener: Callable[[str, int], None]) -> None:
        """Call `listener` whenever another member serves readers of a broker name from now."""
        ...


class PullLinks:
    """The pull streams of one consumer, one for each broker it reads from.

    Args:
        env: The seams.
        brokers: Gives the connections.
        tasks: Owns what keeps the streams open.
        client_id: Whose streams they are.
        group: For whom they read; may be empty.
        epoch_of: Returns the epoch in which it was learnt where reading a queue begins; None = in
            the present one.
    """

    def __init__(
        self,
        env: Environment,
        brokers: BrokerMembers,
        tasks: OwnedTasks,
        *,
        client_id: str,
        group: str,
        epoch_of: Callable[[MessageQueue], int | None] = lambda _: None,
    ) -> None:
        self._epoch_of = epoch_of
        self._env = env
        self._brokers = brokers
        self._tasks = tasks
        self._client_id = client_id
        self._group = group
        self._links: dict[tuple[str, int], PullLink] = {}
        self._avoided_until_ms: dict[tuple[str, int], int] = {}
        brokers.on_reader_moved(self.moved)

    def subscribe(
        self,
        queue: MessageQueue,
        subscription: Subscription,
        start: QueueOffset,
        window: FlowControlWindow,
        receiver: PullReceiver,
    ) -> PulledQueue:
        """Begin to read `queue` at `start`; `receiver` gets what is read."""
        name = queue.broker_name
        link = self._link(name, self._brokers.member_to_ask(name))
        known = self._epoch_of(queue)
        epoch = self._brokers.epoch(name) if known is None else known
        return link.subscribe(queue, subscription, start, window, receiver, epoch=epoch)

    def renew_stale(self) -> None:
        """See `PullLink.renew_stale`."""
        for link in self._links.values():
            link.renew_stale()

    def suggested(self, pulled_queue: PulledQueue, broker_id: int) -> None:
        """Read a queue from the member that is named, or from another slave. See `ReplicaSelector`.

        A master that is away is not asked, whoever names it.
        """
        name = pulled_queue.queue.broker_name
        present = self._brokers.member_to_ask(name)
        if broker_id == MASTER_ID:
            chosen = None if present != MASTER_ID else MASTER_ID
        else:
            chosen = slave_to_read(broker_id, self._brokers.members(name))
            if chosen is not None and self._is_avoided(name, chosen):
                return
        if chosen is not None and pulled_queue.go_to(self._link(name, chosen)):
            logger.info("queue is read elsewhere queue=%s broker_id=%s", pulled_queue.queue, chosen)

    def failed(self, pulled_queues: Sequence[PulledQueue], broker_id: int, reason: str) -> bool:
        """Read queues from the member that serves readers now. See `ReplicaSelector`."""
        name = pulled_queues[0].queue.broker_name
        self._brokers.look_for(name)
        if broker_id != MASTER_ID:
            until_ms = self._env.clock.monotonic_ms() + int(AVOID_S * 1000)
            self._avoided_until_ms[name, broker_id] = until_ms
        present = self._brokers.member_to_ask(name)
        if present == broker_id:
            return False
        for pulled_queue in pulled_queues:
            logger.info(
                "queue is read elsewhere again queue=%s broker_id=%s before=%s reason=%s",
                pulled_queue.queue,
                present,
                broker_id,
                reason,
            )
            pulled_queue.go_to(self._link(name, present))
        return True

    def moved(self, broker_name: str, broker_id: int) -> None:
        """Read every queue of a broker name from this member from now on."""
        for (name, _), link in list(self._links.items()):
            if name == broker_name:
                for pulled_queue in link.queues:
                    pulled_queue.go_to(self._link(name, broker_id))

    def _is_avoided(self, broker_name: str, broker_id: int) -> bool:
        now_ms = self._env.clock.monotonic_ms()
        return now_ms < self._avoided_until_ms.get((broker_name, broker_id), now_ms)

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
                selector=self,
            )
            suffix = "" if broker_id == MASTER_ID else f"-{broker_id}"
            self._tasks.spawn(link.run(), f"pull-{broker_name}{suffix}")
        return link


def slave_to_read(suggested: int, members: Iterable[int]) -> int | None:
    """Return the suggested slave, or else the one with the lowest id; None = there is none.

    Source: RocketMQ `MQClientInstance.findBrokerAddressInSubscribe`. Pure.
    """
    slaves = set(members) - {MASTER_ID}
    return suggested if suggested in slaves else min(slaves, default=None)
