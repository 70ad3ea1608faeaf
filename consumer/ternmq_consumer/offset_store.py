"""How far a group is in the queues that this consumer owns, here and at their brokers.

Source: RocketMQ `RemoteBrokerOffsetStore`.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ternmq_consumer.brokers import Brokers
from ternmq_model.errors import TernError
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting.contracts import COMMIT_OFFSETS, QUERY_OFFSET

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Progress:
    offset: QueueOffset
    committed: QueueOffset | None
    is_forced: bool = False
    """The queue ended earlier than we were: the next commit goes back on purpose."""

    version: int = 0
    """What the broker last told of the offset's version: commits carry it."""

    refusal: str = ""
    """What the log said of the last refusal, so that one that repeats itself is logged once."""

    @property
    def is_dirty(self) -> bool:
        return self.offset != self.committed


class OffsetStore:
    """Offsets of one group's queues, kept by the queues' brokers.

    Owned by one consumer. What `update` is told stays here until `commit`: a consumer that dies
    before loses it, and its successor takes those messages again.

    Args:
        brokers: Gives the connections.
        group: Whose offsets; empty = none are kept, and nothing is to be committed.
        client_id: Who commits; for the broker's log.
        timeout_s: For each request.
        token_of: Tells the token of a queue's lock, which commits carry; 0 = it has none.
        on_fenced: Called with a queue and the token that its broker called stale.
    """

    def __init__(
        self,
        brokers: Brokers,
        *,
        group: str,
        client_id: str,
        timeout_s: float,
        token_of: Callable[[MessageQueue], int] = lambda _queue: 0,
        on_fenced: Callable[[MessageQueue, int], None] = lambda _queue, _token: None,
    ) -> None:
        self._brokers = brokers
        self._group = group
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._token_of = token_of
        self._on_fenced = on_fenced
        self._progress: dict[MessageQueue, _Progress] = {}

    async def query(self, queue: MessageQueue) -> QueueOffset | None:
        """Return what the broker has for `queue`; None = the group never consumed it.

        Raises:
            TransportError: The broker did not answer.
            RefusedError: It said no.
        """
        if not self._group:
            return None
        connection = await self._brokers.broker(queue.broker_name)
        request = groups.QueryOffsetRequest(
            group=self._group, topic=queue.topic, queue_id=queue.queue_id
        )
        reply = await connection.call(QUERY_OFFSET, request, timeout_s=self._timeout_s)
        return QueueOffset(reply.offset) if reply.offset >= 0 else None

    def begin(
        self, queue: MessageQueue, offset: QueueOffset, committed: QueueOffset | None
    ) -> None:
        """Keep `queue` from now on.

        Args:
            queue: Not kept yet.
            offset: Where consuming begins.
            committed: What the broker has; None = nothing, so that `offset` is committed too.
        """
        self._progress[queue] = _Progress(offset, committed)

    def update(self, queue: MessageQueue, offset: QueueOffset) -> None:
        """Note that everything below `offset` is finished. A lower one than before is passed over.

        Queues that are not kept are passed over as well.
        """
        progress = self._progress.get(queue)
        if progress is not None and offset > progress.offset:
            progress.offset = offset

    def restart(self, queue: MessageQueue, offset: QueueOffset) -> None:
        """Note that the queue goes on at `offset`, even if that is lower than before."""
        progress = self._progress.get(queue)
        if progress is not None:
            progress.offset = offset
            progress.is_forced = True

    def place(self, queue: MessageQueue, offset: QueueOffset) -> None:
        """Note that the queue is at `offset`, whether that is higher or lower than before."""
        progress = self._progress.get(queue)
        if progress is not None and offset < progress.offset:
            self.restart(queue, offset)
        else:
            self.update(queue, offset)

    def forget(self, queues: Iterable[MessageQueue]) -> None:
        """Keep these no more, committed or not."""
        for queue in queues:
            self._progress.pop(queue, None)

    async def commit(self, queues: Iterable[MessageQueue] | None = None) -> bool:
        """Tell the brokers every offset that they do not have yet.

        A broker that does not answer, or refuses an offset, is logged, and what it does not have
        is tried again by the next call. Cancelling leaves open which offsets were taken; none is
        lost here.

        Args:
            queues: Only these; None = all.

        Returns:
            Whether the brokers have every offset now.
        """
        by_broker: dict[tuple[str, bool], dict[MessageQueue, QueueOffset]] = {}
        for queue in list(self._progress) if queues is None else queues:
            progress = self._progress.get(queue)
            if progress is not None and progress.is_dirty:
                share = by_broker.setdefault((queue.broker_name, progress.is_forced), {})
                share[queue] = progress.offset
        if not by_broker:
            return True
        async with asyncio.TaskGroup() as commits:
            answered = [
                commits.create_task(self._commit_at(broker_name, offsets, is_forced=is_forced))
                for (broker_name, is_forced), offsets in by_broker.items()
            ]
        return all(task.result() for task in answered)

    async def _commit_at(
        self, broker_name: str, offsets: Mapping[MessageQueue, QueueOffset], *, is_forced: bool
    ) -> bool:
        # A queue may be lost and taken over anew before the answer comes, which then is not for it.
        asked = {queue: self._progress[queue] for queue in offsets}
        tokens = {queue: self._token_of(queue) for queue in offsets}
        request = groups.CommitOffsetsRequest(
            group=self._group,
            client_id=self._client_id,
            offsets=[
                groups.QueueOffset(
                    topic=queue.topic,
                    queue_id=queue.queue_id,
                    offset=offset,
                    version=asked[queue].version,
                    lock_token=tokens[queue],
                )
                for queue, offset in offsets.items()
            ],
            force=is_forced,
        )
        try:
            connection = await self._brokers.broker(broker_name)
            reply = await connection.call(COMMIT_OFFSETS, request, timeout_s=self._timeout_s)
        except TernError as error:
            logger.warning(
                "offsets not committed broker=%s group=%s queues=%s error=%s",
                broker_name,
                self._group,
                len(offsets),
                error,
            )
            return False
        for kept in reply.kept:
            sought = asked.get(MessageQueue(kept.topic, broker_name, kept.queue_id))
            if sought is not None:
                sought.version = kept.version
        refusals = {
            MessageQueue(refused.topic, broker_name, refused.queue_id): refused
            for refused in reply.refused
        }
        for queue, offset in offsets.items():
            progress = asked[queue]
            refused = refusals.get(queue)
            if refused is not None:
                self._note_refusal(queue, offset, progress, refused)
                if tokens[queue] and refused.status.code == ResponseCode.NO_PERMISSION:
                    self._on_fenced(queue, tokens[queue])
                continue
            progress.committed = offset
            progress.is_forced = progress.is_forced and progress.offset != offset
            progress.refusal = ""
        return not refusals

    def _note_refusal(
        self,
        queue: MessageQueue,
        offset: QueueOffset,
        progress: _Progress,
        refused: groups.QueueOffset,
    ) -> None:
        """Keep what the broker keeps, and log why unless that was the reason before."""
        progress.committed = QueueOffset(refused.offset) if refused.offset >= 0 else None
        progress.version = refused.version
        status = refused.status
        if status.code == ResponseCode.PULL_OFFSET_MOVED:
            # It had the queue before us, or has it now. What we finish beyond that will be taken.
            reason = f"another consumer has committed {refused.offset}"
        else:
            reason = f"{status.remark or 'the broker gives no reason'} [{status.code}]"
        if reason != progress.refusal:
            progress.refusal = reason
            logger.warning(
                "offset refused queue=%s group=%s offset=%s kept=%s reason=%s",
                queue,
                self._group,
                offset,
                refused.offset,
                reason,
            )
