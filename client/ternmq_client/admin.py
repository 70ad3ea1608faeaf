"""Administration: topics, groups, brokers and single messages, over a whole cluster."""

from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from ternmq_client.config import ClientConfig
from ternmq_client.descriptions import (
    GroupDescription,
    Member,
    Progress,
    QueueStatus,
    TopicDescription,
)
from ternmq_client.nameservers import NameServers
from ternmq_client.records import one_message, split_messages
from ternmq_model.address import Address, resolve_addresses
from ternmq_model.errors import (
    GroupNotFound,
    MessageNotFound,
    RefusedError,
    TopicNotFound,
    TransportError,
    Unreachable,
    UsageError,
    refusal,
)
from ternmq_model.message_id import parse_offset_message_id
from ternmq_model.names import check_group, check_topic
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import BrokerData, TopicConfig, check_broker_name
from ternmq_model.stored_message import StoredMessage
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_protos.v1 import nameserver_pb2 as nameserver
from ternmq_remoting.contracts import (
    CLEAN_STORE,
    DELETE_TOPIC,
    DESCRIBE_BROKER,
    DESCRIBE_GROUP,
    DESCRIBE_STORE,
    DESCRIBE_TOPIC,
    GET_CLUSTER,
    LIST_GROUPS,
    LIST_TOPICS,
    PUT_TOPIC,
    QUERY_MESSAGES,
    QUERY_OFFSET_BY_TIME,
    VIEW_MESSAGE,
    WIPE_WRITE_PERMISSION,
)
from ternmq_remoting.convert import broker_data_from_pb, topic_config_from_pb, topic_config_to_pb
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc import Connection, Identity
from ternmq_remoting.system import system_environment
from ternmq_runtime.lifecycle import Lifecycle
from ternmq_runtime.service import OwnedTasks

_QUERIED_MAX: Final = 64
_CLEAN_TIMEOUT_S: Final = 600.0
"""Deleting a thousand files takes that long at 100 ms rest after each, and more."""


class AdminClient(Lifecycle):
    """Asks and tells every broker of a cluster, between `async with` and its end.

    Every method asks the NameServer who is there, dials whom it needs and hangs up again, so that
    nothing here is ever out of date. Masters alone are asked.

    Args:
        config: Where the NameServers are, and the client's patience.
        env: The seams. None = the real world, opened and closed with the client.
    """

    def __init__(
        self, config: ClientConfig | None = None, *, env: Environment | None = None
    ) -> None:
        self._config = config or ClientConfig()
        self._env = env
        self._nameservers: NameServers | None = None

    async def _open(self, stack: AsyncExitStack) -> None:
        if self._env is None:
            self._env = await stack.enter_async_context(system_environment())
        tasks = await stack.enter_async_context(OwnedTasks())
        self._nameservers = NameServers(
            self._env,
            self._config.addresses(),
            tasks,
            connect_timeout_s=self._config.connect_timeout_s,
            request_timeout_s=self._config.request_timeout_s,
        )
        stack.push_async_callback(self._nameservers.close)

    async def brokers(self, cluster: str = "") -> list[BrokerData]:
        """Return every broker name, sorted; only those of `cluster` when that is given.

        Raises:
            TransportError: No NameServer answers.
        """
        reply = await self._names.call(GET_CLUSTER, nameserver.GetClusterRequest())
        brokers = map(broker_data_from_pb, reply.brokers)
        return [data for data in brokers if cluster in ("", data.cluster)]

    async def broker_status(self, data: BrokerData) -> admin.DescribeBrokerReply:
        """Return what the master of `data` says of itself and its store."""
        async with self._master(data) as connection:
            return await connection.call(
                DESCRIBE_BROKER, admin.DescribeBrokerRequest(), timeout_s=self._timeout_s
            )

    async def clean_store(self, broker_name: str) -> admin.CleanStoreReply:
        """Have a broker delete what has expired of its messages now, whatever the hour.

        Returns:
            How many files of its log went, and where the log begins.

        Raises:
            UsageError: There is no such broker.
        """
        (data,) = await self._wanted(brokers=(broker_name,))
        async with self._master(data) as connection:
            return await connection.call(
                CLEAN_STORE, admin.CleanStoreRequest(), timeout_s=_CLEAN_TIMEOUT_S
            )

    async def describe_store(self, data: BrokerData) -> admin.DescribeStoreReply:
        """Return what the store of the master of `data` has counted since it was opened."""
        async with self._master(data) as connection:
            return await connection.call(
                DESCRIBE_STORE, admin.DescribeStoreRequest(), timeout_s=self._timeout_s
            )

    async def wipe_write_permission(self, broker_name: str) -> int:
        """Let nobody send to a broker any more, while consumers read on.

        Every configured NameServer is told. Each keeps it in memory: it is over when the broker or
        that NameServer is restarted, or when the broker was silent for so long that it was dropped.
        Harmless to repeat.

        Returns:
            How many topics lost the permission; 0 when it was taken before.

        Raises:
            IllegalName: No broker is called so; nothing was asked.
            RefusedError: BROKER_NOT_EXIST: no NameServer knows the broker.
            Unreachable: A NameServer gave no answer; names each such. The others were told.
        """
        check_broker_name(broker_name)
        changed: list[int] = []
        unknown: list[RefusedError] = []
        failures: list[TransportError] = []
        silent: list[str] = []
        for address in self._names.addresses:
            try:
                changed.append(await self._wipe_at(address, broker_name))
            except RefusedError as error:
                if error.code != ResponseCode.BROKER_NOT_EXIST:
                    raise
                unknown.append(error)
            except TransportError as error:
                failures.append(error)
                silent.append(f"{address}: {error}")
        if failures:
            how_many = f"{len(silent)} of {len(self._names.addresses)} nameservers"
            unreachable = Unreachable(f"{how_many} not told: {'; '.join(silent)}")
            unreachable.may_have_happened = bool(changed) or any(
                failure.may_have_happened for failure in failures
            )
            raise unreachable
        if not changed:
            raise unknown[0]
        return max(changed)

    async def topics(self, cluster: str = "") -> list[str]:
        """Return the names of all topics, sorted, those of the system included."""
        reply = await self._names.call(LIST_TOPICS, nameserver.ListTopicsRequest(cluster=cluster))
        return list(reply.topics)

    async def create_topic(
        self, config: TopicConfig, *, cluster: str = "", brokers: Collection[str] = ()
    ) -> list[str]:
        """Create a topic, or change its settings, on every master; return the brokers' names.

        When this returns every NameServer that the brokers reach knows the topic.

        Args:
            config: Topic, queues and permissions.
            cluster: Only on brokers of this cluster.
            brokers: Only on these broker names.

        Raises:
            UsageError: No broker is left to create it on, or the name is illegal.
            RefusedError: A broker refuses the settings; brokers before it have taken them.
        """
        check_topic(config.topic)
        wanted = await self._wanted(cluster, brokers)
        request = admin.PutTopicRequest(topic=topic_config_to_pb(config))
        for data in wanted:
            async with self._master(data) as connection:
                await connection.call(PUT_TOPIC, request, timeout_s=self._timeout_s)
        return [data.broker_name for data in wanted]

    async def delete_topic(self, topic: str) -> list[str]:
        """Delete a topic, its messages' queues and its groups' offsets; return the brokers' names.

        Raises:
            TopicNotFound: No broker has it.
        """
        check_topic(topic)
        holders: list[str] = []
        for data in await self._wanted():
            async with self._master(data) as connection:
                try:
                    await connection.call(
                        DELETE_TOPIC,
                        admin.DeleteTopicRequest(topic=topic),
                        timeout_s=self._timeout_s,
                    )
                    holders.append(data.broker_name)
                except TopicNotFound:
                    continue
        if not holders:
            raise refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic {topic!r} is on no broker")
        return holders

    async def describe_topic(self, topic: str) -> TopicDescription:
        """Return a topic's settings and queues.

        Raises:
            TopicNotFound: No broker has it.
        """
        check_topic(topic)
        configs: list[tuple[str, TopicConfig]] = []
        queues: list[QueueStatus] = []
        for data in await self._wanted():
            async with self._master(data) as connection:
                try:
                    reply = await connection.call(
                        DESCRIBE_TOPIC,
                        admin.DescribeTopicRequest(topic=topic),
                        timeout_s=self._timeout_s,
                    )
                except TopicNotFound:
                    continue
            configs.append((data.broker_name, topic_config_from_pb(reply.topic)))
            queues += [
                QueueStatus(
                    MessageQueue(topic, data.broker_name, one.queue_id),
                    one.min_offset,
                    one.max_offset,
                    one.last_stored_at_ms,
                )
                for one in reply.queues
            ]
        if not configs:
            raise refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic {topic!r} is on no broker")
        return TopicDescription(topic, tuple(configs), tuple(queues))

    async def groups(self) -> list[str]:
        """Return the names of all groups with members or offsets, sorted."""
        names: set[str] = set()
        for data in await self._wanted():
            async with self._master(data) as connection:
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
        is_known = False
        for data in await self._wanted():
            async with self._master(data) as connection:
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
                )
                for one in reply.progress
            ]
        if not is_known:
            raise refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"group {group!r} is on no broker"
            )
        return GroupDescription(
            group,
            tuple(members[name] for name in sorted(members)),
            tuple(sorted(progress, key=lambda one: one.queue)),
        )

    async def message(self, offset_message_id: str) -> StoredMessage:
        """Return the message that an offset message id names.

        Every broker is asked; only one whose record at that offset carries the id's host answers.
        The address in the id is never dialled.

        Raises:
            UsageError: It is no offset message id.
            MessageNotFound: No broker holds it.
        """
        parse_offset_message_id(offset_message_id)
        for data in await self._wanted():
            async with self._master(data) as connection:
                try:
                    reply = await connection.call(
                        VIEW_MESSAGE,
                        messages.ViewMessageRequest(offset_message_id=offset_message_id),
                        timeout_s=self._timeout_s,
                    )
                except MessageNotFound:
                    continue
            return one_message(reply.record, data.broker_name)
        raise refusal(ResponseCode.QUERY_NOT_FOUND, f"no broker holds message {offset_message_id}")

    async def query_messages(
        self,
        topic: str,
        key: str,
        *,
        begin_ms: int = 0,
        end_ms: int = 0,
        maximum: int = 64,
        is_unique_key: bool = False,
    ) -> list[StoredMessage]:
        """Return the newest messages with a key, oldest first.

        Args:
            topic: Where to look; empty = in every topic.
            key: A unique key (message id), or one of the message's keys.
            begin_ms: The earliest store time, Unix milliseconds.
            end_ms: The latest; 0 = no limit.
            maximum: At most so many; a broker finds no more than 64.
            is_unique_key: Only the message whose unique key it is.

        Raises:
            MessageNotFound: No broker has one, or those that do keep no index.
        """
        request = messages.QueryMessagesRequest(
            topic=topic,
            key=key,
            begin_ms=begin_ms,
            end_ms=end_ms,
            messages_max=min(maximum, _QUERIED_MAX),
            is_unique_key=is_unique_key,
        )
        found: list[StoredMessage] = []
        reason: RefusedError | None = None
        for data in await self._wanted():
            async with self._master(data) as connection:
                try:
                    reply = await connection.call(
                        QUERY_MESSAGES, request, timeout_s=self._timeout_s
                    )
                except (MessageNotFound, TopicNotFound) as error:
                    reason = error
                    continue
            found += split_messages(reply.records, reply.record_sizes, data.broker_name)
        if not found and reason is not None:
            raise reason
        return sorted(found, key=lambda one: one.stored_at_ms)[-maximum:]

    async def offsets_at(
        self, topic: str, at_ms: int, *, upper: bool = False
    ) -> list[tuple[MessageQueue, int]]:
        """Return of each queue the offset of the first message stored at a time or later.

        Args:
            topic: An existing topic.
            at_ms: Unix milliseconds.
            upper: Rather the last message stored then or earlier.

        Raises:
            TopicNotFound: It is on no broker.
        """
        boundary = admin.UPPER if upper else admin.LOWER
        found: list[tuple[MessageQueue, int]] = []
        description = await self.describe_topic(topic)
        for data in await self._wanted():
            mine = [
                one.queue for one in description.queues if data.broker_name == one.queue.broker_name
            ]
            async with self._master(data) as connection:
                for queue in mine:
                    request = admin.QueryOffsetByTimeRequest(
                        topic=topic, queue_id=queue.queue_id, at_ms=at_ms, boundary=boundary
                    )
                    reply = await connection.call(
                        QUERY_OFFSET_BY_TIME, request, timeout_s=self._timeout_s
                    )
                    found.append((queue, reply.offset))
        return found

    async def _wanted(
        self, cluster: str = "", brokers: Collection[str] = ()
    ) -> Sequence[BrokerData]:
        """Return the broker names with a master that were asked for."""
        there = [data for data in await self.brokers(cluster) if data.master is not None]
        missing = set(brokers) - {data.broker_name for data in there}
        if missing:
            raise UsageError(f"broker {', '.join(sorted(missing))}: no such master is registered")
        if not there:
            where = f"cluster {cluster!r}" if cluster else "any cluster"
            raise UsageError(f"no master is registered in {where}")
        return [data for data in there if not brokers or data.broker_name in brokers]

    async def _wipe_at(self, nameserver_address: Address, broker_name: str) -> int:
        assert self._env is not None, "is open"
        connection = await self._env.network.connect(
            [nameserver_address], timeout_s=self._config.connect_timeout_s
        )
        try:
            request = nameserver.WipeWritePermissionRequest(broker_name=broker_name)
            reply = await connection.call(WIPE_WRITE_PERMISSION, request, timeout_s=self._timeout_s)
        finally:
            await connection.close()
        return reply.topics_changed

    @asynccontextmanager
    async def _master(self, data: BrokerData) -> AsyncGenerator[Connection]:
        master = data.master
        assert self._env is not None, "is open"
        assert master is not None, "asked of brokers with a master"
        host = self._names.current_host
        connection = await self._env.network.connect(
            resolve_addresses(master.endpoints, nameserver_host=host),
            expect=Identity(data.cluster, data.broker_name, master.broker_id, master.epoch),
            timeout_s=self._config.connect_timeout_s,
        )
        try:
            yield connection
        finally:
            await connection.close()

    @property
    def _names(self) -> NameServers:
        if self._nameservers is None:
            raise UsageError("the client is not open: use it inside `async with`")
        return self._nameservers

    @property
    def _timeout_s(self) -> float:
        return self._config.request_timeout_s
