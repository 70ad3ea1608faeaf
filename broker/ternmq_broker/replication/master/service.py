"""The service of Follow: slaves get their master's log."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from ternmq_broker.replication.master.handshake import (
    ANSWER_TIMEOUT_S,
    FollowServerStream,
    Handshake,
    check_hello,
    log_of,
)
from ternmq_broker.replication.master.log_sender import LogSender
from ternmq_broker.replication.master.replicas import Replicas
from ternmq_broker.state.epochs import FollowFrom, MasterDeposed
from ternmq_model.address import Address
from ternmq_model.clock import Clock
from ternmq_model.epochs import doubt_of
from ternmq_model.errors import ConnectionLost, InvalidParameter, TernError, refusal
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_remoting.converters import status_of
from ternmq_remoting.environment import Blocking
from ternmq_remoting.rpc import Call, Handler, Identity, stream
from ternmq_remoting.service_methods import FOLLOW
from ternmq_store.message_store import MessageStore

logger = logging.getLogger(__name__)

_REFUSED_MAX: Final = 1000
_WORD_CHARS_MAX: Final = 255


class FollowService:
    """Serves slaves their master's log.

    Args:
        replicas: Who follows.
        identity: The master's.
        store: Its log.
        clock: For silence.
        blocking: Where what is not in memory is read.
        told_higher: Told the id and the host of a slave that claims a higher epoch than the
            master's, believed or not.
        is_closing: Tells whether nobody new is served any more.
    """

    def __init__(
        self,
        replicas: Replicas,
        identity: Identity,
        store: MessageStore,
        clock: Clock,
        blocking: Blocking,
        *,
        told_higher: Callable[[int, str], None],
        is_closing: Callable[[], bool],
    ) -> None:
        self._replicas = replicas
        self._identity = identity
        self._store = store
        self._clock = clock
        self._blocking = blocking
        self._told_higher = told_higher
        self._is_closing = is_closing
        self._refused: dict[int, str] = {}
        """Why a slave was refused last, by id."""

    def handlers(self) -> Sequence[Handler]:
        """Return what to serve."""
        return (stream(FOLLOW, self.follow),)

    async def follow(self, stream: FollowServerStream, call: Call) -> None:
        """Let a slave follow, for as long as its stream lives."""
        hello = await _hello_of(stream)
        peer = str(call.peer)
        try:
            sender = await self._admit(hello, call.peer, stream)
        except TernError as error:
            self._note_refused(hello.broker_id, peer, str(error))
            refused = replication.FollowAccepted(status=status_of(error))
            await stream.write(replication.FollowReply(accepted=refused))
            return
        if sender is not None:
            await self._feed(sender)

    async def _admit(
        self, hello: replication.FollowHello, peer: Address, stream: FollowServerStream
    ) -> LogSender | None:
        """Shake hands; return how the slave is fed, or None when it has to cut its log first.

        Raises:
            TernError: It may not follow.
        """
        replicas, store = self._replicas, self._store
        leadership = replicas.leadership
        self._check_open()
        check_hello(hello, self._identity, leadership, file_bytes=store.log_file_bytes)
        slave = log_of(hello)
        if doubt := doubt_of(slave.highest_known, leadership.number):
            self._told_higher(hello.broker_id, peer.host)
            raise InvalidParameter(ResponseCode.INVALID_PARAMETER, doubt)
        await replicas.admit(hello.broker_id, hello.incarnation)
        handshake = Handshake(leadership, store, self._blocking, stream)
        decided = await handshake.decide(slave)
        if isinstance(decided, MasterDeposed):
            self._told_higher(hello.broker_id, peer.host)
            remark = f"epoch {decided.highest} may have begun: others are asked whether it has"
            raise refusal(ResponseCode.SERVICE_NOT_AVAILABLE, remark)
        await leadership.on_followed()
        self._check_open()
        accepted = replication.FollowReply(accepted=handshake.accepted(decided))
        if not isinstance(decided, FollowFrom):
            logger.warning(
                "slave has to cut its log broker_id=%s peer=%s end=%s epochs=%s decided=%s",
                *(hello.broker_id, peer, slave.end, slave.epochs[-3:], decided),
            )
            await stream.write(accepted)
            return None
        follower = replicas.join(hello.broker_id, decided.start)
        self._refused.pop(hello.broker_id, None)
        sender = LogSender(
            *(replicas, follower, hello, str(peer), stream),
            store=store,
            clock=self._clock,
            blocking=self._blocking,
        )
        replicas.opened(sender)
        try:
            await stream.write(accepted)
        except BaseException:
            replicas.left(sender)
            raise
        return sender

    async def _feed(self, sender: LogSender) -> None:
        follower = sender.follower
        logger.info(
            "slave follows broker_id=%s peer=%s from=%s end=%s",
            *(follower.broker_id, sender.peer, follower.sent, self._store.max_physical),
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
            self._replicas.left(sender)
            logger.warning(
                "slave gone broker_id=%s peer=%s acknowledged=%s reason=%s",
                *(follower.broker_id, sender.peer, follower.acknowledged, reason),
            )

    def _note_refused(self, broker_id: int, peer: str, reason: str) -> None:
        """Log a refusal, once for each reason: who is refused comes again and again."""
        if self._refused.get(broker_id) != reason:
            if len(self._refused) >= _REFUSED_MAX:
                self._refused.clear()
            self._refused[broker_id] = reason
            logger.warning("slave refused broker_id=%s peer=%s reason=%s", broker_id, peer, reason)

    def _check_open(self) -> None:
        if self._is_closing():
            raise refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "the broker is closing")
        if self._replicas.is_fenced:
            raise refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "this is no master any more")


async def _hello_of(stream: FollowServerStream) -> replication.FollowHello:
    """Return what a slave says first.

    Raises:
        InvalidParameter: It says something else, or nothing, or what cannot be logged.
    """
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            first = await stream.read()
    except TimeoutError:
        first = None
    if first is None or first.WhichOneof("request") != "hello":
        raise InvalidParameter(ResponseCode.INVALID_PARAMETER, "a Follow begins with `hello`")
    hello = first.hello
    words = (
        *(hello.cluster, hello.broker_name, hello.incarnation, hello.store_id),
        hello.flush_mode,
    )
    if any(len(word) > _WORD_CHARS_MAX or not word.isprintable() for word in words):
        remark = f"names in `hello` have at most {_WORD_CHARS_MAX} characters, all printable"
        raise InvalidParameter(ResponseCode.INVALID_PARAMETER, remark)
    return hello
