"""The service of LockQueues and UnlockQueues.

Source: RocketMQ `AdminBrokerProcessor`, `RebalanceLockManager`.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ternmq_broker.environment import BrokerEnvironment
from ternmq_broker.state.clients import ClientTable, check_client_id
from ternmq_broker.state.lock_table import LockTable, QueueKey
from ternmq_model.errors import invalid, refusal
from ternmq_model.names import check_group
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting.rpc import Call, Handler, unary
from ternmq_remoting.service_methods import LOCK_QUEUES, UNLOCK_QUEUES
from ternmq_runtime.service import Job

logger = logging.getLogger(__name__)

JOB: Final = "locks"
_EXPIRY_INTERVAL_S: Final = 10.0
_QUEUES_MAX: Final = 65_536


@dataclass(frozen=True, kw_only=True, slots=True)
class LockService:
    """Handlers of LockQueues and UnlockQueues."""

    env: BrokerEnvironment
    locks: LockTable
    clients: ClientTable

    def handlers(self) -> Sequence[Handler]:
        """Return the handlers of LockQueues and UnlockQueues."""
        return unary(LOCK_QUEUES, self.lock_queues), unary(UNLOCK_QUEUES, self.unlock_queues)

    def job(self) -> Job:
        """Return the job that removes expired locks."""
        return Job(name=JOB, interval_s=_EXPIRY_INTERVAL_S, step=self.expire)

    async def lock_queues(
        self, request: groups.LockQueuesRequest, call: Call
    ) -> groups.LockQueuesReply:
        """Lock queues for a member of a group, or renew their leases.

        A client with a broken Session is refused: its locks end when the Session expires, however
        late they were renewed.
        """
        group = self.env.tables.groups.use(request.group, now_ms=self.env.clock.wall_ms())
        client_id = check_client_id(request.client_id)
        if not group.consume_enabled:
            remark = f"group {group.group!r} may not consume"
            raise refusal(ResponseCode.NO_PERMISSION, remark)
        session = self.clients.live(client_id)
        if session is not None and session.broken_at_ms is not None:
            remark = f"the Session of {client_id!r} is broken; its locks end soon"
            raise refusal(ResponseCode.SYSTEM_BUSY, remark)
        asked = [(key, token) for key, token in _queues(request.queues) if self._is_there(key)]
        before = self.locks.last_token
        given = self.locks.lock(group.group, client_id, asked, now_ms=self.env.clock.monotonic_ms())
        if self.locks.last_token != before:
            self.env.tables.offsets.versions.reserve_tokens(self.locks.last_token)
            logger.info(
                "queues locked group=%s client=%s taken=%s held=%s",
                group.group,
                client_id,
                self.locks.last_token - before,
                len(given),
            )
        return groups.LockQueuesReply(
            locked=[
                groups.QueueLock(topic=key.topic, queue_id=key.queue_id, token=token)
                for key, token in given
            ],
            lease_ms=self.locks.lease_ms,
        )

    async def unlock_queues(
        self, request: groups.UnlockQueuesRequest, call: Call
    ) -> groups.UnlockQueuesReply:
        """Unlock queues of a member."""
        group, client_id = check_group(request.group), check_client_id(request.client_id)
        freed = self.locks.unlock(group, client_id, _queues(request.queues))
        if freed:
            logger.info("queues unlocked group=%s client=%s freed=%s", group, client_id, freed)
        return groups.UnlockQueuesReply()

    async def expire(self) -> bool:
        """Remove expired locks. The step of the `locks` job."""
        self.locks.expire(now_ms=self.env.clock.monotonic_ms())
        return False

    def _is_there(self, key: QueueKey) -> bool:
        config = self.env.tables.topics.get(key.topic)
        return config is not None and 0 <= key.queue_id < max(
            config.read_queues, config.write_queues
        )


def _queues(queues: Sequence[groups.QueueLock]) -> Iterable[tuple[QueueKey, int]]:
    """Return the queues of a request, with their tokens."""
    if len(queues) > _QUEUES_MAX:
        raise invalid(f"{len(queues)} queues; at most {_QUEUES_MAX} can be named at once")
    return [(QueueKey(each.topic, each.queue_id), each.token) for each in queues]
