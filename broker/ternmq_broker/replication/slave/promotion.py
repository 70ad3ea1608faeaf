"""The promotion of a slave to the master of its broker name, by an operator."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from ternmq_broker.config import BrokerRole
from ternmq_broker.environment import BrokerEnvironment
from ternmq_broker.replication.role.epoch_poll import EpochPollResult, named
from ternmq_broker.replication.role.membership import EndReason, Membership
from ternmq_broker.replication.role.start_policy import (
    MASTER_LIVES,
    MemberAnswer,
    may_be_lost,
    why_not_promote,
)
from ternmq_broker.replication.slave.slave_replication import SlaveReplication
from ternmq_broker.state.epochs import MemberLog, number_of_promotion
from ternmq_broker.state.recovered_topics import put_found_topics
from ternmq_model.errors import RefusedError, StoreFailed, refusal
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting.rpc import Call, Handler, unary
from ternmq_remoting.service_methods import PROMOTE

logger = logging.getLogger(__name__)

_ALL: Final = 1 << 40
_PAUSE_S: Final = 0.01
_DISPATCH_TIMEOUT_S: Final = 60.0


class PromotionService:
    """Service of promotions, at every member. Owned by the broker's loop.

    Args:
        following: Replication of a slave; None for a master.
        make_readable: Dispatches confirmed messages at once.
    """

    def __init__(
        self,
        member: Membership,
        env: BrokerEnvironment,
        *,
        following: SlaveReplication | None,
        make_readable: Callable[[], None],
    ) -> None:
        self._member = member
        self._own_id = env.live.broker.broker_id
        self._env = env
        self._store = env.store
        self._tables = env.tables
        self._following = following
        self._make_readable = make_readable
        self._is_promoting = False

    def handlers(self) -> Sequence[Handler]:
        """Return the handler of Promote."""
        return (unary(PROMOTE, self.promote),)

    async def promote(self, request: admin.PromoteRequest, call: Call) -> admin.PromoteReply:
        """Make this slave the master; the reply comes when the promotion is durable."""
        name, following = self._member.identity.name, self._following
        if following is None:
            raise refusal(ResponseCode.ILLEGAL_OPERATION, f"broker {name} is the master already")
        if self._store.failure is not None:
            raise StoreFailed(f"the store failed: {self._store.failure}")
        if self._is_promoting:
            raise refusal(ResponseCode.ILLEGAL_OPERATION, "it is being promoted")
        self._is_promoting = True
        try:
            asked = await self._check(following, is_forced=request.is_forced)
            logger.warning(
                "promotion begins broker=%s broker_id=%s asked=%s unreachable=%s",
                name,
                self._member.identity.broker_id,
                named(asked.answered),
                named(asked.unreachable),
            )
            return await self._promote(following, asked)
        finally:
            self._is_promoting = False

    async def _check(self, following: SlaveReplication, *, is_forced: bool) -> EpochPollResult:
        """Poll the members, and return the result if it allows the promotion.

        Raises:
            RefusedError: The promotion is refused; it had no effect.
        """
        if following.is_following and not is_forced:
            raise self._refused(MASTER_LIVES, following)
        asked = await self._member.epoch_poll.ask(own_id=self._member.identity.broker_id)
        if following.changes_log:
            raise refusal(ResponseCode.SYSTEM_BUSY, "its log is to be cut first: try again")
        if not is_forced and (reason := self._why_not(following, asked)):
            raise self._refused(reason, following, asked.members)
        return asked

    def _why_not(self, following: SlaveReplication, asked: EpochPollResult) -> str:
        """Return the reason against the promotion, after a poll; "" without one."""
        if asked.has_foreign_master or following.is_following:  # it may have returned meanwhile
            return MASTER_LIVES
        if not asked.answers:
            who = named(asked.unreachable)
            return f"the highest epoch is unknown: {who} did not answer"
        record, store = self._member.state.record, self._store
        ends = (store.min_physical, store.max_physical)
        log = MemberLog(record.epochs, *ends, record.store_id, record.highest_epoch)
        reason = why_not_promote(log, asked.members)
        missing = asked.missing_slaves
        if not reason and self._member.role is BrokerRole.SYNC_MASTER:
            # Each message is at as many slaves as it needed: one of them must have answered.
            may_miss = max(0, self._member.replicas_needed - 2)
            if len(missing) > may_miss:
                ids = ", ".join(map(str, missing))
                reason = f"slaves that may have more do not answer (id {ids})"
        return reason

    def _refused(
        self, reason: str, following: SlaveReplication, others: Sequence[MemberAnswer] = ()
    ) -> RefusedError:
        """Return the refusal of a promotion, with the bytes that it might lose."""
        known = following.follower.status()
        lost = may_be_lost(
            self._store.max_physical,
            others,
            lag_bytes=known.lag_bytes,
            is_following=known.is_connected,
        )
        remark = f"not promoted: {reason}; {lost}; --force promotes it all the same"
        return refusal(ResponseCode.ILLEGAL_OPERATION, remark)

    async def _promote(
        self, following: SlaveReplication, asked: EpochPollResult
    ) -> admin.PromoteReply:
        member, state, store = self._member, self._member.state, self._store
        number = number_of_promotion(max(asked.highest, state.highest_epoch), self._own_id)
        confirmed = store.confirm_offset
        await following.leave()
        await asyncio.sleep(0)  # the steps under way end: nothing is appended any more
        try:
            await self._serve_all()
            tables = self._tables
            # Otherwise the next term would drop offsets of topics that the table lacks.
            put_found_topics(tables.topics, store.queues(), now_ms=self._env.clock.wall_ms())
            clamped = self._clamp_offsets()
            for file in (tables.topics_file, tables.offsets_file, tables.versions_file):
                saved = file.saved()
                if saved is not None:
                    await saved
            number = max(number, number_of_promotion(state.highest_epoch, self._own_id))
            store_id = f"{self._env.random.getrandbits(64):016x}"
            await state.promote(number, store.max_physical, store_id=store_id)
        except BaseException:
            # This term follows no more: the next term of a slave does.
            member.end(EndReason.FENCED)
            raise
        member.end(EndReason.PROMOTED)
        return admin.PromoteReply(
            epoch=number,
            log_end=store.max_physical,
            clamped=clamped,
            asked=asked.answered,
            unreachable=asked.unreachable,
            confirm_offset=confirmed,
        )

    async def _serve_all(self) -> None:
        """Confirm the whole log, and wait until all of it is dispatched to the queues.

        Raises:
            StoreFailed: The disk failed.
            RefusedError: The dispatch takes too long.
        """
        store, end = self._store, self._store.max_physical
        store.confirm_limit = None
        try:
            async with asyncio.timeout(_DISPATCH_TIMEOUT_S):
                while store.dispatched_offset < end:
                    if store.failure is not None:
                        raise StoreFailed(f"the store failed: {store.failure}")
                    self._make_readable()
                    await asyncio.sleep(_PAUSE_S)
        except TimeoutError:
            remark = f"its queues are at {store.dispatched_offset} of {end}: try again"
            raise refusal(ResponseCode.SYSTEM_BUSY, remark) from None

    def _clamp_offsets(self) -> list[admin.GroupOffsetChange]:
        """Set every offset beyond its queue's end to that end, and return the changes."""
        offsets, changes = self._tables.offsets, list[admin.GroupOffsetChange]()
        kept, _, _ = offsets.changed_since(0, most=_ALL)
        for each, _ in kept:
            end = self._store.next_offset(each.topic, each.queue_id)
            before = each.offset
            if before is None or not offsets.clamp(each.group, each.topic, each.queue_id, end):
                continue
            logger.warning(
                "offset clamped group=%s topic=%s queue=%s from=%s to=%s",
                each.group,
                each.topic,
                each.queue_id,
                before,
                end,
            )
            changes.append(
                admin.GroupOffsetChange(
                    group=each.group,
                    change=admin.OffsetChange(
                        topic=each.topic, queue_id=each.queue_id, before=before, after=end
                    ),
                )
            )
        return changes
