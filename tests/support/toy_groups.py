"""Locks and send-backs of the toy broker, with faults on demand."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from ternmq_broker.locks import LockTable
from ternmq_broker.locks.lock_table import QueueKey
from ternmq_model.errors import refusal
from ternmq_model.names import RETRY_PREFIX
from ternmq_model.record import decode_record, encode_record
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import common_pb2 as common
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting import contracts
from ternmq_remoting.rpc import Call, Handler, unary
from tests.support.records import BORN_HOST, STORE_HOST
from tests.support.virtual_time import VirtualClock

RETRY_DELAY_S = 10.0
"""After how long a message that was sent back comes again; a level more makes it 20 s more."""

RETRIES_MAX = 16


@dataclass
class ToyGroups:
    """What a toy broker knows of groups beside members and offsets.

    Attributes:
        find: Returns the record at topic, queue id and offset.
        put: Stores a record with the next offset of a topic's queue.
        is_broken: Tells whether a client's Session is broken, and its locks about to fall.
        fault: Says by which code to refuse a message that is sent back; 0 = do not.
        is_down: Neither locks nor send-backs are answered with anything but a failure.
        sent_back: Every message that was taken back.
        dead: Dead letters: the bodies, in order.
        requests: How many SendBack requests came.
    """

    find: Callable[[str, int, int], bytes]
    put: Callable[[str, Callable[[int], bytes]], None]
    is_broken: Callable[[str], bool]
    fault: Callable[[groups.FailedMessage], int] = lambda _failed: 0
    is_down: bool = False
    sent_back: list[groups.FailedMessage] = field(default_factory=list[groups.FailedMessage])
    dead: list[bytes] = field(default_factory=list[bytes])
    requests: int = 0
    locks: LockTable = field(default_factory=lambda: LockTable(first_token=1, lease_ms=30_000))

    def handlers(self) -> list[Handler]:
        """What the broker serves of it."""
        return [
            unary(contracts.LOCK_QUEUES, self.lock_queues),
            unary(contracts.UNLOCK_QUEUES, self.unlock_queues),
            unary(contracts.SEND_BACK, self.send_back),
        ]

    async def lock_queues(
        self, request: groups.LockQueuesRequest, call: Call
    ) -> groups.LockQueuesReply:
        self._check_up()
        if self.is_broken(request.client_id):
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
        self._check_up()
        given = [(QueueKey(each.topic, each.queue_id), each.token) for each in request.queues]
        self.locks.unlock(request.group, request.client_id, given)
        return groups.UnlockQueuesReply()

    async def send_back(self, request: groups.SendBackRequest, call: Call) -> groups.SendBackReply:
        self._check_up()
        self.requests += 1
        assert 0 < len(request.messages) <= 1024
        outcomes = [self._take_back(request.group, failed) for failed in request.messages]
        return groups.SendBackReply(outcomes=outcomes)

    def why_not(self, group: str, topic: str, queue_id: int, token: int) -> common.Status | None:
        """Return why a caller with this token may not act for the queue; None when it may."""
        now_ms = VirtualClock().monotonic_ms()
        error = self.locks.check(group, topic, queue_id, token, now_ms=now_ms)
        return None if error is None else common.Status(code=error.code, remark=str(error))

    def _check_up(self) -> None:
        if self.is_down:
            raise refusal(ResponseCode.SYSTEM_BUSY, "not now")

    def _take_back(self, group: str, failed: groups.FailedMessage) -> common.Status:
        fenced = self.why_not(group, failed.topic, failed.queue_id, failed.lock_token)
        if fenced is not None:
            return fenced
        if code := self.fault(failed):
            return common.Status(code=code, remark="a fault was asked for")
        record = decode_record(self.find(failed.topic, failed.queue_id, failed.queue_offset))
        assert record is not None
        assert record.header.physical_offset == failed.physical_offset
        assert f"UNIQ_KEY\x01{failed.message_id}\x02".encode() in record.properties
        self.sent_back.append(failed)
        times = record.header.reconsume_times
        if failed.delay_level < 0 or times >= (failed.attempts_max or RETRIES_MAX):
            self.dead.append(record.body)
            return common.Status()
        properties = record.properties
        if b"RETRY_TOPIC\x01" not in properties:
            properties += b"RETRY_TOPIC\x01" + record.topic + b"\x02"
        topic = RETRY_PREFIX + group

        def encode(offset: int) -> bytes:
            return encode_record(
                topic=topic.encode(),
                queue_id=0,
                body=record.body,
                properties=properties,
                born_at_ms=1,
                born_host=BORN_HOST,
                store_host=STORE_HOST,
                queue_offset=offset,
                physical_offset=1_000_000_000 + offset * 1000,
                stored_at_ms=1,
                reconsume_times=times + 1,
            )

        level = failed.delay_level or 3 + times
        delay_s = RETRY_DELAY_S + (level - 3) * 20
        asyncio.get_running_loop().call_later(delay_s, self.put, topic, encode)
        return common.Status()
