"""Offsets of one group at the brokers of its queues.

Source: RocketMQ `RemoteBrokerOffsetStore`.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from ternmq_client.telemetry.client_telemetry import ClientTelemetry
from ternmq_consumer.broker_connections import ReaderConnections
from ternmq_consumer.offsets.offset_store import QueriedOffset
from ternmq_model.errors import TernError, TransportError
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting.service_methods import COMMIT_OFFSETS, QUERY_OFFSET
from ternmq_runtime.service import OwnedTasks

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _OffsetProgress:
    offset: QueueOffset
    committed: QueueOffset | None
    version: int
    """Version of the offset in the broker's last answer. Commits carry it."""

    seeks: int = 0
    """Number of seeks of the offset."""

    seeks_committed: int = 0
    resends: int = 0
    """Number of changes of the broker's member since which the offset is to be sent again."""

    refusal: str = ""
    """Reason of the last logged refusal. Repeated refusals are logged once."""

    @property
    def is_forced(self) -> bool:
        """True = the next commit is forced and raises the version, after a seek."""
        return self.seeks != self.seeks_committed

    @property
    def is_dirty(self) -> bool:
        return self.is_forced or self.offset != self.committed


@dataclass(frozen=True, slots=True)
class _OffsetCommit:
    """Offset of one queue in one request."""

    progress: _OffsetProgress
    """Progress of the queue at the request. After a loss and a new take-over of the queue the
    answer does not apply to the new progress."""

    offset: QueueOffset
    seeks: int
    resends: int
    token: int

    def store(self, committed: QueueOffset | None) -> None:
        """Store the broker's offset, unless another member than the present one answers."""
        if self.resends == self.progress.resends:
            self.progress.committed = committed


class RemoteOffsetStore:
    """Offsets of one group's queues at their brokers.

    Owned by one consumer. Offsets of `update` stay in memory until `commit`: after an earlier death
    of the consumer the next one gets their messages again.

    Args:
        group: Consumer group; empty = nothing is stored or committed.
        client_id: Id of the client, for the broker's log.
        timeout_s: Timeout of each request, s.
        token_of: Function that returns the token of a queue's lock for commits; 0 = no lock.
        on_fenced: Called with a queue and a token that its broker refused as stale.
        on_reset: Called with a queue and its new offset when a refused commit shows a reset. The
            store has the new offset already.
        telemetry: Telemetry of the client; None = none.
    """

    def __init__(
        self,
        brokers: ReaderConnections,
        *,
        group: str,
        client_id: str,
        timeout_s: float,
        token_of: Callable[[MessageQueue], int] = lambda _queue: 0,
        on_fenced: Callable[[MessageQueue, int], None] = lambda _queue, _token: None,
        on_reset: Callable[[MessageQueue, QueueOffset], None] = lambda _queue, _offset: None,
        telemetry: ClientTelemetry | None = None,
    ) -> None:
        self._telemetry = telemetry
        self._brokers = brokers
        self._group = group
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._token_of = token_of
        self._on_fenced = on_fenced
        self._on_reset = on_reset
        self._queried_versions: dict[MessageQueue, int] = {}
        """Versions of queried queues that are not in the store yet."""
        self._committing: dict[str, asyncio.Lock] = {}
        """Lock of each broker: commits run one at a time, so that answers meet their own state."""
        self._progress: dict[MessageQueue, _OffsetProgress] = {}

    async def query(self, queue: MessageQueue) -> QueriedOffset | None:
        """Return the broker's offset of `queue`; None = the consumer decides the start.

        Raises:
            TransportError: The broker does not answer.
            RefusedError: The broker refuses the request.
        """
        if not self._group:
            return None
        connection = await self._brokers.reader(queue.broker_name)
        request = groups.QueryOffsetRequest(
            group=self._group, topic=queue.topic, queue_id=queue.queue_id
        )
        reply = await connection.call(QUERY_OFFSET, request, timeout_s=self._timeout_s)
        self._queried_versions[queue] = reply.version
        if reply.offset < 0:
            return None
        is_kept = reply.is_kept if reply.HasField("is_kept") else None
        return QueriedOffset(QueueOffset(reply.offset), is_kept)

    def epoch(self, queue: MessageQueue) -> int | None:
        """Return None: the broker stores the offset and corrects it."""
        return None

    def begin(
        self, queue: MessageQueue, offset: QueueOffset, committed: QueueOffset | None
    ) -> None:
        """Add `queue` to the store.

        Args:
            queue: Queue that is not in the store.
            offset: Start offset of consuming.
            committed: Offset at the broker; None = none, and the next commit stores `offset`.
        """
        version = self._queried_versions.pop(queue, 0)
        self._progress[queue] = _OffsetProgress(offset, committed, version)

    def has_begun(self, queue: MessageQueue) -> bool:
        """Return whether the broker has an offset of `queue`; True without a group."""
        progress = self._progress.get(queue)
        return not self._group or (progress is not None and progress.committed is not None)

    async def versions(self, queues: Iterable[MessageQueue]) -> Mapping[MessageQueue, int]:
        """Commit pending seeks and return the versions of queues' offsets.

        Queues with an unconfirmed seek, and queues that are not in the store, are left out.
        """
        kept = {queue: each for queue in queues if (each := self._progress.get(queue)) is not None}
        await self.commit(
            [queue for queue, each in kept.items() if each.is_forced or each.committed is None]
        )
        return {queue: each.version for queue, each in kept.items() if not each.is_forced}

    def at(self, queue: MessageQueue) -> QueueOffset | None:
        """Return the offset of `queue` in memory; None = the queue is not in the store."""
        progress = self._progress.get(queue)
        return None if progress is None else progress.offset

    def update(self, queue: MessageQueue, offset: QueueOffset) -> None:
        """Raise the offset of `queue` to `offset`: all messages below are finished.

        Queues that are not in the store are ignored.
        """
        progress = self._progress.get(queue)
        if progress is not None and offset > progress.offset:
            progress.offset = offset

    def restart(self, queue: MessageQueue, offset: QueueOffset) -> None:
        """Set the offset of `queue`, also to a lower one.

        The next commit is forced and raises the version, so that no earlier commit on its way
        undoes it.
        """
        progress = self._progress.get(queue)
        if progress is not None:
            progress.offset = offset
            progress.seeks += 1

    def reset(self, queue: MessageQueue, offset: QueueOffset, version: int) -> bool:
        """Apply a reset of `queue` by another client.

        Returns:
            True = the queue has an older version and is at `offset` now.
        """
        progress = self._progress.get(queue)
        if progress is None or version <= progress.version:
            return False
        logger.warning(
            "offset reset queue=%s group=%s from=%s to=%s version=%s",
            queue,
            self._group,
            progress.offset,
            offset,
            version,
        )
        progress.offset = progress.committed = offset
        progress.version = version
        progress.seeks_committed = progress.seeks
        progress.refusal = ""
        return True

    def place(self, queue: MessageQueue, offset: QueueOffset) -> None:
        """Set the offset of `queue` to a higher or lower one, without forcing the next commit."""
        progress = self._progress.get(queue)
        if progress is not None and offset < progress.offset:
            self.restart(queue, offset)
        else:
            self.update(queue, offset)

    async def query_resets(self, broker_name: str) -> None:
        """Apply resets from a time without a Session to the broker.

        A broker that does not answer is skipped: a refused commit shows the reset later.
        """
        kept = [queue for queue in self._progress if queue.broker_name == broker_name]
        async with self._committing.setdefault(broker_name, asyncio.Lock()):
            for queue in kept:
                try:
                    queried = await self.query(queue)
                except TernError as error:
                    logger.info("resets not queried broker=%s err=%s", broker_name, error)
                    return
                version = self._queried_versions.pop(queue, 0)
                if queried is not None and self.reset(queue, queried.offset, version):
                    self._on_reset(queue, queried.offset)

    def resend_offsets(self, broker_name: str) -> None:
        """Send all offsets to the broker with the next commit.

        The broker may have lost the last offsets by a power loss or a change of the master. The
        answers to commits on their way do not count.
        """
        for queue, progress in self._progress.items():
            if queue.broker_name == broker_name:
                progress.committed = None
                progress.resends += 1

    def forget(self, queues: Iterable[MessageQueue]) -> None:
        """Remove these queues, committed or not."""
        gone = tuple(queues)
        for queue in gone:
            self._progress.pop(queue, None)
        if self._telemetry is not None:
            self._telemetry.forget(gone)

    def gone(self, queue: MessageQueue) -> None:
        """Drop a queue that its broker no longer has, with its committed offset."""
        self.forget([queue])

    async def commit(self, queues: Iterable[MessageQueue] | None = None) -> bool:
        """Send changed offsets to their brokers.

        A broker that does not answer or refuses an offset is logged, and the next call tries again.
        After cancelling it is unknown which offsets the brokers have; the store keeps all.

        Args:
            queues: Queues to commit; None = all.

        Returns:
            True = the brokers have every offset.
        """
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in list(self._progress) if queues is None else queues:
            progress = self._progress.get(queue)
            if progress is not None and progress.is_dirty:
                by_broker.setdefault(queue.broker_name, []).append(queue)
        if not by_broker:
            return True
        async with asyncio.TaskGroup() as commits:
            answered = [
                commits.create_task(self._commit_at(broker_name, dirty))
                for broker_name, dirty in by_broker.items()
            ]
        return all(task.result() for task in answered)

    async def _commit_at(self, broker_name: str, queues: Collection[MessageQueue]) -> bool:
        """Send one broker its changed offsets of `queues`; those of seeks in a second request."""
        async with self._committing.setdefault(broker_name, asyncio.Lock()):
            is_done = True
            for is_forced in (True, False):
                wanted = {
                    queue: _OffsetCommit(
                        progress,
                        progress.offset,
                        progress.seeks,
                        progress.resends,
                        self._token_of(queue),
                    )
                    for queue in queues
                    if (progress := self._progress.get(queue)) is not None
                    and progress.is_dirty
                    and progress.is_forced == is_forced
                }
                if wanted and not await self._send(broker_name, wanted, is_forced=is_forced):
                    is_done = False
            return is_done

    async def _send(
        self, broker_name: str, wanted: Mapping[MessageQueue, _OffsetCommit], *, is_forced: bool
    ) -> bool:
        request = groups.CommitOffsetsRequest(
            group=self._group,
            client_id=self._client_id,
            offsets=[
                groups.QueueOffset(
                    topic=queue.topic,
                    queue_id=queue.queue_id,
                    offset=commit.offset,
                    version=commit.progress.version,
                    lock_token=commit.token,
                )
                for queue, commit in wanted.items()
            ],
            force=is_forced,
        )
        address, began_s = "", 0.0 if self._telemetry is None else self._telemetry.now_s()
        try:
            connection = await self._brokers.reader(broker_name)
            if self._telemetry is not None:
                address = str(connection.address)
            reply = await connection.call(COMMIT_OFFSETS, request, timeout_s=self._timeout_s)
        except TernError as error:
            if self._telemetry is not None:
                self._telemetry.settled(began_s, address, group=self._group, error=error)
            logger.log(
                logging.INFO if isinstance(error, TransportError) else logging.WARNING,
                "offsets not committed broker=%s group=%s queues=%s err=%s",
                broker_name,
                self._group,
                len(wanted),
                error,
            )
            return False
        kept = _by_queue(broker_name, reply.kept)
        refusals = _by_queue(broker_name, reply.refused)
        if self._telemetry is not None:
            offsets = {queue: wanted[queue].offset for queue in wanted if queue not in refusals}
            links = self._telemetry.committed(offsets) or ()
            self._telemetry.settled(began_s, address, links, group=self._group)
        for queue, commit in wanted.items():
            if queue in refusals:
                self._note_refusal(queue, commit, refusals[queue])
                continue
            progress = commit.progress
            commit.store(commit.offset)
            progress.refusal = ""
            if is_forced:
                progress.seeks_committed = commit.seeks
                if queue in kept:
                    progress.version = max(progress.version, kept[queue].version)
                    commit.store(kept_offset := QueueOffset(kept[queue].offset))
                    if progress.offset == commit.offset:  # else it is elsewhere again
                        progress.offset = kept_offset
        return not refusals

    def _note_refusal(
        self, queue: MessageQueue, commit: _OffsetCommit, refused: groups.QueueOffset
    ) -> None:
        """Store the broker's offset, and log the reason if it differs from the previous one."""
        progress, status = commit.progress, refused.status
        if commit.token and status.code == ResponseCode.NO_PERMISSION:
            self._on_fenced(queue, commit.token)
        elif status.code == ResponseCode.PULL_OFFSET_MOVED and refused.version > progress.version:
            # A reset has not arrived here yet. The finished offsets of this member are void.
            if self._progress.get(queue) is progress and refused.offset >= 0:
                offset = QueueOffset(refused.offset)
                self.reset(queue, offset, refused.version)
                self._on_reset(queue, offset)
            return
        commit.store(QueueOffset(refused.offset) if refused.offset >= 0 else None)
        if status.code == ResponseCode.PULL_OFFSET_MOVED:
            # Another member is ahead. The broker accepts offsets above that one.
            reason = f"another consumer has committed {refused.offset}"
        else:
            reason = f"{status.remark or 'the broker gives no reason'} [{status.code}]"
        if reason != progress.refusal:
            progress.refusal = reason
            logger.warning(
                "offset refused queue=%s group=%s offset=%s kept=%s reason=%s",
                queue,
                self._group,
                commit.offset,
                refused.offset,
                reason,
            )


def _by_queue(
    broker_name: str, offsets: Iterable[groups.QueueOffset]
) -> dict[MessageQueue, groups.QueueOffset]:
    return {MessageQueue(each.topic, broker_name, each.queue_id): each for each in offsets}


def resets_of(
    group: str, reset: Callable[[MessageQueue, QueueOffset, int], None]
) -> Callable[[groups.SessionReply, str], None]:
    """Return a handler of `offsets_reset` that calls `reset` for each queue of `group`."""

    def take(reply: groups.SessionReply, broker_name: str) -> None:
        command = reply.offsets_reset
        if command.group == group:
            for each in command.offsets:
                queue = MessageQueue(each.topic, broker_name, each.queue_id)
                reset(queue, QueueOffset(each.offset), each.version)

    return take


def reset_queries(
    tasks: OwnedTasks, offsets: RemoteOffsetStore
) -> Callable[[groups.SessionReply, str], None]:
    """Return a handler that queries a broker for resets when its Session is reopened."""

    def query(_welcome: groups.SessionReply, broker_name: str) -> None:
        tasks.spawn(offsets.query_resets(broker_name), f"query resets at {broker_name}")

    return query
