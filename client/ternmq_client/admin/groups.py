"""Administration of the consumer groups of a cluster."""

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Final

from ternmq_client.admin.admin_calls import AdminCalls
from ternmq_client.admin.descriptions import (
    BrokerList,
    GroupDescription,
    GroupMember,
    OffsetChange,
    ProducerMember,
    QueueProgress,
    ResetOutcome,
    UnreachableBroker,
    require_all,
)
from ternmq_model.arguments import check_time_ms
from ternmq_model.errors import (
    ClientNotOnline,
    GroupNotFound,
    MessageNotFound,
    TopicNotFound,
    UsageError,
    refusal,
)
from ternmq_model.group_settings import GroupSettings
from ternmq_model.names import check_group, check_stored_group, check_topic, group_order
from ternmq_model.offsets import OFFSET_MAX
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import BrokerData
from ternmq_model.subscription import SQL92
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1.groups_pb2 import BROADCASTING, RunningState
from ternmq_remoting.converters import group_settings_from_pb, group_settings_to_pb
from ternmq_remoting.pagination import pages
from ternmq_remoting.rpc import Connection
from ternmq_remoting.service_methods import (
    CLONE_OFFSETS,
    DELETE_GROUP,
    DESCRIBE_CONSUMER,
    DESCRIBE_GROUP,
    LIST_GROUPS,
    LIST_PRODUCERS,
    PUT_GROUP,
    RESET_OFFSETS,
)

_DELETION_TIMEOUT_S: Final = 60.0
"""Timeout of a deletion, which removes the files of the retry topic, s."""


class GroupAdmin(AdminCalls):
    """Calls about consumer groups: members, progress, settings, deletion, resets of offsets."""

    async def groups(self) -> BrokerList[str]:
        """Return the names of all groups with members or offsets, sorted, the system's last.

        Raises:
            Unreachable: No broker answers; names each.
        """

        async def names(_: BrokerData, connection: Connection) -> Sequence[str]:
            replies = pages(partial(self._call, connection, LIST_GROUPS), admin.ListGroupsRequest())
            return [name async for reply in replies for name in reply.groups]

        replies = await self._ask_each(names)
        found = set(chain.from_iterable(replies.answers))
        return BrokerList(sorted(found, key=group_order), replies.unreachable)

    async def describe_group(self, group: str) -> GroupDescription:
        """Return the members and the progress of a group.

        Raises:
            GroupNotFound: No broker knows the group.
            Unreachable: No broker that answers knows the group, and some gave no answer; names
                them.
        """
        found = await self.describe_groups([check_stored_group(group)])
        if not found:
            require_all(found.unreachable)
            raise refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"group {group!r} is on no broker"
            )
        return found[0]

    async def describe_groups(self, groups: Sequence[str]) -> BrokerList[GroupDescription]:
        """Return members and progress of several groups in order, over one connection per broker.

        Groups that no broker knows are left out.

        Raises:
            Unreachable: No broker answers; names each.
        """

        async def replies(
            data: BrokerData, connection: Connection
        ) -> list[tuple[str, admin.DescribeGroupReply]]:
            known: list[tuple[str, admin.DescribeGroupReply]] = []
            for group in groups:
                request = admin.DescribeGroupRequest(group=group)
                with suppress(GroupNotFound):
                    known.append((group, await self._call(connection, DESCRIBE_GROUP, request)))
            return known

        asked = await self._ask_each(replies)
        by_group: dict[str, list[tuple[str, admin.DescribeGroupReply]]] = {}
        for name, known in asked.by_broker:
            for group, reply in known:
                by_group.setdefault(group, []).append((name, reply))
        found = (
            _description(group, by_group[group], asked.unreachable)
            for group in groups
            if group in by_group
        )
        return BrokerList(found, asked.unreachable)

    async def consumer_state(self, group: str, client_id: str) -> RunningState:
        """Return the current running state of a group's member, which its broker asks for it.

        Raises:
            ClientNotOnline: The client is no member of the group, or does not answer.
            Unreachable: The client is no member at the brokers that answer, and some gave no
                answer.
        """
        request = admin.DescribeConsumerRequest(
            group=check_stored_group(group), client_id=client_id
        )
        replies = await self._ask_each(
            self._calling(DESCRIBE_CONSUMER, request), unknown=(ClientNotOnline,)
        )
        if not replies.answers:
            raise replies.unknown[-1]
        return replies.answers[0].state

    async def producers(self, group: str = "") -> BrokerList[ProducerMember]:
        """Return the live members of producer groups, sorted, each once.

        Args:
            group: Name of the producer group; empty = every group.

        Raises:
            Unreachable: No broker answers; names each.
        """
        if group:
            check_group(group)

        async def members(_: BrokerData, connection: Connection) -> Sequence[admin.ProducerMember]:
            replies = pages(
                partial(self._call, connection, LIST_PRODUCERS),
                admin.ListProducersRequest(group=group),
            )
            return [member async for reply in replies for member in reply.producers]

        replies = await self._ask_each(members)
        found: dict[tuple[str, str], ProducerMember] = {}
        for one in chain.from_iterable(replies.answers):
            found.setdefault(
                (one.group, one.client_id),
                ProducerMember(one.group, one.client_id, one.address, one.connected_at_ms),
            )
        return BrokerList([found[key] for key in sorted(found)], replies.unreachable)

    async def put_group(
        self, settings: GroupSettings, *, cluster: str = "", brokers: Collection[str] = ()
    ) -> list[str]:
        """Create a group, or change its settings, on every master; return the brokers' names.

        Args:
            settings: New settings of the group, which replace all old ones.
            cluster: Cluster of the brokers; empty = every cluster.
            brokers: Names of the brokers; empty = every broker.

        Raises:
            UsageError: The name is illegal.
            RefusedError: No such broker is registered; or a broker refuses the settings: the text
                names the brokers that have applied them, and those that were not asked.
            Unreachable: A master does not answer: nothing is changed.
            TransportError: A master gave no answer; the text is that of a refusal.
        """
        check_stored_group(settings.group)
        request = admin.PutGroupRequest(settings=group_settings_to_pb(settings))
        put = self._calling(PUT_GROUP, request)
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
        """Delete a group without members, its offsets and retry topic; return the brokers' names.

        Args:
            group: Name of the group.
            with_dead_letters: Delete the topic of the group's dead letters too.
            cluster: Cluster of the brokers; empty = every cluster.
            brokers: Names of the brokers; empty = every broker.

        Raises:
            UsageError: The name is illegal.
            GroupNotFound: No broker knows the group.
            RefusedError: The group has live members, or belongs to the system; the text names the
                brokers that have deleted it, and those that were not asked.
            Unreachable: A master does not answer: nothing is deleted.
            TransportError: A master gave no answer; the text is that of a refusal.
        """
        check_stored_group(group)
        request = admin.DeleteGroupRequest(group=group, with_dead_letters=with_dead_letters)
        delete = self._calling(DELETE_GROUP, request, _DELETION_TIMEOUT_S)
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
        """Set the offsets of a group in a topic, also while it consumes.

        Exactly one of `at_ms`, `offset`, `first` and `last` names the target.

        Args:
            group: Name of an existing group.
            topic: Name of the topic. Brokers outside its route are not asked.
            at_ms: Store time, Unix milliseconds: the first message stored at or after it.
            offset: Offset in each queue; the queue's nearest end where it is outside the queue.
            first: The oldest message of each queue.
            last: The end of each queue, behind the newest message.
            queues: Queues to reset; empty = every queue of the topic.
            backwards_only: Skip queues whose offset is before the target.
            dry_run: Return the changes without making them.

        Raises:
            UsageError: Not exactly one target is given, a target is negative, or `at_ms` is no time
                in Unix milliseconds.
            GroupNotFound: No broker that has the topic knows the group.
            TopicNotFound: No broker has the topic.
            RefusedError: A broker refuses; the text names the brokers that have reset the offsets,
                with the offsets before, and those that were not asked.
            Unreachable: A master does not answer: nothing is changed.
            TransportError: A master gave no answer; the text is that of a refusal.
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
            return await self._call(connection, RESET_OFFSETS, request)

        # A group may be known to one of the two brokers that have a topic.
        done, missing = await self._change_each(
            reset,
            brokers={queue.broker_name for queue in queues},
            topic=topic,
            unknown=(TopicNotFound, GroupNotFound),
            summary=lambda reply: " (dry run)" if dry_run else _before(reply.changes),
        )
        if not done and missing:
            raise next((each for each in missing if isinstance(each, GroupNotFound)), missing[0])
        changes = [each for name, reply in done for each in _changes(reply.changes, name)]
        notified = sum(reply.members_told for _, reply in done)
        return ResetOutcome(tuple(sorted(changes, key=lambda one: one.queue)), notified)

    async def clone_offsets(
        self, from_group: str, to_group: str, topic: str = ""
    ) -> list[OffsetChange]:
        """Copy the offsets of one group to another without live members; return the changes.

        Args:
            from_group: Name of the group to copy from.
            to_group: Name of the group to copy to, created where it does not exist.
            topic: Name of the topic; empty = every topic. Brokers outside its route are not asked.

        Raises:
            GroupNotFound: No broker knows `from_group`.
            MessageNotFound: `from_group` has no offset in the topic.
            RefusedError: `to_group` has live members; the text names the brokers that have copied,
                with the offsets before, and those that were not asked.
            Unreachable: A master does not answer: nothing is changed.
            TransportError: A master gave no answer; the text is that of a refusal.
        """
        check_stored_group(from_group)
        check_group(to_group)
        request = admin.CloneOffsetsRequest(from_group=from_group, to_group=to_group, topic=topic)
        done, _ = await self._change_each(
            self._calling(CLONE_OFFSETS, request),
            topic=topic,
            unknown=(GroupNotFound, MessageNotFound),
            summary=lambda reply: _before(reply.changes),
        )
        if not done:
            remark = f"group {from_group!r} has no offset to copy on any broker"
            raise refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        changes = [each for name, reply in done for each in _changes(reply.changes, name)]
        return sorted(changes, key=lambda one: one.queue)


def _description(
    group: str,
    replies: Sequence[tuple[str, admin.DescribeGroupReply]],
    unreachable: tuple[UnreachableBroker, ...],
) -> GroupDescription:
    """Merge the replies of the brokers that know a group. Pure."""
    members = {
        one.client_id: GroupMember(
            one.client_id,
            one.address,
            tuple((sub.topic, sub.expression) for sub in one.group.subscriptions),
            one.connected_at_ms,
            frozenset(sub.topic for sub in one.group.subscriptions if sub.expression_type == SQL92),
            one.group.model == BROADCASTING,
        )
        for _, reply in replies
        for one in reply.members
    }
    progress = (
        QueueProgress(
            MessageQueue(one.topic, name, one.queue_id),
            one.committed_offset,
            one.min_offset,
            one.max_offset,
            one.version,
            one.consumed_stored_at_ms,
            one.lag_ms,
        )
        for name, reply in replies
        for one in reply.progress
    )
    return GroupDescription(
        group,
        tuple(members[name] for name in sorted(members)),
        tuple(sorted(progress, key=lambda one: one.queue)),
        tuple(
            (name, group_settings_from_pb(reply.settings))
            for name, reply in replies
            if reply.HasField("settings")
        ),
        unreachable,
        tuple(sorted({line for _, reply in replies for line in reply.differences})),
    )


def _before(changes: Iterable[admin.OffsetChange]) -> str:
    """Return the replaced offsets, with which the change can be undone, as text. Pure."""
    texts = [f"{one.topic} {one.queue_id} at {one.before}" for one in changes]
    return f" (queues before: {', '.join(texts)})" if texts else ""


def _changes(changes: Iterable[admin.OffsetChange], broker_name: str) -> list[OffsetChange]:
    return [
        OffsetChange(MessageQueue(one.topic, broker_name, one.queue_id), one.before, one.after)
        for one in changes
    ]
