"""Administration of topics, over a whole cluster."""

import asyncio
from collections.abc import AsyncGenerator, Collection, Iterable, Sequence

from ternmq_client.admin.admin_calls import AdminCalls
from ternmq_client.admin.descriptions import (
    BrokerList,
    QueueStatus,
    TopicCreatedAt,
    TopicCreation,
    TopicDescription,
    UnreachableBroker,
)
from ternmq_model.arguments import check_time_ms, is_kind
from ternmq_model.errors import RefusedError, TernError, TopicNotFound, UsageError, refusal
from ternmq_model.names import check_topic, topic_order
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import (
    TOPICS_AT_ONCE_MAX,
    BrokerData,
    TopicConfig,
    TopicRoute,
    check_topic_config,
)
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import common_pb2 as common
from ternmq_protos.v1 import nameserver_pb2 as nameserver
from ternmq_remoting.converters import (
    error_of,
    route_from_pb,
    topic_config_from_pb,
    topic_config_to_pb,
)
from ternmq_remoting.rpc import Connection
from ternmq_remoting.service_methods import (
    DELETE_TOPIC,
    DESCRIBE_TOPIC,
    GET_CLUSTER,
    GET_TOPIC_ROUTE,
    PUT_TOPIC,
    PUT_TOPICS,
    QUERY_OFFSET_BY_TIME,
)


class TopicAdmin(AdminCalls):
    """Topics and their queues."""

    async def topics(self, cluster: str = "") -> list[str]:
        """Return the names of all topics, sorted: users' own, then groups', then the system's."""
        return [topic async for page in self.topic_pages(cluster) for topic in page]

    async def topic_pages(self, cluster: str = "") -> AsyncGenerator[Sequence[str]]:
        """Yield the names of all topics as `topics` returns them, page by page.

        Raises:
            RefusedError: BROKER_NOT_EXIST: no broker is registered in `cluster`.
        """
        if cluster:
            await self.brokers(cluster)
        last: list[str] = []
        async for page in self._names.topics(cluster):
            own = [topic for topic in page if topic_order(topic) == (0, topic)]
            last += set(page).difference(own)
            yield own
        yield sorted(last, key=topic_order)

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
            UsageError: No broker is left to create it on, or the name or a number is illegal.
            RefusedError: A broker refuses the settings, or a NameServer the broker's registration;
                names the brokers that have taken them, and those not asked.
            Unreachable: A master does not answer: nothing is created.
            TransportError: A master gives no answer; as with a refusal.
        """
        request = admin.PutTopicRequest(topic=_checked(config))

        async def put(_: BrokerData, connection: Connection) -> admin.PutTopicReply:
            return await connection.call(PUT_TOPIC, request, timeout_s=self._timeout_s)

        done, _ = await self._change_each(put, cluster=cluster, brokers=brokers)
        return [name for name, _ in done]

    async def create_topics(
        self, configs: Sequence[TopicConfig], *, cluster: str = "", brokers: Collection[str] = ()
    ) -> list[TopicCreation]:
        """Create topics, or change their settings, on every master; return what became of each.

        A topic that is refused stops no other one. Topics that exist as they are to be stay so:
        after a failure the same list may be given again.

        Args:
            configs: Topics, queues and permissions.
            cluster: Only on brokers of this cluster.
            brokers: Only on these broker names.

        Returns:
            One for each topic, in order. Every NameServer that the brokers reach knows those that
            were created.

        Raises:
            UsageError: No broker is left to create them on, or `configs` is no list.
        """
        if not is_kind(configs, Iterable) or is_kind(configs, str):
            raise UsageError(f"create_topics takes a list of TopicConfig, not {configs!r}")
        configs = tuple(configs)
        told = [_told(config) for config in configs]
        good = [each for each in told if not isinstance(each, UsageError)]
        wanted = await self._readable(cluster, brokers)
        names = [data.broker_name for data in wanted]
        answers = await asyncio.gather(*(self._create_on(data, good) for data in wanted))
        of_good = zip(*answers, strict=True)
        found: list[TopicCreation] = []
        for config, each in zip(configs, told, strict=True):
            errors = [each] * len(names) if isinstance(each, UsageError) else next(of_good)
            failed = {name: error for name, error in zip(names, errors, strict=True) if error}
            created = tuple(name for name in names if name not in failed)
            found.append(TopicCreation(config.topic, created, failed))
        return found

    async def _create_on(
        self, data: BrokerData, topics: Sequence[common.TopicConfig]
    ) -> list[TernError | None]:
        """Create topics on one master; return why not, for each. No call follows a failed one."""
        errors: list[TernError | None] = []
        try:
            async with self._master(data) as connection:
                for first in range(0, len(topics), TOPICS_AT_ONCE_MAX):
                    some = topics[first : first + TOPICS_AT_ONCE_MAX]
                    await self._put_topics(connection, some, errors)
        except TernError as error:
            errors += [error] * (len(topics) - len(errors))
        return errors

    async def _put_topics(
        self,
        connection: Connection,
        topics: Sequence[common.TopicConfig],
        errors: list[TernError | None],
    ) -> None:
        """Create topics by one call; append to `errors` why not, for each."""
        request = admin.PutTopicsRequest(topics=topics)
        try:
            reply = await connection.call(PUT_TOPICS, request, timeout_s=self._timeout_s)
        except RefusedError as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
            for each in topics:  # the broker's version creates one topic a call
                await self._put_topic(connection, each, errors)
            return
        for result in reply.results:
            refused = result.status.code != ResponseCode.SUCCESS
            errors.append(error_of(result.status, str(connection.address)) if refused else None)

    async def _put_topic(
        self,
        connection: Connection,
        topic: common.TopicConfig,
        errors: list[TernError | None],
    ) -> None:
        request = admin.PutTopicRequest(topic=topic)
        try:
            await connection.call(PUT_TOPIC, request, timeout_s=self._timeout_s)
            errors.append(None)
        except RefusedError as error:
            errors.append(error)

    async def delete_topic(self, topic: str, *, cluster: str = "") -> BrokerList[str]:
        """Delete a topic, its messages' queues and its groups' offsets; return the brokers' names.

        A broker that is down keeps the topic and registers it again when it is back. `unreachable`
        of the result has those that have left in order lately: for as long as a NameServer would
        have waited for their next word, 2 min by default. None where `cluster` is given.

        Args:
            topic: Which one. Brokers that are not in its route are not asked.
            cluster: Only from brokers of this cluster.

        Raises:
            TopicNotFound: No broker has it.
            RefusedError: A broker refuses, or a NameServer the broker's registration; names the
                brokers that have deleted it, and those not asked.
            Unreachable: A master does not answer: nothing is deleted.
            TransportError: A master gives no answer; as with a refusal.
        """
        request = admin.DeleteTopicRequest(topic=check_topic(topic))
        reply = await self._names.call(GET_CLUSTER, nameserver.GetClusterRequest(page_size=1))
        left = () if cluster else reply.left

        async def delete(_: BrokerData, connection: Connection) -> admin.DeleteTopicReply:
            return await connection.call(DELETE_TOPIC, request, timeout_s=self._timeout_s)

        done, _ = await self._change_each(
            delete, cluster=cluster, topic=topic, unknown=(TopicNotFound,)
        )
        if not done:
            raise refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic {topic!r} is on no broker")
        why = "has left lately: it may have the topic, and bring it back"
        return BrokerList(
            (name for name, _ in done), (UnreachableBroker(name, (), why) for name in left)
        )

    async def describe_topic(self, topic: str) -> TopicDescription:
        """Return a topic's settings and queues.

        Raises:
            TopicNotFound: No broker has it.
            Unreachable: No broker that answers has it, and not all answer; names each such.
        """
        request = admin.DescribeTopicRequest(topic=check_topic(topic))

        async def reply(_: BrokerData, connection: Connection) -> admin.DescribeTopicReply:
            return await connection.call(DESCRIBE_TOPIC, request, timeout_s=self._timeout_s)

        asked = await self._ask_each(reply, unknown=(TopicNotFound,))
        if not asked.told:
            raise refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic {topic!r} is on no broker")
        return TopicDescription(
            topic,
            tuple((name, topic_config_from_pb(told.topic)) for name, told in asked.told),
            tuple(
                QueueStatus(
                    MessageQueue(topic, name, one.queue_id),
                    one.min_offset,
                    one.max_offset,
                    one.last_stored_at_ms,
                )
                for name, told in asked.told
                for one in told.queues
            ),
            asked.unreachable,
            tuple(_created_at(name, told) for name, told in asked.told),
        )

    async def route(self, topic: str) -> TopicRoute:
        """Return what NameServers tell clients of a topic.

        Raises:
            TopicNotFound: No broker has it.
        """
        request = nameserver.GetTopicRouteRequest(topic=check_topic(topic))
        reply = await self._names.call(GET_TOPIC_ROUTE, request)
        return route_from_pb(topic, reply.route)

    async def offsets_at(
        self, topic: str, at_ms: int, *, upper: bool = False
    ) -> BrokerList[tuple[MessageQueue, int]]:
        """Return of each queue the offset of the first message stored at a time or later.

        Args:
            topic: An existing topic.
            at_ms: Unix milliseconds.
            upper: Rather the last message stored then or earlier.

        Raises:
            TopicNotFound: It is on no broker.
            Unreachable: No broker that answers has it, and not all answer; names each such.
            UsageError: `at_ms` is no time in Unix milliseconds.
        """
        at_ms = check_time_ms("at_ms", at_ms)
        described = admin.DescribeTopicRequest(topic=check_topic(topic))
        boundary = admin.UPPER if upper else admin.LOWER

        async def offsets(
            data: BrokerData, connection: Connection
        ) -> list[tuple[MessageQueue, int]]:
            found: list[tuple[MessageQueue, int]] = []
            told = await connection.call(DESCRIBE_TOPIC, described, timeout_s=self._timeout_s)
            for one in told.queues:
                request = admin.QueryOffsetByTimeRequest(
                    topic=topic, queue_id=one.queue_id, at_ms=at_ms, boundary=boundary
                )
                reply = await connection.call(
                    QUERY_OFFSET_BY_TIME, request, timeout_s=self._timeout_s
                )
                found.append((MessageQueue(topic, data.broker_name, one.queue_id), reply.offset))
            return found

        asked = await self._ask_each(offsets, unknown=(TopicNotFound,))
        if not asked.told:
            raise refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic {topic!r} is on no broker")
        return BrokerList((each for _, told in asked.told for each in told), asked.unreachable)


def _created_at(broker_name: str, told: admin.DescribeTopicReply) -> TopicCreatedAt:
    log_offset = told.created_log_offset if told.HasField("created_log_offset") else None
    return TopicCreatedAt(broker_name, log_offset, told.created_at_ms)


def _checked(config: TopicConfig) -> common.TopicConfig:
    """Return `config` as a contract tells it.

    Raises:
        UsageError: Its name or a number is illegal.
    """
    try:
        return topic_config_to_pb(check_topic_config(config))
    except ValueError as error:  # beyond what a contract can tell
        raise UsageError(f"topic {config.topic!r}: {error}") from error


def _told(config: TopicConfig) -> common.TopicConfig | UsageError:
    """Return `config` as a contract tells it, or why none can."""
    try:
        return _checked(config)
    except UsageError as error:
        return error
