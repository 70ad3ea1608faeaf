"""Administration of the consumer groups of a cluster: reading."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import chain

from ternmq_client.admin.admin_calls import AdminCalls
from ternmq_client.admin.descriptions import (
    BrokerList,
    GroupDescription,
    GroupMember,
    ProducerMember,
    QueueProgress,
    UnreachableBroker,
    require_all,
)
from ternmq_model.errors import ClientNotOnline, GroupNotFound, refusal
from ternmq_model.names import check_group, check_stored_group, group_order
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import BrokerData
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1.groups_pb2 import RunningState
from ternmq_remoting.converters import group_settings_from_pb
from ternmq_remoting.pagination import pages
from ternmq_remoting.rpc import Connection
from ternmq_remoting.service_methods import (
    DESCRIBE_CONSUMER,
    DESCRIBE_GROUP,
    LIST_GROUPS,
    LIST_PRODUCERS,
)


class GroupAdmin(AdminCalls):
    """Calls that read consumer groups, their members and their progress."""

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
