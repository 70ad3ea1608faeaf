"""Administration of consumer groups, over a whole cluster."""

from collections.abc import Sequence
from contextlib import suppress

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
    """Consumer groups, their members and how far they are."""

    async def groups(self) -> BrokerList[str]:
        """Return the names of all groups with members or offsets, sorted, the system's last.

        Raises:
            Unreachable: No broker answers; names each.
        """

        async def names(_: BrokerData, connection: Connection) -> Sequence[str]:
            replies = pages(
                lambda request: connection.call(LIST_GROUPS, request, timeout_s=self._timeout_s),
                admin.ListGroupsRequest(),
            )
            return [name async for reply in replies for name in reply.groups]

        asked = await self._ask_each(names)
        found = {name for _, told in asked.told for name in told}
        return BrokerList(sorted(found, key=group_order), asked.unreachable)

    async def describe_group(self, group: str) -> GroupDescription:
        """Return a group's members and how far it is.

        Raises:
            GroupNotFound: No broker knows it.
            Unreachable: No broker that answers knows it, and not all answer; names each such.
        """
        found = await self.describe_groups([check_stored_group(group)])
        if not found:
            require_all(found.unreachable)
            raise refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"group {group!r} is on no broker"
            )
        return found[0]

    async def describe_groups(self, groups: Sequence[str]) -> BrokerList[GroupDescription]:
        """Return members and progress of several groups, in their order, by one visit to a broker.

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
                    reply = await connection.call(
                        DESCRIBE_GROUP, request, timeout_s=self._timeout_s
                    )
                    known.append((group, reply))
            return known

        asked = await self._ask_each(replies)
        by_group: dict[str, list[tuple[str, admin.DescribeGroupReply]]] = {}
        for name, known in asked.told:
            for group, reply in known:
                by_group.setdefault(group, []).append((name, reply))
        found = (
            _description(group, by_group[group], asked.unreachable)
            for group in groups
            if group in by_group
        )
        return BrokerList(found, asked.unreachable)

    async def consumer_state(self, group: str, client_id: str) -> RunningState:
        """Return what a member of a group says of how consuming goes, asked now.

        Raises:
            ClientNotOnline: It is no member, or does not answer.
            Unreachable: It is no member at the brokers that answer, and not all do.
        """
        request = admin.DescribeConsumerRequest(
            group=check_stored_group(group), client_id=client_id
        )

        async def state(_: BrokerData, connection: Connection) -> RunningState:
            reply = await connection.call(DESCRIBE_CONSUMER, request, timeout_s=self._timeout_s)
            return reply.state

        asked = await self._ask_each(state, unknown=(ClientNotOnline,))
        if not asked.told:
            raise asked.unknown[-1]
        return asked.told[0][1]

    async def producers(self, group: str = "") -> BrokerList[ProducerMember]:
        """Return the live members of producer groups, sorted, each once.

        Args:
            group: Of this one alone; empty = of all.

        Raises:
            Unreachable: No broker answers; names each.
        """
        if group:
            check_group(group)

        async def members(_: BrokerData, connection: Connection) -> Sequence[admin.ProducerMember]:
            replies = pages(
                lambda request: connection.call(LIST_PRODUCERS, request, timeout_s=self._timeout_s),
                admin.ListProducersRequest(group=group),
            )
            return [member async for reply in replies for member in reply.producers]

        asked = await self._ask_each(members)
        found: dict[tuple[str, str], ProducerMember] = {}
        for one in (one for _, told in asked.told for one in told):
            found.setdefault(
                (one.group, one.client_id),
                ProducerMember(one.group, one.client_id, one.address, one.connected_at_ms),
            )
        return BrokerList([found[key] for key in sorted(found)], asked.unreachable)


def _description(
    group: str,
    replies: Sequence[tuple[str, admin.DescribeGroupReply]],
    unreachable: tuple[UnreachableBroker, ...],
) -> GroupDescription:
    """Return what brokers told of a group, put together. Pure."""
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
