"""Commits of the offsets of a group without members."""

import asyncio
import logging

from ternmq_model.errors import TernError
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_pipeline.cluster.reader import ClusterReader
from ternmq_pipeline.offsets import Offsets, topics_of
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting.service_methods import COMMIT_OFFSETS, QUERY_OFFSET

logger = logging.getLogger(__name__)


class GroupCommits:
    """Commits the offsets of one group. A broker keeps the higher offset, except after a reset.

    Args:
        reader: Open reader of the cluster. Its connections are used.
    """

    def __init__(self, reader: ClusterReader, group: str) -> None:
        self._reader = reader
        self._group = group
        self._versions: dict[MessageQueue, int] = {}
        """Version of each offset: number of resets. Commits carry it."""

    async def commit(self, offsets: Offsets) -> None:
        """Commit offsets at the brokers of their queues.

        A refused offset is logged: the broker has a higher offset, or the queue is gone.

        Raises:
            TernError: A broker does not answer. The other brokers have the offsets.
        """
        await self._reader.find_brokers(topics_of(offsets))
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in sorted(offsets):
            by_broker.setdefault(queue.broker_name, []).append(queue)
        outcomes = await asyncio.gather(
            *(self._commit_at(name, offsets, queues) for name, queues in by_broker.items()),
            return_exceptions=True,
        )
        for failure in outcomes:
            if isinstance(failure, BaseException):
                raise failure

    async def _commit_at(
        self, broker_name: str, offsets: Offsets, queues: list[MessageQueue]
    ) -> None:
        await asyncio.gather(*(self._learn_version(queue) for queue in queues))
        left = [queue for queue in queues if queue in self._versions]
        for _ in range(2):
            refused = await self._send(broker_name, offsets, left)
            left = [queue for queue, why in refused.items() if self._is_outdated(queue, why)]
            for queue in refused.keys() - set(left):
                logger.info(
                    "offset refused group=%s queue=%s offset=%s kept=%s reason=%s",
                    self._group,
                    queue,
                    offsets[queue],
                    refused[queue].offset,
                    refused[queue].status.remark or refused[queue].status.code,
                )
            if not left:
                return

    async def _learn_version(self, queue: MessageQueue) -> None:
        if queue in self._versions:
            return
        request = groups.QueryOffsetRequest(
            group=self._group, topic=queue.topic, queue_id=queue.queue_id
        )
        try:
            reply, _ = await self._reader.ask(queue.broker_name, QUERY_OFFSET, request)
        except TernError as error:
            if error.retryable:
                raise
            logger.info("offset not committed group=%s queue=%s err=%s", self._group, queue, error)
            return
        self._versions[queue] = reply.version

    async def _send(
        self, broker_name: str, offsets: Offsets, queues: list[MessageQueue]
    ) -> dict[MessageQueue, groups.QueueOffset]:
        """Return the refused offsets with their reasons."""
        request = groups.CommitOffsetsRequest(
            group=self._group,
            client_id=self._reader.client.client_id,
            offsets=[
                groups.QueueOffset(
                    topic=queue.topic,
                    queue_id=queue.queue_id,
                    offset=offsets[queue],
                    version=self._versions[queue],
                )
                for queue in queues
            ],
        )
        reply, _ = await self._reader.ask(broker_name, COMMIT_OFFSETS, request)
        return {
            MessageQueue(each.topic, broker_name, each.queue_id): each for each in reply.refused
        }

    def _is_outdated(self, queue: MessageQueue, why: groups.QueueOffset) -> bool:
        """Return whether the group was reset meanwhile. A commit with the new version succeeds."""
        moved = why.status.code == ResponseCode.PULL_OFFSET_MOVED
        if not moved or why.version <= self._versions[queue]:
            return False
        self._versions[queue] = why.version
        return True
