"""Administration of consumer groups, over a whole cluster."""

from typing import TYPE_CHECKING

from ternmq_client.administration.calls import AdminCalls
from ternmq_client.descriptions import (
    GroupDescription,
    Member,
    ProducerMember,
    Progress,
)
from ternmq_model.errors import GroupNotFound, RefusedError, refusal
from ternmq_model.names import check_group
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1.groups_pb2 import RunningState
from ternmq_remoting.contracts import (
    DESCRIBE_CONSUMER,
    DESCRIBE_GROUP,
    LIST_GROUPS,
    LIST_PRODUCERS,
)
from ternmq_remoting.convert import group_settings_from_pb

if TYPE_CHECKING:
    from ternmq_model.group_settings import GroupSettings


class GroupAdmin(AdminCalls):
    """Consumer groups, their members and how far they are."""

    async def groups(self) -> list[str]:
        """Return the names of all groups with members or offsets, sorted."""
        names: set[str] = set()
        for data in await self._readable():
            async with self._reader(data) as connection:
                reply = await connection.call(
                    LIST_GROUPS, admin.ListGroupsRequest(), timeout_s=self._timeout_s
                )
            names.update(reply.groups)
        return sorted(names)

    async def describe_group(self, group: str) -> GroupDescription:
        """Return a group's members and how far it is.

        Raises:
            GroupNotFound: No broker knows it.
        """
        check_group(group)
        members: dict[str, Member] = {}
        progress: list[Progress] = []
        settings: list[tuple[str, GroupSettings]] = []
        is_known = False
        for data in await self._readable():
            async with self._reader(data) as connection:
                try:
                    reply = await connection.call(
                        DESCRIBE_GROUP,
                        admin.DescribeGroupRequest(group=group),
                        timeout_s=self._timeout_s,
                    )
                except GroupNotFound:
                    continue
            is_known = True
            for one in reply.members:
                members[one.client_id] = Member(
                    one.client_id,
                    one.address,
                    tuple((sub.topic, sub.expression) for sub in one.group.subscriptions),
                    one.connected_at_ms,
                )
            progress += [
                Progress(
                    MessageQueue(one.topic, data.broker_name, one.queue_id),
                    one.committed_offset,
                    one.min_offset,
                    one.max_offset,
                    one.version,
                    one.consumed_stored_at_ms,
                    one.lag_ms,
                )
                for one in reply.progress
            ]
            if reply.HasField("settings"):
                settings.append((data.broker_name, group_settings_from_pb(reply.settings)))
        if not is_known:
            raise refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"group {group!r} is on no broker"
            )
        return GroupDescription(
            group,
            tuple(members[name] for name in sorted(members)),
            tuple(sorted(progress, key=lambda one: one.queue)),
            tuple(settings),
        )

    async def consumer_state(self, group: str, client_id: str) -> RunningState:
        """Return what a member of a group says of how consuming goes, asked now.

        Raises:
            RefusedError: CONSUMER_NOT_ONLINE: it is no member, or does not answer.
        """
        request = admin.DescribeConsumerRequest(group=check_group(group), client_id=client_id)
        remark = f"{client_id!r} is no live member of group {group!r}"
        missing = refusal(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        for data in await self._readable():
            async with self._reader(data) as connection:
                try:
                    reply = await connection.call(
                        DESCRIBE_CONSUMER, request, timeout_s=self._timeout_s
                    )
                except RefusedError as error:
                    if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                        raise
                    missing = error
                    continue
            return reply.state
        raise missing

    async def producers(self, group: str = "") -> list[ProducerMember]:
        """Return the live members of producer groups, sorted, each once.

        Args:
            group: Of this one alone; empty = of all.
        """
        request = admin.ListProducersRequest(group=check_group(group) if group else "")
        found: dict[tuple[str, str], ProducerMember] = {}
        for data in await self._readable():
            async with self._reader(data) as connection:
                reply = await connection.call(LIST_PRODUCERS, request, timeout_s=self._timeout_s)
            for one in reply.producers:
                found.setdefault(
                    (one.group, one.client_id),
                    ProducerMember(one.group, one.client_id, one.address, one.connected_at_ms),
                )
        return [found[key] for key in sorted(found)]
