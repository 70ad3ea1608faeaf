"""What a toy broker serves groups with: Sessions, offsets, locks and send-backs."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from ternmq_broker.state.lock_table import LockTable, QueueKey
from ternmq_broker.state.offsets import OffsetTable
from ternmq_model.data_version import DataVersion
from ternmq_model.errors import ClosedError, ConnectionLost, TopicNotFound, refusal
from ternmq_model.names import RETRY_PREFIX
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_model.stored_message import StoredMessage, decode_single
from ternmq_protos.v1 import common_pb2 as common
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting.rpc import Call, ServerStream
from ternmq_testing.time.virtual_time import VirtualClock
from tests.support.toy_log import ToyLog

SESSION_GRACE_S = 10.0

RETRY_DELAY_S = 10.0
"""After how long a message that was sent back comes again; a level more makes it 20 s more."""

RETRIES_MAX = 16

SessionStream = ServerStream[groups.SessionRequest, groups.SessionReply]


class ToySessions:
    """The Sessions of one broker, and the members of its groups.

    Args:
        on_left: Told the client id and the group when a member goes, before the others are.

    Attributes:
        hellos: Every hello that came.
        heartbeats: Every heartbeat that came.
        goodbyes: How many goodbyes came.
        refusal: The code that new Sessions are refused with; 0 = they are not.
    """

    def __init__(self, on_left: Callable[[str, str], None]) -> None:
        self.hellos: list[groups.Hello] = []
        self.heartbeats: list[groups.Heartbeat] = []
        self.goodbyes = 0
        self.refusal = 0
        self._on_left = on_left
        self._open: set[SessionStream] = set()
        self._clients: dict[str, tuple[SessionStream, list[str]]] = {}
        """By client id: the newest stream, and the consumer groups."""

    async def session(self, stream: SessionStream, call: Call) -> None:
        """Hear a client until it leaves; it stays a member for a while when its stream breaks."""
        first = await stream.read()
        if first is None:
            return
        hello = first.hello
        self.hellos.append(hello)
        status = common.Status(code=self.refusal)
        await stream.write(groups.SessionReply(welcome=groups.Welcome(status=status)))
        if self.refusal:
            return
        self._open.add(stream)
        try:
            await self._join(hello.client_id, stream, hello.consumer_groups)
            while (request := await stream.read()) is not None:
                if request.HasField("goodbye"):
                    self.goodbyes += 1
                    await self._join(hello.client_id, stream, ())
                    return
                self.heartbeats.append(request.heartbeat)
                await self._join(hello.client_id, stream, request.heartbeat.consumer_groups)
        finally:
            self._open.discard(stream)
            expire = partial(self._expire, hello.client_id, stream)
            asyncio.get_running_loop().call_later(SESSION_GRACE_S, expire)

    async def list_members(
        self, request: groups.ListMembersRequest, call: Call
    ) -> groups.ListMembersReply:
        """Tell a group's members."""
        return groups.ListMembersReply(client_ids=self._members(request.group))

    def is_broken(self, client_id: str) -> bool:
        """Tell whether a client's stream has broken and its time is not over yet."""
        known = self._clients.get(client_id)
        return known is not None and known[0] not in self._open

    async def tell(self, group: str, reply: groups.SessionReply) -> None:
        """Write to every member of a group whose stream is open."""
        for stream in [self._clients[client_id][0] for client_id in self._members(group)]:
            if stream in self._open:
                with suppress(ConnectionLost, ClosedError):
                    await stream.write(reply)

    async def tell_members(self, group: str) -> None:
        """Let every member of a group hear that others came or went."""
        change = groups.MembersChanged(group=group)
        await self.tell(group, groups.SessionReply(members_changed=change))

    async def _join(
        self, client_id: str, stream: SessionStream, told: Iterable[groups.ConsumerGroup]
    ) -> None:
        """Make a client a member of these groups and no others."""
        names = [each.group for each in told]
        _, before = self._clients.get(client_id, (stream, []))
        self._clients[client_id] = stream, names
        left = [group for group in before if group not in names]
        for group in left:
            self._on_left(client_id, group)
        for group in (*left, *(group for group in names if group not in before)):
            await self.tell_members(group)

    def _expire(self, client_id: str, stream: SessionStream) -> None:
        known = self._clients.get(client_id)
        if known is not None and known[0] is stream:
            del self._clients[client_id]
            for group in known[1]:
                self._on_left(client_id, group)
            # The other members are not told: writing may wait, and this function may not.

    def _members(self, group: str) -> list[str]:
        return sorted(name for name, (_, names) in self._clients.items() if group in names)


class ToyGroups:
    """How far groups are at one broker, the locks of their queues, and what they send back.

    Attributes:
        sessions: Who is there.
        offsets: As a broker keeps them.
        locks: As a broker keeps them.
        commits: Everything that was committed and kept: group, queue, offset.
        fault: Returns the code that a message which is sent back is refused with; 0 = it is not.
        commit_fault: The code that all commits are refused with, as by a broker that has them in
            memory and cannot save them; 0 = they are not.
        tells_if_kept: Brokers of earlier versions do not.
        is_down: Neither locks nor send-backs are answered with anything but a failure.
        sent_back: Every message that was taken back.
        dead: Dead letters: the bodies, in order.
        requests: How many SendBack requests came.
    """

    def __init__(self, log: ToyLog) -> None:
        self.offsets = OffsetTable(DataVersion(0))
        self.locks = LockTable(first_token=1, lease_ms=30_000)
        self.sessions = ToySessions(self.locks.left)
        self.commits: list[tuple[str, MessageQueue, int]] = []
        self.fault: Callable[[groups.FailedMessage], int] = lambda _failed: 0
        self.commit_fault = 0
        self.tells_if_kept = True
        self.is_down = False
        self.sent_back: list[groups.FailedMessage] = []
        self.dead: list[bytes] = []
        self.requests = 0
        self._log = log

    def committed(self, group: str, queue: MessageQueue) -> int:
        """Return the committed offset, -1 for none."""
        kept = self.offsets.query(group, queue.topic, queue.queue_id)
        return -1 if kept is None else kept

    def commit(
        self, group: str, queue: MessageQueue, offset: int, version: int = 0, *, force: bool = False
    ) -> bool:
        """Keep an offset by a broker's rule and return whether it is kept."""
        place = (group, queue.topic, queue.queue_id, QueueOffset(offset), version)
        return self.offsets.commit(*place, force=force, now_ms=0)

    async def reset(
        self, group: str, queue: MessageQueue, offset: int, *, tells: bool = True
    ) -> None:
        """Set a group's offset as an operator does."""
        self.commit(group, queue, offset, force=True)
        if tells:
            reset = groups.OffsetsReset(group=group, offsets=[self._kept(group, queue)])
            await self.sessions.tell(group, groups.SessionReply(offsets_reset=reset))

    async def commit_offsets(
        self, request: groups.CommitOffsetsRequest, call: Call
    ) -> groups.CommitOffsetsReply:
        """Keep how far a group is."""
        reply = groups.CommitOffsetsReply()
        for each in request.offsets:
            if each.topic not in self._log.topics:
                raise TopicNotFound(ResponseCode.TOPIC_NOT_EXIST, "deleted")
            queue = MessageQueue(each.topic, self._log.name, each.queue_id)
            status = self._why_not(request.group, queue, each.lock_token)
            if status is None:
                if self.commit(
                    request.group, queue, each.offset, each.version, force=request.force
                ):
                    self.commits.append((request.group, queue, each.offset))
                    if request.force:
                        reply.kept.append(self._kept(request.group, queue))
                    continue
                status = common.Status(code=ResponseCode.PULL_OFFSET_MOVED)
            told = self._kept(request.group, queue)
            told.status.CopyFrom(status)
            reply.refused.append(told)
            reply.status.code = ResponseCode.INVALID_PARAMETER
        if self.commit_fault:
            raise refusal(self.commit_fault, "the disk is full")
        return reply

    async def query_offset(
        self, request: groups.QueryOffsetRequest, call: Call
    ) -> groups.QueryOffsetReply:
        """Tell how far a group is."""
        assert request.group, "a group has a name"
        queue = MessageQueue(request.topic, self._log.name, request.queue_id)
        kept = self._kept(request.group, queue)
        reply = groups.QueryOffsetReply(offset=kept.offset, version=kept.version)
        if self.tells_if_kept:
            reply.is_kept = kept.offset >= 0 and not self.commit_fault
        return reply

    async def lock_queues(
        self, request: groups.LockQueuesRequest, call: Call
    ) -> groups.LockQueuesReply:
        """Give queues to a member, or renew their leases."""
        self._check_up()
        if self.sessions.is_broken(request.client_id):
            raise refusal(ResponseCode.SYSTEM_BUSY, "the Session has broken")
        wanted = [(QueueKey(each.topic, each.queue_id), each.token) for each in request.queues]
        now_ms = VirtualClock().monotonic_ms()
        given = self.locks.lock(request.group, request.client_id, wanted, now_ms=now_ms)
        locked = [
            groups.QueueLock(topic=key.topic, queue_id=key.queue_id, token=token)
            for key, token in given
        ]
        return groups.LockQueuesReply(locked=locked, lease_ms=self.locks.lease_ms)

    async def unlock_queues(
        self, request: groups.UnlockQueuesRequest, call: Call
    ) -> groups.UnlockQueuesReply:
        """Free queues that a member gives back."""
        self._check_up()
        given = [(QueueKey(each.topic, each.queue_id), each.token) for each in request.queues]
        self.locks.unlock(request.group, request.client_id, given)
        return groups.UnlockQueuesReply()

    async def send_back(self, request: groups.SendBackRequest, call: Call) -> groups.SendBackReply:
        """Take failed messages back."""
        self._check_up()
        self.requests += 1
        assert 0 < len(request.messages) <= 1024
        outcomes = [self._take_back(request.group, failed) for failed in request.messages]
        return groups.SendBackReply(outcomes=outcomes)

    def _kept(self, group: str, queue: MessageQueue) -> groups.QueueOffset:
        return groups.QueueOffset(
            topic=queue.topic,
            queue_id=queue.queue_id,
            offset=self.committed(group, queue),
            version=self.offsets.version(group, queue.topic, queue.queue_id),
        )

    def _why_not(self, group: str, queue: MessageQueue, token: int) -> common.Status | None:
        """Return why a caller with this token may not act for the queue; None when it may."""
        now_ms = VirtualClock().monotonic_ms()
        error = self.locks.check(group, queue.topic, queue.queue_id, token, now_ms=now_ms)
        return None if error is None else common.Status(code=error.code, remark=str(error))

    def _check_up(self) -> None:
        if self.is_down:
            raise refusal(ResponseCode.SYSTEM_BUSY, "not now")

    def _take_back(self, group: str, failed: groups.FailedMessage) -> common.Status:
        queue = MessageQueue(failed.topic, self._log.name, failed.queue_id)
        fenced = self._why_not(group, queue, failed.lock_token)
        if fenced is not None:
            return fenced
        if code := self.fault(failed):
            return common.Status(code=code, remark="a fault was asked for")
        message = decode_single(self._log.queues[queue][failed.queue_offset], self._log.name)
        assert message.physical_offset == failed.physical_offset
        assert message.message_id == failed.message_id
        self.sent_back.append(failed)
        times = max(message.reconsume_times, failed.reconsume_times)
        if failed.delay_level < 0 or times >= (failed.attempts_max or RETRIES_MAX):
            self.dead.append(message.body)
            return common.Status()
        level = failed.delay_level or 3 + times
        delay_s = RETRY_DELAY_S + (level - 3) * 20
        retry = partial(self._retry, RETRY_PREFIX + group, message)
        asyncio.get_running_loop().call_later(delay_s, retry)
        return common.Status()

    def _retry(self, topic: str, message: StoredMessage) -> None:
        self._log.topics[topic] = 1
        properties = {"RETRY_TOPIC": message.topic, **message.properties}
        times = message.reconsume_times + 1
        self._log.store(topic, 0, message.stored_body, properties, reconsume_times=times)
