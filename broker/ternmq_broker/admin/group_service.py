"""Consumer groups, for operators: settings, members, offsets, deletion.

Source: RocketMQ `AdminBrokerProcessor`, `SubscriptionGroupManager`.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from ternmq_broker.admin.lag import add_times
from ternmq_broker.admin.resets import OffsetReset, QueueState, is_cloned, reset
from ternmq_broker.environment import BrokerEnvironment
from ternmq_broker.groups.assembly import GroupAssembly
from ternmq_broker.groups.retry.group_topics import dead_letter_topic, retry_topic
from ternmq_broker.groups.service import NEVER_CONSUMED
from ternmq_broker.state.clients import ClientSession
from ternmq_broker.state.groups import check_settings
from ternmq_broker.state.table_file import save_all
from ternmq_model.errors import RefusedError, invalid, refusal
from ternmq_model.names import check_stored_group, check_topic, is_system_group
from ternmq_model.permission import to_know_group
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting.converters import group_settings_from_pb, group_settings_to_pb
from ternmq_remoting.pagination import page_of
from ternmq_remoting.rpc import Call, Handler, may_know_topic, unary
from ternmq_remoting.service_methods import (
    CLONE_OFFSETS,
    DELETE_GROUP,
    DESCRIBE_GROUP,
    LIST_GROUPS,
    PUT_GROUP,
    RESET_OFFSETS,
)
from ternmq_store.query.time_search import BoundaryType

logger = logging.getLogger(__name__)


class GroupAdminService:
    """The part of the Admin contract that concerns consumer groups.

    Args:
        env: Settings, store and tables of the term.
        groups: Sessions, locks and topics of groups.
        delete_topic: Deletes a topic with its files, offsets and locks.
    """

    def __init__(
        self,
        env: BrokerEnvironment,
        groups: GroupAssembly,
        delete_topic: Callable[[str], Awaitable[None]],
    ) -> None:
        self._env = env
        self._store = env.store
        self._clock = env.clock
        self._topics = env.tables.topics
        self._settings = env.tables.groups
        self._offsets = env.tables.offsets
        self._groups = groups
        self._sessions = groups.sessions
        self._delete_topic = delete_topic

    def handlers(self) -> Sequence[Handler]:
        """Return the handlers of its RPCs."""
        return (
            unary(PUT_GROUP, self.put_group),
            unary(DELETE_GROUP, self.delete_group),
            unary(RESET_OFFSETS, self.reset_offsets),
            unary(CLONE_OFFSETS, self.clone_offsets),
            unary(LIST_GROUPS, self.list_groups),
            unary(DESCRIBE_GROUP, self.describe_group),
        )

    async def put_group(self, request: admin.PutGroupRequest, call: Call) -> admin.PutGroupReply:
        """Create a group or change its settings; the reply comes when they are on disk."""
        _check_changeable(request.settings.group)
        settings = group_settings_from_pb(request.settings)
        check_settings(settings)
        if self._topics.get(retry_topic(settings.group)) is not None:
            self._groups.topics.retry(settings)
        is_new = self._settings.put(settings, now_ms=self._clock.wall_ms())
        logger.info("group put group=%s new=%s settings=%s", settings.group, is_new, settings)
        await self._save()
        return admin.PutGroupReply(created=is_new)

    async def delete_group(
        self, request: admin.DeleteGroupRequest, call: Call
    ) -> admin.DeleteGroupReply:
        """Delete a group without members: settings, offsets, locks, retry topic with its files."""
        group = _check_changeable(request.group)
        self._check_is_known(group)
        self._check_is_idle(group)
        self._settings.remove(group, now_ms=self._clock.wall_ms())
        self._offsets.remove_group(group)
        self._groups.locks.remove_group(group)
        self._env.statistics.forget_group(group)
        self._env.tables.filters.remove_group(group)
        logger.info("group deleted group=%s dead_letters=%s", group, request.with_dead_letters)
        doomed = [retry_topic(group)]
        if request.with_dead_letters:
            doomed.append(dead_letter_topic(group))
        refused: RefusedError | None = None
        for topic in doomed:
            if self._topics.get(topic) is not None:
                try:
                    await self._delete_topic(topic)
                except RefusedError as error:  # a NameServer's: the topic is deleted here
                    refused = error
        await self._save()
        if refused is not None:
            raise refused
        return admin.DeleteGroupReply()

    async def reset_offsets(
        self, request: admin.ResetOffsetsRequest, call: Call
    ) -> admin.ResetOffsetsReply:
        """Set the offsets of a group, also a consuming one; the reply comes when they are on disk.

        Commits of messages that members hold have an older version and are refused. Members receive
        the new offsets and resume there.
        """
        group, topic = _check_changeable(request.group), check_topic(request.topic)
        self._check_is_known(group)
        queue_ids = self._queue_ids(topic, request.queue_ids)
        requested = [await self._requested(request, topic, queue_id) for queue_id in queue_ids]
        # No await between the reads of offsets and their change.
        self._queue_ids(topic, queue_ids)
        states = [self._state(group, topic, queue_id) for queue_id in queue_ids]
        changes = reset(zip(states, requested, strict=True), backwards_only=request.backwards_only)
        reply = admin.ResetOffsetsReply(changes=map(_change_to_pb, changes))
        if request.dry_run or not changes:
            return reply
        self._set(group, changes)
        logger.info("offsets reset group=%s topic=%s queues=%s", group, topic, len(changes))
        await self._save()
        reply.members_told = self._send(group, changes)
        return reply

    async def clone_offsets(
        self, request: admin.CloneOffsetsRequest, call: Call
    ) -> admin.CloneOffsetsReply:
        """Copy the offsets of one group to another; the reply comes when they are on disk.

        It copies those in topics about which the caller may know.
        """
        source, group = check_stored_group(request.from_group), _check_changeable(request.to_group)
        self._check_is_known(source)
        if source == group:
            raise invalid(f"group {group!r} cannot be cloned to itself")
        if request.topic:
            check_topic(request.topic)
        self._check_is_idle(group)
        changes = [
            OffsetReset(topic, queue_id, self._offsets.query(group, topic, queue_id), offset)
            for topic, queues in self._offsets.topics_of(source).items()
            if is_cloned(topic, request.topic) and may_know_topic(call.permits, topic)
            for queue_id, offset in queues.items()
        ]
        if not changes:
            where = f"topic {request.topic!r}" if request.topic else "any topic"
            remark = f"group {source!r} has no offset in {where}"
            raise refusal(ResponseCode.QUERY_NOT_FOUND, remark)
        self._settings.use(group, now_ms=self._clock.wall_ms())
        self._set(group, changes)
        logger.info("offsets cloned source=%s group=%s queues=%s", source, group, len(changes))
        await self._save()
        return admin.CloneOffsetsReply(changes=map(_change_to_pb, changes))

    async def list_groups(
        self, request: admin.ListGroupsRequest, call: Call
    ) -> admin.ListGroupsReply:
        """Return a page of the groups that have members, offsets or settings.

        It has only those about which the caller may know.
        """
        known = self._sessions.table.groups() | self._offsets.groups()
        known |= {each.group for each in self._settings}
        allows = call.permits.allows
        behind = (
            group
            for group in sorted(known)
            if group > request.page_token and any(map(allows, to_know_group(group)))
        )
        page, has_more = page_of(behind, request.page_size, len)
        return admin.ListGroupsReply(groups=page, next_page_token=page[-1] if has_more else "")

    async def describe_group(
        self, request: admin.DescribeGroupRequest, call: Call
    ) -> admin.DescribeGroupReply:
        """Return the members, offsets and settings of a group.

        It has the offsets in topics about which the caller may know.
        """
        group = check_stored_group(request.group)
        members = self._sessions.table.members(group)
        offsets = self._offsets.topics_of(group)
        settings = self._settings.get(group)
        if not members and not offsets and settings is None:
            remark = f"group {group!r} does not exist"
            raise refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        reply = admin.DescribeGroupReply(
            members=[_member(each, group) for each in members],
            differences=self._sessions.differences(group),
        )
        subscribed = {topic for each in members for topic in each.memberships[group].subscriptions}
        may_know = partial(may_know_topic, call.permits)
        for topic in filter(may_know, sorted(subscribed | offsets.keys())):
            config, kept = self._topics.get(topic), offsets.get(topic, {})
            queues = set(kept) | set(range(config.read_queues if config else 0))
            for queue_id in sorted(queues):
                least, end = self._store.queue_range(topic, queue_id)
                reply.progress.add(
                    topic=topic,
                    queue_id=queue_id,
                    committed_offset=kept.get(queue_id, NEVER_CONSUMED),
                    min_offset=least,
                    max_offset=end,
                    version=self._offsets.version(group, topic, queue_id),
                )
        if settings is not None:
            reply.settings.CopyFrom(group_settings_to_pb(settings))
        await add_times(reply.progress, self._store, self._env.reader, self._clock)
        return reply

    def _check_is_known(self, group: str) -> None:
        if (
            self._settings.get(group) is None
            and group not in self._offsets.groups()
            and not self._sessions.table.members(group)
        ):
            remark = f"group {group!r} does not exist"
            raise refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)

    def _check_is_idle(self, group: str) -> None:
        members = self._sessions.table.members(group)
        if members:
            remark = f"group {group!r} has live members: {members[0].client_id}"
            if len(members) > 1:
                remark += f" and {len(members) - 1} more"
            raise refusal(ResponseCode.ILLEGAL_OPERATION, remark)

    def _queue_ids(self, topic: str, requested: Sequence[int]) -> Sequence[int]:
        """Return the requested queues, sorted."""
        config = self._topics.get(topic)
        if config is None:
            raise refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic {topic!r} does not exist")
        count = max(config.read_queues, config.write_queues)
        for queue_id in requested:
            if not 0 <= queue_id < count:
                raise invalid(f"topic {topic!r} has queues 0 to {count - 1}, not {queue_id}")
        return sorted(set(requested)) if requested else range(count)

    async def _requested(
        self, request: admin.ResetOffsetsRequest, topic: str, queue_id: int
    ) -> int:
        """Return the requested offset of a queue, which may lie outside it."""
        least, end = self._store.queue_range(topic, queue_id)
        match request.WhichOneof("to"):
            case "at_ms":
                if request.at_ms < 0:
                    raise invalid(f"at_ms is {request.at_ms}; must not be negative")
                search = self._store.searches.by_time(
                    topic, queue_id, request.at_ms, BoundaryType.LOWER
                )
                if search is None:
                    return end
                return await self._env.reader.run(search.run)
            case "offset":
                if request.offset < 0:
                    raise invalid(f"offset is {request.offset}; must not be negative")
                return request.offset
            case "first":
                return least
            case "last":
                return end
            case _:
                raise invalid("a reset needs a target: at_ms, offset, first or last")

    def _state(self, group: str, topic: str, queue_id: int) -> QueueState:
        least, end = self._store.queue_range(topic, queue_id)
        before = self._offsets.query(group, topic, queue_id)
        return QueueState(topic, queue_id, least, end, before)

    def _set(self, group: str, changes: Sequence[OffsetReset]) -> None:
        now_ms = self._clock.wall_ms()
        for each in changes:
            self._offsets.commit(
                group, each.topic, each.queue_id, each.after, force=True, now_ms=now_ms
            )
            self._env.statistics.moved(group, each.topic, each.queue_id, each.after)

    def _send(self, group: str, changes: Sequence[OffsetReset]) -> int:
        """Send new offsets to the group's live members; return how many will get them."""
        reply = groups.SessionReply(
            offsets_reset=groups.OffsetsReset(
                group=group,
                offsets=[
                    groups.QueueOffset(
                        topic=each.topic,
                        queue_id=each.queue_id,
                        offset=each.after,
                        version=self._offsets.version(group, each.topic, each.queue_id),
                    )
                    for each in changes
                ],
            )
        )
        members = self._sessions.table.members(group)
        return sum(self._sessions.command(member, reply) for member in members)

    async def _save(self) -> None:
        tables = self._env.tables
        await save_all(tables.groups_file, tables.offsets_file, tables.versions_file)


def _check_changeable(group: str) -> str:
    """Return a group that operators may change.

    Raises:
        IllegalName: The name is illegal.
        PermissionRefused: The group belongs to the broker.
    """
    if is_system_group(check_stored_group(group)):
        raise refusal(ResponseCode.NO_PERMISSION, f"group {group!r} belongs to the broker")
    return group


def _change_to_pb(change: OffsetReset) -> admin.OffsetChange:
    return admin.OffsetChange(
        topic=change.topic,
        queue_id=change.queue_id,
        before=NEVER_CONSUMED if change.before is None else change.before,
        after=change.after,
    )


def _member(session: ClientSession, group: str) -> admin.GroupMember:
    membership = session.memberships[group]
    return admin.GroupMember(
        client_id=session.client_id,
        address=str(session.address),
        connected_at_ms=session.connected_at_ms,
        group=groups.ConsumerGroup(
            group=group,
            model=groups.BROADCASTING if membership.is_broadcasting else groups.CLUSTERING,
            consume_from=membership.consume_from,
            subscriptions=[
                {
                    "topic": each.topic,
                    "expression_type": each.expression_type,
                    "expression": each.expression,
                    "version_ms": each.version_ms,
                }
                for _, each in sorted(membership.subscriptions.items())
            ],
        ),
    )
