"""Changing consumer groups, over a whole cluster."""

from collections.abc import Collection, Iterable
from typing import Final

from ternmq_client.admin.admin_calls import AdminCalls
from ternmq_client.admin.descriptions import OffsetChange, ResetOutcome
from ternmq_model.arguments import check_time_ms
from ternmq_model.errors import (
    GroupNotFound,
    MessageNotFound,
    TopicNotFound,
    UsageError,
    refusal,
)
from ternmq_model.group_settings import GroupSettings
from ternmq_model.names import check_group, check_stored_group, check_topic
from ternmq_model.offsets import OFFSET_MAX
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import BrokerData
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting.converters import group_settings_to_pb
from ternmq_remoting.rpc import Connection
from ternmq_remoting.service_methods import CLONE_OFFSETS, DELETE_GROUP, PUT_GROUP, RESET_OFFSETS

_DELETION_TIMEOUT_S: Final = 60.0
"""A retry topic has files."""


class GroupChanges(AdminCalls):
    """Settings, deletion, resets and clones of offsets."""

    async def put_group(
        self, settings: GroupSettings, *, cluster: str = "", brokers: Collection[str] = ()
    ) -> list[str]:
        """Make a group, or change its settings, on every master; return the brokers' names.

        Args:
            settings: All of them.
            cluster: Only on brokers of this cluster.
            brokers: Only on these broker names.

        Raises:
            UsageError: No broker is left, or the name is illegal.
            RefusedError: A broker refuses the settings; names the brokers that have taken them, and
                those not asked.
            Unreachable: A master does not answer: nothing is changed.
            TransportError: A master gives no answer; as with a refusal.
        """
        check_stored_group(settings.group)
        request = admin.PutGroupRequest(settings=group_settings_to_pb(settings))

        async def put(_: BrokerData, connection: Connection) -> admin.PutGroupReply:
            return await connection.call(PUT_GROUP, request, timeout_s=self._timeout_s)

        done, _ = await self._change_each(put, cluster=cluster, brokers=brokers)
        return [name for name, _ in done]

    async def delete_group(
        self,
        group: str,
        *,
        with_dead_letters: bool = False,
        cluster: str = "",
        brokers: Collection[str] = (),
    ) -> list[str]:
        """Forget a group without members, with offsets and retry topic; return the brokers' names.

        Args:
            group: Its name.
            with_dead_letters: Delete its dead letters too.
            cluster: Only on brokers of this cluster.
            brokers: Only on these broker names.

        Raises:
            UsageError: No broker is left, or the name is illegal.
            GroupNotFound: No broker knows it.
            RefusedError: It has live members, or belongs to the system; names the brokers that have
                forgotten it, and those not asked.
            Unreachable: A master does not answer: nothing is deleted.
            TransportError: A master gives no answer; as with a refusal.
        """
        check_stored_group(group)
        request = admin.DeleteGroupRequest(group=group, with_dead_letters=with_dead_letters)

        async def delete(_: BrokerData, connection: Connection) -> admin.DeleteGroupReply:
            return await connection.call(DELETE_GROUP, request, timeout_s=_DELETION_TIMEOUT_S)

        done, _ = await self._change_each(
            delete, cluster=cluster, brokers=brokers, unknown=(GroupNotFound,)
        )
        if not done:
            remark = f"group {group!r} is on no broker"
            raise refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        return [name for name, _ in done]

    async def reset_offsets(
        self,
        group: str,
        topic: str,
        *,
        at_ms: int | None = None,
        offset: int | None = None,
        first: bool = False,
        last: bool = False,
        queues: Collection[MessageQueue] = (),
        backwards_only: bool = False,
        dry_run: bool = False,
    ) -> ResetOutcome:
        """Set how far a group is in a topic, also while it consumes.

        Exactly one of `at_ms`, `offset`, `first` and `last` says where to.

        Args:
            group: The group; it must exist.
            topic: The topic. Brokers that are not in its route are not asked.
            at_ms: The first message stored then or later, Unix milliseconds.
            offset: This one, or the queue's nearest end.
            first: The first message that is kept.
            last: Behind the last message: what waits is skipped.
            queues: Only these.
            backwards_only: Leave queues alone that are not as far.
            dry_run: Tell what would be, and change nothing.

        Raises:
            UsageError: Not exactly one place is told, a negative one, or `at_ms` is no time in Unix
                milliseconds.
            GroupNotFound: No broker that has the topic knows the group.
            TopicNotFound: No broker has the topic.
            RefusedError: A broker refuses; names the brokers that have done it, each with the
                offsets before, and those not asked.
            Unreachable: A master does not answer: nothing is changed.
            TransportError: A master gives no answer; as with a refusal.
        """
        check_stored_group(group)
        check_topic(topic)
        if [at_ms is not None, offset is not None, first, last].count(True) != 1:
            raise UsageError("a reset goes to exactly one of: a time, an offset, first, last")
        if at_ms is not None:
            at_ms = check_time_ms("at_ms", at_ms)
        if min(at_ms or 0, offset or 0) < 0:
            raise UsageError("a reset goes to no negative time or offset")
        offset = None if offset is None else min(offset, OFFSET_MAX)

        async def reset(data: BrokerData, connection: Connection) -> admin.ResetOffsetsReply:
            request = admin.ResetOffsetsRequest(
                group=group,
                topic=topic,
                queue_ids=[
                    each.queue_id for each in queues if each.broker_name == data.broker_name
                ],
                at_ms=at_ms,
                offset=offset,
                backwards_only=backwards_only,
                dry_run=dry_run,
            )
            if first:
                request.first = True
            elif last:
                request.last = True
            return await connection.call(RESET_OFFSETS, request, timeout_s=self._timeout_s)

        # Of a topic on two brokers a group may know one alone: that is no mistake.
        done, missing = await self._change_each(
            reset,
            brokers={queue.broker_name for queue in queues},
            topic=topic,
            unknown=(TopicNotFound, GroupNotFound),
            told=lambda reply: " (dry run)" if dry_run else _before(reply.changes),
        )
        if not done and missing:
            raise next((each for each in missing if isinstance(each, GroupNotFound)), missing[0])
        changes = [each for name, reply in done for each in _changes(reply.changes, name)]
        told = sum(reply.members_told for _, reply in done)
        return ResetOutcome(tuple(sorted(changes, key=lambda one: one.queue)), told)

    async def clone_offsets(
        self, from_group: str, to_group: str, topic: str = ""
    ) -> list[OffsetChange]:
        """Let one group, which has no live members, be as far as another; return what changed.

        Args:
            from_group: Whose offsets are copied.
            to_group: Who gets them; comes into being here.
            topic: Of this topic alone; empty = of all. Brokers that are not in its route are not
                asked.

        Raises:
            GroupNotFound: No broker knows `from_group`.
            MessageNotFound: It has no offset there.
            RefusedError: `to_group` has live members; names the brokers that have copied, each with
                the offsets before, and those not asked.
            Unreachable: A master does not answer: nothing is changed.
            TransportError: A master gives no answer; as with a refusal.
        """
        check_stored_group(from_group)
        check_group(to_group)
        request = admin.CloneOffsetsRequest(from_group=from_group, to_group=to_group, topic=topic)

        async def clone(_: BrokerData, connection: Connection) -> admin.CloneOffsetsReply:
            return await connection.call(CLONE_OFFSETS, request, timeout_s=self._timeout_s)

        done, _ = await self._change_each(
            clone,
            topic=topic,
            unknown=(GroupNotFound, MessageNotFound),
            told=lambda reply: _before(reply.changes),
        )
        if not done:
            remark = f"group {from_group!r} has no offset to copy on any broker"
            raise refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        changes = [each for name, reply in done for each in _changes(reply.changes, name)]
        return sorted(changes, key=lambda one: one.queue)


def _before(told: Iterable[admin.OffsetChange]) -> str:
    """Return the offsets that a change has replaced: they are needed to go back. Pure."""
    texts = [f"{one.topic} {one.queue_id} at {one.before}" for one in told]
    return f" (queues before: {', '.join(texts)})" if texts else ""


def _changes(told: Iterable[admin.OffsetChange], broker_name: str) -> list[OffsetChange]:
    return [
        OffsetChange(MessageQueue(one.topic, broker_name, one.queue_id), one.before, one.after)
        for one in told
    ]
