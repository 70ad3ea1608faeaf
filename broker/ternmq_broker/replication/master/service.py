"""The service of Follow: slaves receive their master's log."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from ternmq_broker.replication.master.handshake import (
    accepted,
    check_hello,
    log_of,
    not_permitted,
)
from ternmq_broker.replication.master.replicas import FollowServerStream, LogSender, Replicas
from ternmq_broker.state.epochs import (
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
from ternmq_broker.storage.admission import Admission
from ternmq_model.address import Address
from ternmq_model.epochs import doubt_of
from ternmq_model.errors import ConnectionLost, TernError, invalid, refusal
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_remoting.converters import status_of
from ternmq_remoting.environment import Blocking
from ternmq_remoting.rpc import Call, Handler, stream
from ternmq_remoting.service_methods import FOLLOW

logger = logging.getLogger(__name__)

_ANSWER_TIMEOUT_S: Final = 15.0
_REFUSED_MAX: Final = 1000
_WORD_CHARS_MAX: Final = 255


class FollowService:
    """Service that sends slaves their master's log.

    Args:
        on_claim: Called with the id and the host of a slave that claims a higher epoch than the
            master's, believed or not.
    """

    def __init__(
        self,
        replicas: Replicas,
        blocking: Blocking,
        *,
        on_claim: Callable[[int, str], None],
        admission: Admission,
    ) -> None:
        self._replicas = replicas
        self._member = replicas.member
        self._store = replicas.store
        self._blocking = blocking
        self._on_claim = on_claim
        self._admission = admission
        self._refused: dict[int, str] = {}
        """Reason of each slave's last refusal, by id."""

    def handlers(self) -> Sequence[Handler]:
        """Return the handler of Follow."""
        return (stream(FOLLOW, self.follow),)

    async def follow(self, stream: FollowServerStream, call: Call) -> None:
        """Send a slave the log for as long as its stream is open."""
        hello = await _hello_of(stream)
        peer = str(call.peer)
        try:
            sender = await self._admit(hello, call.peer, stream)
        except TernError as error:
            self._log_refusal(hello.broker_id, peer, str(error))
            refused = replication.FollowAccepted(status=status_of(error))
            await stream.write(replication.FollowReply(accepted=refused))
            return
        if sender is not None:
            await self._feed(sender)

    async def _admit(
        self, hello: replication.FollowHello, peer: Address, stream: FollowServerStream
    ) -> LogSender | None:
        """Return the log sender of a slave; None when the slave has to cut its log first.

        Raises:
            TernError: The slave may not follow.
        """
        replicas, member, file_bytes = self._replicas, self._member, self._store.log_file_bytes
        self._check_open()
        check_hello(hello, member, file_bytes=file_bytes)
        slave = log_of(hello)
        if doubt := doubt_of(slave.highest_known, replicas.epoch):
            self._on_claim(hello.broker_id, peer.host)
            raise invalid(doubt)
        await replicas.admit(hello.broker_id, hello.incarnation)
        decided = await self._decide(slave, stream)
        if isinstance(decided, MasterDeposed):
            self._on_claim(hello.broker_id, peer.host)
            remark = f"epoch {decided.highest} may have begun: others are asked whether it has"
            raise refusal(ResponseCode.SERVICE_NOT_AVAILABLE, remark)
        # It is durable that there are slaves before one of them receives a byte.
        await member.state.note_replicated()
        self._check_open()
        answer = accepted(member, decided, file_bytes=file_bytes)
        reply = replication.FollowReply(accepted=answer)
        if not isinstance(decided, FollowFrom):
            logger.warning(
                "slave has to cut its log broker_id=%s address=%s log_end=%s epochs=%s decided=%s",
                hello.broker_id,
                peer,
                slave.end,
                slave.epochs[-3:],
                decided,
            )
            await stream.write(reply)
            return None
        sender = replicas.join(hello, decided.start, str(peer), stream, self._blocking)
        self._refused.pop(hello.broker_id, None)
        try:
            await stream.write(reply)
        except BaseException:
            replicas.disconnected(sender)
            raise
        return sender

    async def _decide(
        self, slave: MemberLog, stream: FollowServerStream
    ) -> FollowFrom | TruncateTo | StartEmptyLog | MasterDeposed:
        """Compare bytes of both logs, and return what the slave has to do.

        Raises:
            RefusedError: The slave may not follow.
            TransportError: The slave does not answer.
        """
        master = self._log()
        refused = why_not(master, slave)
        common = None
        if refused is None and not slave.is_empty:
            for point in common_points(master, slave):
                if await self._is_common(master, slave, point, stream):
                    common = point
                    break
        # The master's log may have grown since the slave was probed.
        decided = refused or follow_decision(self._log(), slave, common)
        if isinstance(decided, FollowRefused):
            raise not_permitted(decided.reason)
        return decided

    def _log(self) -> MemberLog:
        store, state = self._store, self._member.state
        epoch = self._replicas.epoch
        return MemberLog(state.epochs, store.min_physical, store.feed.end, state.store_id, epoch)

    async def _is_common(
        self,
        master: MemberLog,
        slave: MemberLog,
        point: PhysicalOffset,
        stream: FollowServerStream,
    ) -> bool:
        """Return whether both logs have the same bytes before `point`."""
        start, end = probe(master, slave, point)
        try:
            crc = await self._blocking.run(self._store.feed.checksum(start, end).run)
        except OSError as error:
            remark = f"the master's log cannot be read: {error}"
            raise refusal(ResponseCode.SYSTEM_ERROR, remark) from error
        question = replication.FollowProbe(start=start, end=end)
        await stream.write(replication.FollowReply(probe=question))
        try:
            async with asyncio.timeout(_ANSWER_TIMEOUT_S):
                request = await stream.read()
        except TimeoutError:
            raise invalid("the slave does not answer a probe") from None
        if request is None or request.WhichOneof("request") != "probed":
            raise invalid("a slave that is probed answers with `probed`")
        return request.probed.end == end and request.probed.crc == crc

    async def _feed(self, sender: LogSender) -> None:
        follower = sender.follower
        logger.info(
            "slave follows broker_id=%s address=%s log_offset=%s log_end=%s",
            follower.broker_id,
            sender.peer,
            follower.sent,
            self._store.max_physical,
        )
        reason = "it left"
        try:
            await sender.run()
        except ConnectionLost as error:
            reason = str(error)
        except TernError as error:
            reason = str(error)
            raise
        finally:
            self._replicas.disconnected(sender)
            logger.warning(
                "slave gone broker_id=%s address=%s acknowledged=%s reason=%s",
                follower.broker_id,
                sender.peer,
                follower.acknowledged,
                reason,
            )

    def _log_refusal(self, broker_id: int, peer: str, reason: str) -> None:
        # A refused slave tries again and again: each reason is logged once.
        if self._refused.get(broker_id) != reason:
            if len(self._refused) >= _REFUSED_MAX:
                self._refused.clear()
            self._refused[broker_id] = reason
            logger.warning(
                "slave refused broker_id=%s address=%s reason=%s", broker_id, peer, reason
            )

    def _check_open(self) -> None:
        self._admission.check()
        if self._replicas.is_fenced:
            raise refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "this is no master any more")


async def _hello_of(stream: FollowServerStream) -> replication.FollowHello:
    """Return the first message of a slave.

    Raises:
        InvalidParameter: The message is no `hello`, is missing, or holds names that no log line
            should contain.
    """
    try:
        async with asyncio.timeout(_ANSWER_TIMEOUT_S):
            first = await stream.read()
    except TimeoutError:
        first = None
    if first is None or first.WhichOneof("request") != "hello":
        raise invalid("a Follow begins with `hello`")
    hello = first.hello
    names = (hello.cluster, hello.broker_name, hello.incarnation, hello.store_id, hello.flush_mode)
    if any(len(name) > _WORD_CHARS_MAX or not name.isprintable() for name in names):
        raise invalid(f"names in `hello` have at most {_WORD_CHARS_MAX} characters, all printable")
    return hello
