"""The handshake of a master and a slave: it settles whether the log may flow, and from where."""

import asyncio
from typing import Final

from ternmq_broker.replication.master.leadership import Leadership
from ternmq_broker.replication.protocol import epochs_to_pb
from ternmq_broker.state.epochs import (
    Epoch,
    FollowFrom,
    FollowRefused,
    MasterDeposed,
    MemberLog,
    StartEmptyLog,
    TruncateTo,
    common_points,
    follow_decision,
    probe,
    why_not,
)
from ternmq_model.errors import InvalidParameter, RefusedError, refusal
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import MASTER_ID
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_remoting.environment import Blocking
from ternmq_remoting.rpc import Identity, ServerStream
from ternmq_store.message_store import MessageStore

FollowServerStream = ServerStream[replication.FollowRequest, replication.FollowReply]

ANSWER_TIMEOUT_S: Final = 15.0
EPOCHS_MAX: Final = 100_000


def check_hello(
    hello: replication.FollowHello, identity: Identity, leadership: Leadership, *, file_bytes: int
) -> None:
    """Refuse a slave that belongs elsewhere, or cannot have the same log.

    Args:
        hello: What it says of itself.
        identity: The master's.
        leadership: Likewise.
        file_bytes: Length of the files of the master's log.

    Raises:
        RefusedError: Why it may not follow.
    """
    if (hello.cluster, hello.broker_name) != (identity.cluster, identity.name):
        raise _refused(
            f"this is broker {identity.name} of cluster {identity.cluster}, not"
            f" {hello.broker_name} of {hello.cluster}"
        )
    if hello.broker_id <= MASTER_ID:
        raise _refused(f"a slave has a broker_id above 0, not {hello.broker_id}")
    if hello.broker_id == leadership.own_id:
        raise _refused(f"broker_id {hello.broker_id} is the master's own whenever it is a slave")
    if hello.log_file_bytes not in (0, file_bytes):
        raise _refused(
            f"the slave's log has files of {hello.log_file_bytes} bytes, the master's of"
            f" {file_bytes}: set store.commit_log_file_bytes, and empty the slave's data directory"
        )


def log_of(hello: replication.FollowHello) -> MemberLog:
    """Return what a slave says of its log.

    Raises:
        InvalidParameter: It cannot be so.
    """
    numbers = [epoch.number for epoch in hello.epochs]
    starts = [epoch.start for epoch in hello.epochs]
    if (
        len(numbers) > EPOCHS_MAX
        or any(number <= 0 for number in numbers)
        or numbers != sorted(set(numbers))
        or starts != sorted(starts)
        or not 0 <= hello.log_start <= hello.log_end
        or (starts and starts[0] < 0)
        or hello.highest_epoch < 0
    ):
        raise InvalidParameter(
            ResponseCode.INVALID_PARAMETER, "what the slave says of its log cannot be"
        )
    return MemberLog(
        epochs=tuple(Epoch(each.number, PhysicalOffset(each.start)) for each in hello.epochs),
        start=PhysicalOffset(hello.log_start),
        end=PhysicalOffset(hello.log_end),
        store_id=hello.store_id,
        highest=hello.highest_epoch,
    )


class Handshake:
    """The master's half, on one stream. Owned by its handler.

    Args:
        leadership: The master's epochs.
        store: Its log.
        blocking: Where checksums are computed.
        stream: Of the slave.
    """

    def __init__(
        self,
        leadership: Leadership,
        store: MessageStore,
        blocking: Blocking,
        stream: FollowServerStream,
    ) -> None:
        self._reign = leadership
        self._store = store
        self._blocking = blocking
        self._stream = stream

    async def decide(
        self, slave: MemberLog
    ) -> FollowFrom | TruncateTo | StartEmptyLog | MasterDeposed:
        """Return what the slave has to do, having compared bytes of both logs.

        Raises:
            RefusedError: It may not follow.
            TransportError: It does not answer.
        """
        master = self._log()
        refused = why_not(master, slave)
        common = None
        if refused is None and not slave.is_empty:
            for point in common_points(master, slave):
                if await self._agree(master, slave, point):
                    common = point
                    break
        decided = refused or follow_decision(self._log(), slave, common)
        if isinstance(decided, FollowRefused):
            raise _refused(decided.reason)
        return decided

    def accepted(
        self, decided: FollowFrom | TruncateTo | StartEmptyLog
    ) -> replication.FollowAccepted:
        """Return what the slave is told."""
        leadership = self._reign
        reply = replication.FollowAccepted(
            store_id=leadership.store_id,
            epochs=epochs_to_pb(leadership.epochs),
            log_file_bytes=self._store.log_file_bytes,
            master_role=leadership.role.value,
            in_sync_replicas=leadership.in_sync_replicas,
        )
        match decided:
            case FollowFrom(start):
                reply.start = start
            case TruncateTo(keep_to):
                reply.start = keep_to
                reply.cut.keep_to = keep_to
            case StartEmptyLog(start):
                reply.start = start
                reply.cut.keep_to = start
                reply.cut.starts_over = True
        return reply

    def _log(self) -> MemberLog:
        store, leadership = self._store, self._reign
        start, end = store.min_physical, store.feed.end
        return MemberLog(leadership.epochs, start, end, leadership.store_id, leadership.number)

    async def _agree(self, master: MemberLog, slave: MemberLog, point: PhysicalOffset) -> bool:
        """Tell whether both logs have the same bytes before `point`."""
        start, end = probe(master, slave, point)
        try:
            crc = await self._blocking.run(self._store.feed.checksum(start, end).run)
        except OSError as error:
            remark = f"the master's log cannot be read: {error}"
            raise refusal(ResponseCode.SYSTEM_ERROR, remark) from error
        question = replication.FollowProbe(start=start, end=end)
        await self._stream.write(replication.FollowReply(probe=question))
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                request = await self._stream.read()
        except TimeoutError:
            raise InvalidParameter(
                ResponseCode.INVALID_PARAMETER, "the slave does not answer a probe"
            ) from None
        if request is None or request.WhichOneof("request") != "probed":
            raise InvalidParameter(
                ResponseCode.INVALID_PARAMETER, "a slave that is probed answers with `probed`"
            )
        return request.probed.end == end and request.probed.crc == crc


def _refused(remark: str) -> RefusedError:
    return refusal(ResponseCode.NO_PERMISSION, remark)
