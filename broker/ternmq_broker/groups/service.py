"""Session, members and offsets of consumer groups.

Source: RocketMQ `ClientManageProcessor`, `ConsumerManageProcessor`.
"""

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from ternmq_broker.environment import BrokerEnvironment
from ternmq_broker.groups.client_queries import ClientQueries
from ternmq_broker.groups.filters.filter_rules import FilterRules
from ternmq_broker.groups.offset_rules import OffsetCommit, OffsetRules
from ternmq_broker.groups.retry.group_topics import GroupTopics
from ternmq_broker.groups.sessions import SessionManager, SessionOutbox
from ternmq_broker.state.clients import ClientSession, GroupMembership, check_client_id
from ternmq_broker.state.table_file import save_all
from ternmq_model.errors import (
    ConnectionLost,
    RefusedError,
    StoreError,
    TernError,
    invalid,
    refusal,
)
from ternmq_model.names import check_group, check_stored_group, check_topic, is_system_group
from ternmq_model.offsets import OFFSET_MAX, QueueOffset
from ternmq_model.permission import Action, of_group
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting.converters import status_of
from ternmq_remoting.request_parser import check_range
from ternmq_remoting.rpc import Call, Handler, Permits, ServerStream, stream, unary
from ternmq_remoting.service_methods import COMMIT_OFFSETS, LIST_MEMBERS, QUERY_OFFSET, SESSION
from ternmq_runtime.service import OwnedTasks
from ternmq_store.queues.read_request import ReadLimits, ReadRequest

SessionServerStream = ServerStream[groups.SessionRequest, groups.SessionReply]

NEVER_CONSUMED: Final = -1
_PRODUCER_GROUPS_MAX: Final = 1024
"""Limit on the producer groups of one client. `ELEMENTS_MAX` limits consumer groups."""

_ONE: Final = ReadLimits(1, 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupService:
    """Handlers of Session, ListMembers, CommitOffsets and QueryOffset."""

    env: BrokerEnvironment
    filters: FilterRules
    offset_rules: OffsetRules
    sessions: SessionManager
    group_topics: GroupTopics
    client_queries: ClientQueries

    def handlers(self) -> Sequence[Handler]:
        """Return the handlers of Session, ListMembers, CommitOffsets and QueryOffset."""
        return (
            stream(SESSION, self.session),
            unary(LIST_MEMBERS, self.list_members),
            unary(COMMIT_OFFSETS, self.commit_offsets),
            unary(QUERY_OFFSET, self.query_offset),
        )

    async def session(self, stream: SessionServerStream, call: Call) -> None:
        """Accept one client's heartbeats, and send the client changes, until it leaves."""
        first = await stream.read()
        if first is None:
            return
        if first.WhichOneof("request") != "hello":
            raise invalid("a Session begins with `hello`")
        hello, sessions = first.hello, self.sessions
        _check_client(hello)
        memberships = self._memberships(hello.consumer_groups)
        producers = _producer_groups(hello.producer_groups, call.permits)
        session = ClientSession(
            hello.client_id,
            hello.incarnation,
            call.peer,
            connected_at_ms=self.env.clock.wall_ms(),
            heartbeat_at_ms=self.env.clock.monotonic_ms(),
            language=call.metadata.get("ternmq-language", ""),
            version=call.metadata.get("ternmq-version", ""),
            user=call.permits.user,
        )
        outbox = sessions.open(session)
        if isinstance(outbox, ClientSession):
            place = f"at {outbox.address}" if outbox.user == session.user else "by another user"
            remark = f"client id {hello.client_id!r} is in use {place}"
            await stream.write(_welcome(ResponseCode.INVALID_PARAMETER, remark))
            return
        try:
            try:
                sessions.heartbeat(session, producers, memberships)
            except RefusedError:
                sessions.goodbye(session)  # a refused client must take no space until it expires
                raise
            await stream.write(_welcome(ResponseCode.SUCCESS, ""))
            async with OwnedTasks() as tasks:
                reading = tasks.spawn(
                    self._read_heartbeats(stream, session, outbox, call.permits), "session-hear"
                )
                while replies := await outbox.next():
                    for reply in replies:
                        await stream.write(reply)
                if reading.done() and (error := reading.result()) is not None:
                    raise error
        except ConnectionLost:
            return
        finally:
            sessions.broke(session)
            outbox.written()

    async def _read_heartbeats(
        self,
        stream: SessionServerStream,
        session: ClientSession,
        outbox: SessionOutbox,
        permits: Permits,
    ) -> TernError | None:
        """Accept heartbeats until the stream ends, then end the other half; return an error."""
        sessions = self.sessions
        try:
            while (request := await stream.read()) is not None:
                match request.WhichOneof("request"):
                    case "heartbeat":
                        beat = request.heartbeat
                        memberships = self._memberships(beat.consumer_groups)
                        producers = _producer_groups(beat.producer_groups, permits)
                        sessions.heartbeat(session, producers, memberships)
                    case "running_state":
                        self.client_queries.answered(session, request.running_state)
                    case "goodbye":
                        sessions.goodbye(session)
                        return None
                    case _:
                        return invalid("a Session goes on with heartbeats")
        except TernError as error:
            return error
        finally:
            outbox.end()
        return None

    def _memberships(self, joined: Iterable[groups.ConsumerGroup]) -> dict[str, GroupMembership]:
        """Return a client's memberships of consumer groups, which are created here.

        Raises:
            TernError: A name is illegal or a subscription cannot be read; nothing changes.
        """
        memberships: dict[str, GroupMembership] = {}
        read = partial(
            self.filters.subscription_of,
            code_when_off=ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        )
        for each in joined:
            check_group(each.group)
            memberships[each.group] = GroupMembership(
                each.group,
                each.model == groups.BROADCASTING,
                groups.ConsumeFrom.Name(each.consume_from),
                {
                    subscription.topic: read(subscription.topic, subscription)
                    for subscription in each.subscriptions
                },
            )
        for membership in memberships.values():
            self._prepare(membership)
        return memberships

    def _prepare(self, membership: GroupMembership) -> None:
        """Create a group with its retry topic, which members read beside their own topics."""
        now_ms = self.env.clock.wall_ms()
        settings = self.env.tables.groups.use(membership.group, now_ms=now_ms)
        is_retrying = not membership.is_broadcasting and settings.retry_queues > 0
        if is_retrying and not is_system_group(membership.group):
            # A group without a retry topic consumes too; send-backs are then refused.
            with contextlib.suppress(RefusedError):
                self.group_topics.retry(settings)

    async def list_members(
        self, request: groups.ListMembersRequest, call: Call
    ) -> groups.ListMembersReply:
        """Return the live members of a group."""
        members = self.sessions.table.members(check_stored_group(request.group))
        return groups.ListMembersReply(client_ids=[each.client_id for each in members])

    async def commit_offsets(
        self, request: groups.CommitOffsetsRequest, call: Call
    ) -> groups.CommitOffsetsReply:
        """Store offsets of a group that are beyond the stored ones.

        A seek is answered when its new versions are on disk: after a crash, no earlier commit may
        count again. The first commits in a queue wait for the disk too: without a stored offset
        the group would begin at a later end of the queue.
        """
        now_ms = self.env.clock.wall_ms()
        group = self.env.tables.groups.use(request.group, now_ms=now_ms).group
        reply = groups.CommitOffsetsReply()
        for each in request.offsets:
            commit = OffsetCommit(
                each.topic, each.queue_id, each.offset, each.version, each.lock_token
            )
            if request.force:
                commit = self.offset_rules.nearest(commit)
            why = self.offset_rules.why_not(group, commit)
            if why is None:
                is_kept = self.env.tables.offsets.commit(
                    group,
                    each.topic,
                    each.queue_id,
                    QueueOffset(commit.offset),
                    each.version,
                    force=request.force,
                    now_ms=now_ms,
                )
                if is_kept and not request.force:
                    continue
            kept = self.env.tables.offsets.query(group, each.topic, each.queue_id)
            version = self.env.tables.offsets.version(group, each.topic, each.queue_id)
            stored = groups.QueueOffset(
                topic=each.topic,
                queue_id=each.queue_id,
                offset=NEVER_CONSUMED if kept is None else kept,
                version=version,
            )
            if why is None and request.force:
                reply.kept.append(stored)
                continue
            if why is None:
                what = f"{kept} is stored, not {each.offset}"
                if version != each.version:
                    what = f"{kept} of version {version} is stored, not one of {each.version}"
                remark = f"{each.topic} queue {each.queue_id}: {what}"
                why = refusal(ResponseCode.PULL_OFFSET_MOVED, remark)
            stored.status.CopyFrom(status_of(why))
            reply.refused.append(stored)
        if reply.refused:
            reply.status.code = ResponseCode.INVALID_PARAMETER
            reply.status.remark = "; ".join(each.status.remark for each in reply.refused[:3])
        if request.force or any(
            self.env.tables.offsets.has_unsaved_begin(group, each.topic, each.queue_id)
            for each in request.offsets
        ):
            await self._saved()
        return reply

    async def _saved(self) -> None:
        await save_all(self.env.tables.offsets_file, self.env.tables.versions_file)

    async def query_offset(
        self, request: groups.QueryOffsetRequest, call: Call
    ) -> groups.QueryOffsetReply:
        """Return the offset of a group in a queue, and whether it survives a crash."""
        group, topic = check_stored_group(request.group), check_topic(request.topic)
        check_range("queue_id", request.queue_id, 0, OFFSET_MAX)
        is_unsaved = partial(
            self.env.tables.offsets.has_unsaved_begin, group, topic, request.queue_id
        )
        if is_unsaved():
            with contextlib.suppress(StoreError):  # the group's first commit reports the failure
                await self._saved()
        kept = self.env.tables.offsets.query(group, topic, request.queue_id)
        if kept is None and self.env.tables.offsets.is_awaited:
            # An answer would let the group begin at the end of the queue.
            remark = "this slave lost its offsets and has not received its master's yet"
            raise refusal(ResponseCode.SERVICE_NOT_AVAILABLE, remark)
        offset = await self._first_offset(group, topic, request.queue_id) if kept is None else kept
        version = self.env.tables.offsets.version(group, topic, request.queue_id)
        is_kept = kept is not None and not is_unsaved()
        return groups.QueryOffsetReply(offset=offset, version=version, is_kept=is_kept)

    async def _first_offset(self, group: str, topic: str, queue_id: int) -> int:
        """Return the first offset of a new group: 0 while the queue's first message is in memory.

        In a queue without messages a group begins at 0, so that no message is missed. With
        `consume_from_min_enabled` it begins at the first stored message.

        Source: RocketMQ `ConsumerManageProcessor.queryConsumerOffset`.
        """
        if self.env.tables.topics.get(topic) is None:
            return NEVER_CONSUMED
        least, end = self.env.store.queue_range(topic, queue_id)
        if end == 0:
            return 0
        settings = self.env.tables.groups.get(group)
        if settings is not None and settings.consume_from_min_enabled:
            return least
        if least > 0:
            return NEVER_CONSUMED
        first = await self.env.reader.read(
            ReadRequest(topic=topic, queue_id=queue_id, offset=QueueOffset(0), hot=_ONE, cold=_ONE)
        )
        is_hot = first.behind_bytes <= self.env.store.reads.hot_bytes
        return 0 if len(first.record_sizes) and is_hot else NEVER_CONSUMED


def _check_client(hello: groups.Hello) -> None:
    check_client_id(hello.client_id)
    check_client_id(hello.incarnation, "incarnation")


def _producer_groups(names: Sequence[str], permits: Permits) -> list[str]:
    """Return the producer groups of a client that is asked about their transactions.

    Every producer names its group, also one that begins no transaction: a group in which it may not
    publish is left out, not refused.
    """
    if len(names) > _PRODUCER_GROUPS_MAX:
        raise invalid(f"a client has at most {_PRODUCER_GROUPS_MAX} producer groups")
    return [
        name for name in map(check_group, names) if permits.allows(of_group(name, Action.PUBLISH))
    ]


def _welcome(code: ResponseCode, remark: str) -> groups.SessionReply:
    return groups.SessionReply(welcome=groups.Welcome(status={"code": int(code), "remark": remark}))
