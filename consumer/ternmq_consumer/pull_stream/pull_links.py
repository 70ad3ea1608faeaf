"""Pull streams of one consumer, and the member of a broker name from which each queue is read.

Queues are read from masters. A master suggests a slave when the records of a reader are no longer
in the master's memory. After a failure of the slave, or without the queue there, the reader returns
to the master and avoids the slave for a while.

While a master is away, a slave serves all readers. A reader waits at its offset for records that
the slave does not have yet: only a master corrects offsets.

Source: RocketMQ `PullAPIWrapper.recalculatePullFromWhichNode`.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from ternmq_client.telemetry.client_telemetry import ClientTelemetry
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
"""Time for which a failed member is avoided, s: as long as a route is cached."""


class BrokerMembers(BrokerConnections, Protocol):
    """Connections by broker name and id, and the known members: a `ClientInstance`."""

    def members(self, broker_name: str) -> Sequence[int]:
        """Return the ids of a broker name's members in the route."""
        ...

    def member_to_ask(self, broker_name: str) -> int:
        """Return the id of the member that serves readers: the master, unless it is away."""
        ...

    def epoch(self, broker_name: str) -> int:
        """Return the newest known epoch of a broker name; 0 = none."""
        ...

    def look_for(self, broker_name: str) -> None:
        """Request a refresh of the members of a broker name."""
        ...

    def on_reader_moved(self, listener: Callable[[str, int], None]) -> None:
        """Call `listener` at each change of the member that serves readers of a broker name."""
        ...


class PullLinks:
    """Pull streams of one consumer, one for each broker.

    Args:
        env: Clock, network and blocking calls.
        tasks: Owner of the tasks that keep the streams open.
        group: Consumer group; may be empty.
        epoch_of: Function that returns the epoch of a queue's start offset; None = the present one.
        telemetry: Telemetry of the client; None = none.
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
        telemetry: ClientTelemetry | None = None,
    ) -> None:
        self._telemetry = telemetry
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
        """Read `queue` from `start` on and pass the replies to `receiver`."""
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
        """Read a queue from the suggested member or another slave. See `ReplicaSelector`.

        A suggested master that is away is ignored.
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
            logger.info(
                "queue is read from another member queue=%s broker_id=%s",
                pulled_queue.queue,
                chosen,
            )

    def failed(self, pulled_queues: Sequence[PulledQueue], broker_id: int, reason: str) -> bool:
        """Read queues from the member that serves readers. See `ReplicaSelector`."""
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
                "queue is read from another member again queue=%s broker_id=%s before=%s reason=%s",
                pulled_queue.queue,
                present,
                broker_id,
                reason,
            )
            pulled_queue.go_to(self._link(name, present))
        return True

    def moved(self, broker_name: str, broker_id: int) -> None:
        """Read every queue of a broker name from this member."""
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
                telemetry=self._telemetry,
            )
            suffix = "" if broker_id == MASTER_ID else f"-{broker_id}"
            self._tasks.spawn(link.run(), f"pull-{broker_name}{suffix}")
        return link


def slave_to_read(suggested: int, members: Iterable[int]) -> int | None:
    """Return the suggested slave, else the slave with the lowest id; None = no slave.

    Source: RocketMQ `MQClientInstance.findBrokerAddressInSubscribe`. Pure.
    """
    slaves = set(members) - {MASTER_ID}
    return suggested if suggested in slaves else min(slaves, default=None)
