"""The locks that let one member alone consume a queue, in order.

A broker gives a lock for the time of a lease, under a token that names this holding of the queue.
The lease is kept by asking again. A client cannot know when the broker counts its lease as over, so
it trusts one for much less than its length, from when it asked: if nothing comes back it stops long
before anybody else can begin.

Source: RocketMQ `ConsumeMessageOrderlyService`, `RebalanceLockManager`; the tokens are ours.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from ternmq_consumer.broker_connections import BrokerConnections
from ternmq_model.clock import Clock
from ternmq_model.errors import BrokerDraining, RefusedError, TernError
from ternmq_model.queue import MessageQueue
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting.service_methods import LOCK_QUEUES, UNLOCK_QUEUES
from ternmq_runtime.service import OwnedTasks

logger = logging.getLogger(__name__)

TRUST_MS: Final = 8_000
"""No listener call begins later than this after a lock was asked for that the broker confirmed. The
broker's lease is 30 s from when it answered."""

RENEW_AFTER_MS: Final = 5_000
"""A lock is renewed when it was asked for so long ago."""

RENEW_INTERVAL_S: Final = 1.0
"""Interval between looks for locks that are to be renewed. What could not be renewed is tried again
at the next look, so an answer that is lost once costs nobody the trust."""

_NO_TOKEN: Final = 0


def is_trusted(asked_at_ms: int, now_ms: int) -> bool:
    """Return whether a listener call may begin now under a lock that was asked for then."""
    return now_ms - asked_at_ms <= TRUST_MS


class Lease:
    """One holding of one queue. Owned by `QueueLocks`; read by listener threads.

    Attributes:
        token: Names the holding; commits and send-backs of the queue carry it.
        asked_at_ms: When the request was sent that the broker confirmed last; monotonic.
        is_lost: The queue is not this member's any more.
    """

    __slots__ = ("_clock", "asked_at_ms", "is_lost", "token")

    def __init__(self, clock: Clock, token: int, asked_at_ms: int) -> None:
        self._clock = clock
        self.token = token
        self.asked_at_ms = asked_at_ms
        self.is_lost = False

    @property
    def holds(self) -> bool:
        """A listener call may begin now."""
        return not self.is_lost and is_trusted(self.asked_at_ms, self._clock.monotonic_ms())


@dataclass(frozen=True, slots=True)
class _LingeringLock:
    """A lock that is given back when a listener call has ended."""

    queue: MessageQueue
    token: int
    is_busy: Callable[[], bool]


class QueueLocks:
    """The locks of one orderly consumer. Owned by it, used by its event loop.

    Args:
        brokers: Gives the connections.
        clock: Tells how old a confirmation is.
        tasks: Owns what waits for answers to renewals: a broker that does not answer must not keep
            others from being asked in time.
        group: For which group the queues are locked.
        client_id: Who holds them.
        timeout_s: For each request.
        on_lost: Called when a queue has another holder now, or had one meanwhile: what is in hand
            of it is to be forgotten, and nothing of it committed.
        on_renewed: Called when a lock was confirmed that was not trusted any more.
    """

    def __init__(
        self,
        brokers: BrokerConnections,
        clock: Clock,
        tasks: OwnedTasks,
        *,
        group: str,
        client_id: str,
        timeout_s: float,
        on_lost: Callable[[MessageQueue], None],
        on_renewed: Callable[[MessageQueue], None],
    ) -> None:
        self._brokers = brokers
        self._clock = clock
        self._tasks = tasks
        self._group = group
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._on_lost = on_lost
        self._on_renewed = on_renewed
        self._leases: dict[MessageQueue, Lease] = {}
        self._troubles: dict[str, str] = {}
        self._lingering: list[_LingeringLock] = []
        self._renewing: set[str] = set()

    def token(self, queue: MessageQueue) -> int:
        """Return what commits and send-backs of `queue` carry; 0 for a queue that is not locked."""
        lease = self._leases.get(queue)
        return _NO_TOKEN if lease is None else lease.token

    async def take(self, queues: Collection[MessageQueue]) -> Mapping[MessageQueue, Lease]:
        """Lock queues, none of which is locked; return those that are now, with their leases.

        The others have another holder, or their broker does not answer. Cancelling leaves locks
        behind that end with their leases.
        """
        before = set(self._leases)
        await self._ask(queues)
        return {
            queue: self._leases[queue]
            for queue in queues
            if queue in self._leases and queue not in before
        }

    async def renew(self) -> bool:
        """Renew the locks that are due, give back those that were to wait. The step of a job.

        Does not wait for answers.
        """
        now_ms = self._clock.monotonic_ms()
        due = [
            queue
            for queue, lease in self._leases.items()
            if now_ms - lease.asked_at_ms >= RENEW_AFTER_MS
        ]
        for broker_name, queues in _by_broker(due).items():
            if broker_name not in self._renewing:
                self._renewing.add(broker_name)
                renewal = self._renew_broker(broker_name, queues)
                self._tasks.spawn(renewal, f"renew locks {broker_name}")
        idle = [each for each in self._lingering if not each.is_busy()]
        if idle:
            self._lingering = [each for each in self._lingering if each not in idle]
            unlocking = self._unlock_all({each.queue: each.token for each in idle})
            self._tasks.spawn(unlocking, "unlock queues")
        return False

    async def give_back(self, queues: Collection[MessageQueue]) -> None:
        """Unlock those of `queues` that are locked, so that others need not wait for their leases.

        A broker that does not answer lets the leases run out.
        """
        await self._unlock_all(
            {queue: lease.token for queue in queues if (lease := self.forget(queue)) is not None}
        )

    def give_back_later(self, queue: MessageQueue, is_busy: Callable[[], bool]) -> None:
        """Unlock `queue` as soon as no listener call works on it.

        The lock is not renewed: after its lease another member may get it.
        """
        lease = self.forget(queue)
        if lease is not None:
            self._lingering.append(_LingeringLock(queue, lease.token, is_busy))

    def forget(self, queue: MessageQueue) -> Lease | None:
        """Stop renewals of the lock of `queue`, and listener calls under it."""
        lease = self._leases.pop(queue, None)
        if lease is not None:
            lease.is_lost = True
        return lease

    def lose(self, queue: MessageQueue, token: int) -> None:
        """Drop the refused `token` as stale, unless a newer token is held."""
        lease = self._leases.get(queue)
        if lease is not None and lease.token == token:
            logger.warning("queue lock lost queue=%s group=%s", queue, self._group)
            self.forget(queue)
            self._on_lost(queue)

    async def _renew_broker(self, broker_name: str, queues: Collection[MessageQueue]) -> None:
        try:
            await self._ask_broker(broker_name, queues)
        finally:
            self._renewing.discard(broker_name)

    async def _unlock_all(self, tokens: Mapping[MessageQueue, int]) -> None:
        async with asyncio.TaskGroup() as requests:
            for broker_name, queues in _by_broker(tokens).items():
                share = {queue: tokens[queue] for queue in queues}
                requests.create_task(self._unlock(broker_name, share))

    async def _ask(self, queues: Collection[MessageQueue]) -> None:
        async with asyncio.TaskGroup() as requests:
            for broker_name, share in _by_broker(queues).items():
                requests.create_task(self._ask_broker(broker_name, share))

    async def _ask_broker(self, broker_name: str, queues: Collection[MessageQueue]) -> None:
        asked = {queue: self._leases.get(queue) for queue in queues}
        tokens = {
            queue: _NO_TOKEN if lease is None else lease.token for queue, lease in asked.items()
        }
        request = groups.LockQueuesRequest(
            group=self._group, client_id=self._client_id, queues=_locks(tokens)
        )
        try:
            connection = await self._brokers.broker(broker_name)
            asked_at_ms = self._clock.monotonic_ms()
            reply = await connection.call(LOCK_QUEUES, request, timeout_s=self._timeout_s)
        except TernError as error:
            passes = isinstance(error, BrokerDraining) or not isinstance(error, RefusedError)
            self._log_trouble(broker_name, str(error), logging.INFO if passes else logging.WARNING)
            return
        self._log_trouble(broker_name, "")
        locked = {
            MessageQueue(lock.topic, broker_name, lock.queue_id): lock.token
            for lock in reply.locked
        }
        for queue, lease in asked.items():
            self._note(queue, lease, locked.get(queue, _NO_TOKEN), asked_at_ms)

    def _note(self, queue: MessageQueue, lease: Lease | None, token: int, asked_at_ms: int) -> None:
        """Apply a broker's answer for a queue whose lock was requested under `lease`."""
        if self._leases.get(queue) is not lease:
            return  # given back, or lost, while the request was under way
        if lease is None:
            if token:
                self._leases[queue] = Lease(self._clock, token, asked_at_ms)
        elif token == lease.token:
            was_trusted = lease.holds
            lease.asked_at_ms = asked_at_ms
            if not was_trusted:
                self._on_renewed(queue)
        else:
            # Another holder, or none and the lock is a new one: somebody may have had it between.
            self.lose(queue, lease.token)

    def _log_trouble(self, broker_name: str, trouble: str, level: int = logging.INFO) -> None:
        """Log what is new, so that a look each second does not fill the log.

        A refusal is a warning: unlike a broker that is away or draining it may last.
        """
        if trouble == self._troubles.get(broker_name, ""):
            return
        self._troubles[broker_name] = trouble
        if trouble:
            logger.log(
                level,
                "queues not locked broker=%s group=%s error=%s",
                broker_name,
                self._group,
                trouble,
            )
        else:
            logger.info("queues locked again broker=%s group=%s", broker_name, self._group)

    async def _unlock(self, broker_name: str, tokens: Mapping[MessageQueue, int]) -> None:
        request = groups.UnlockQueuesRequest(
            group=self._group, client_id=self._client_id, queues=_locks(tokens)
        )
        try:
            connection = await self._brokers.broker(broker_name)
            await connection.call(UNLOCK_QUEUES, request, timeout_s=self._timeout_s)
        except TernError as error:
            logger.info("queues not unlocked broker=%s error=%s", broker_name, error)


def _locks(tokens: Mapping[MessageQueue, int]) -> list[groups.QueueLock]:
    return [
        groups.QueueLock(topic=queue.topic, queue_id=queue.queue_id, token=token)
        for queue, token in tokens.items()
    ]


def _by_broker(queues: Collection[MessageQueue]) -> dict[str, list[MessageQueue]]:
    by_broker: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        by_broker.setdefault(queue.broker_name, []).append(queue)
    return by_broker
