"""Locks of queues for orderly consumers: only one member consumes a queue.

A broker grants a lock for the time of a lease, with a token for this holding of the queue. A new
request renews the lease. A client does not know the moment at which the broker's lease ends, so it
trusts a lease for a shorter time, counted from its request: without an answer the client stops long
before another member can begin.

Source: RocketMQ `ConsumeMessageOrderlyService`, `RebalanceLockManager`. RocketMQ has no tokens.
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
from ternmq_runtime.service import Job, OwnedTasks
from ternmq_runtime.timers import Wait

logger = logging.getLogger(__name__)

TRUST_MS: Final = 8_000
"""Longest time between the last confirmed request of a lock and the begin of a listener call, ms.
The broker's lease is 30 s, counted from its answer."""

RENEW_AFTER_MS: Final = 5_000
"""Age of the last request after which a lock is renewed, ms."""

_RENEW_INTERVAL_S: Final = 1.0
"""Interval between renewals of due locks, s. A failed renewal is repeated after it, so one lost
answer does not end the trust."""

_NO_TOKEN: Final = 0


def is_trusted(asked_at_ms: int, now_ms: int) -> bool:
    """Return whether a listener call may begin at `now_ms` under a lock of that request."""
    return now_ms - asked_at_ms <= TRUST_MS


class Lease:
    """Lease of one queue's lock. Owned by `QueueLocks`; threads of listeners read it.

    Attributes:
        token: Token of the holding. Commits and send-backs of the queue carry it.
        asked_at_ms: Time of the last confirmed request, monotonic ms.
        is_lost: The queue no longer belongs to this member.
    """

    __slots__ = ("_clock", "asked_at_ms", "is_lost", "token")

    def __init__(self, clock: Clock, token: int, asked_at_ms: int) -> None:
        self._clock = clock
        self.token = token
        self.asked_at_ms = asked_at_ms
        self.is_lost = False

    @property
    def holds(self) -> bool:
        """True while a listener call may begin."""
        return not self.is_lost and is_trusted(self.asked_at_ms, self._clock.monotonic_ms())


@dataclass(frozen=True, slots=True)
class _LingeringLock:
    """Lock that is released at the end of a listener call."""

    queue: MessageQueue
    token: int
    is_busy: Callable[[], bool]


class QueueLocks:
    """Locks of one orderly consumer. Owned by the consumer and used on its event loop.

    Args:
        tasks: Owner of the tasks that wait for renewals: a broker without an answer does not delay
            requests to other brokers.
        timeout_s: Timeout of each request, s.
        on_lost: Called when a queue has or had another holder: its unfinished messages must be
            dropped and not committed.
        on_renewed: Called when an untrusted lock is confirmed again.
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
        """Return the token for commits and send-backs of `queue`; 0 = the queue is not locked."""
        lease = self._leases.get(queue)
        return _NO_TOKEN if lease is None else lease.token

    async def take(self, queues: Collection[MessageQueue]) -> Mapping[MessageQueue, Lease]:
        """Lock unlocked queues and return the leases of those that were granted.

        A missing queue has another holder, or its broker does not answer. Locks that remain after
        cancelling end with their leases.
        """
        before = set(self._leases)
        await self._ask(queues)
        return {
            queue: self._leases[queue]
            for queue in queues
            if queue in self._leases and queue not in before
        }

    def job(self) -> Job:
        """Return the job that renews the locks."""
        return Job(
            name="renew-locks", interval_s=_RENEW_INTERVAL_S, step=self.renew, wait=Wait.RENEWAL
        )

    async def renew(self) -> bool:
        """Renew due locks and release lingering ones. Step of a job; does not wait for answers."""
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
        """Release the locks of `queues`, so that other members need not wait for the leases.

        At a broker that does not answer the leases run out.
        """
        await self._unlock_all(
            {queue: lease.token for queue in queues if (lease := self.forget(queue)) is not None}
        )

    def give_back_later(self, queue: MessageQueue, is_busy: Callable[[], bool]) -> None:
        """Release the lock of `queue` as soon as no listener works on its messages.

        The lock is not renewed: after its lease another member may get it.
        """
        lease = self.forget(queue)
        if lease is not None:
            self._lingering.append(_LingeringLock(queue, lease.token, is_busy))

    def forget(self, queue: MessageQueue) -> Lease | None:
        """Stop renewing the lock of `queue`, and stop listener calls under it."""
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
            # Another member has the lock, or may have had it before this new one.
            self.lose(queue, lease.token)

    def _log_trouble(self, broker_name: str, trouble: str, level: int = logging.INFO) -> None:
        """Log a change of a broker's trouble only, since renewals run each second.

        A refusal is a warning, because it may last longer than a broker that is away or draining.
        """
        if trouble == self._troubles.get(broker_name, ""):
            return
        self._troubles[broker_name] = trouble
        if trouble:
            logger.log(
                level,
                "queues not locked broker=%s group=%s err=%s",
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
            logger.info("queues not unlocked broker=%s err=%s", broker_name, error)


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
