"""Administration of the topics of a cluster."""

import asyncio
from collections.abc import AsyncGenerator, Collection, Iterable, Sequence
from itertools import chain

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
    """Calls about topics and their queues."""

    async def topics(self, cluster: str = "") -> list[str]:
        """Return the names of all topics, sorted: those of users, of groups, of the system."""
        return [topic async for page in self.topic_pages(cluster) for topic in page]

    async def topic_pages(self, cluster: str = "") -> AsyncGenerator[Sequence[str]]:
        """Yield the names of all topics in the order of `topics`, page by page.

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

        Every NameServer that the brokers reach knows the topic afterwards.

        Args:
            config: Topic, queues and permissions.
            cluster: Cluster of the brokers; empty = every cluster.
            brokers: Names of the brokers; empty = every broker.

        Raises:
            UsageError: The name or a number is illegal.
            RefusedError: No such broker is registered; or a broker refuses the settings, or a
                NameServer the broker's registration: the text names the brokers that have applied
                them, and those that were not asked.
            Unreachable: A master does not answer: nothing is created.
            TransportError: A master gave no answer; the text is that of a refusal.
        """
        put = self._calling(PUT_TOPIC, admin.PutTopicRequest(topic=_checked(config)))
        done, _ = await self._change_each(put, cluster=cluster, brokers=brokers)
        return [name for name, _ in done]

    async def create_topics(
        self, configs: Sequence[TopicConfig], *, cluster: str = "", brokers: Collection[str] = ()
    ) -> list[TopicCreation]:
        """Create topics, or change their settings, on every master; return the outcome of each.

        Brokers create the other topics when one is refused. Repeating the call after a failure is
        safe: topics that have the settings already stay as they are.

        Args:
            configs: Topics, queues and permissions.
            cluster: Cluster of the brokers; empty = every cluster.
            brokers: Names of the brokers; empty = every broker.

        Returns:
            One outcome for each topic, in order. Every NameServer that the brokers reach knows the
            topics that were created.

        Raises:
            UsageError: `configs` is no list.
            RefusedError: BROKER_NOT_EXIST: no such broker is registered.
        """
        if not is_kind(configs, Iterable) or is_kind(configs, str):
            raise UsageError(f"create_topics takes a list of TopicConfig, not {configs!r}")
        configs = tuple(configs)
        checked = [_topic_or_error(config) for config in configs]
        legal = [each for each in checked if not isinstance(each, UsageError)]
        selected = await self._readable(cluster, brokers)
        names = [data.broker_name for data in selected]
        answers = await asyncio.gather(*(self._create_on(data, legal) for data in selected))
        of_legal = zip(*answers, strict=True)
        outcomes: list[TopicCreation] = []
        for config, each in zip(configs, checked, strict=True):
            errors = [each] * len(names) if isinstance(each, UsageError) else next(of_legal)
            failed = {name: error for name, error in zip(names, errors, strict=True) if error}
            created = tuple(name for name in names if name not in failed)
            outcomes.append(TopicCreation(config.topic, created, failed))
        return outcomes

    async def _create_on(
        self, data: BrokerData, topics: Sequence[common.TopicConfig]
    ) -> list[TernError | None]:
        """Create topics on one master; return each one's error. No call follows a failed one."""
        errors: list[TernError | None] = []
        try:
            async with self._master(data) as connection:
                for first in range(0, len(topics), TOPICS_AT_ONCE_MAX):
                    part = topics[first : first + TOPICS_AT_ONCE_MAX]
                    await self._put_topics(connection, part, errors)
        except TernError as error:
            errors += [error] * (len(topics) - len(errors))
        return errors

    async def _put_topics(
        self,
        connection: Connection,
        topics: Sequence[common.TopicConfig],
        errors: list[TernError | None],
    ) -> None:
        """Create topics by one call; append each one's error, or None, to `errors`."""
        try:
            reply = await self._call(connection, PUT_TOPICS, admin.PutTopicsRequest(topics=topics))
        except RefusedError as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
            # The broker's version creates one topic a call.
            for each in topics:
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
        try:
            await self._call(connection, PUT_TOPIC, admin.PutTopicRequest(topic=topic))
            errors.append(None)
        except RefusedError as error:
            errors.append(error)

    async def delete_topic(self, topic: str, *, cluster: str = "") -> BrokerList[str]:
        """Delete a topic with its queues and the offsets of its groups; return the brokers' names.

        A broker that is down keeps the topic and registers it again when it returns. `unreachable`
        of the result has the brokers that stopped in order during the last two minutes (the time
        after which a NameServer drops a silent broker); it is empty where `cluster` is given.

        Args:
            topic: Name of the topic. Brokers outside its route are not asked.
            cluster: Cluster of the brokers; empty = every cluster.

        Raises:
            TopicNotFound: No broker has the topic.
            RefusedError: A broker refuses, or a NameServer the broker's registration; the text
                names the brokers that have deleted the topic, and those that were not asked.
            Unreachable: A master does not answer: nothing is deleted.
            TransportError: A master gave no answer; the text is that of a refusal.
        """
        delete = self._calling(DELETE_TOPIC, admin.DeleteTopicRequest(topic=check_topic(topic)))
        reply = await self._names.call(GET_CLUSTER, nameserver.GetClusterRequest(page_size=1))
        left = () if cluster else reply.left
        done, _ = await self._change_each(
            delete, cluster=cluster, topic=topic, unknown=(TopicNotFound,)
        )
        if not done:
            raise _no_topic(topic)
        why = "has left lately: it may have the topic, and bring it back"
        return BrokerList(
            (name for name, _ in done), (UnreachableBroker(name, (), why) for name in left)
        )

    async def describe_topic(self, topic: str) -> TopicDescription:
        """Return the settings and queues of a topic.

        Raises:
            TopicNotFound: No broker has the topic.
            Unreachable: No broker that answers has the topic, and some gave no answer; names them.
        """
        request = admin.DescribeTopicRequest(topic=check_topic(topic))
        replies = await self._ask_each(
            self._calling(DESCRIBE_TOPIC, request), unknown=(TopicNotFound,)
        )
        if not replies.by_broker:
            raise _no_topic(topic)
        return TopicDescription(
            topic,
            tuple((name, topic_config_from_pb(reply.topic)) for name, reply in replies.by_broker),
            tuple(
                QueueStatus(
                    MessageQueue(topic, name, one.queue_id),
                    one.min_offset,
                    one.max_offset,
                    one.last_stored_at_ms,
                )
                for name, reply in replies.by_broker
                for one in reply.queues
            ),
            replies.unreachable,
            tuple(_created_at(name, reply) for name, reply in replies.by_broker),
        )

    async def route(self, topic: str) -> TopicRoute:
        """Return the route of a topic, as a NameServer sends it to clients.

        Raises:
            TopicNotFound: No broker has the topic.
        """
        request = nameserver.GetTopicRouteRequest(topic=check_topic(topic))
        reply = await self._names.call(GET_TOPIC_ROUTE, request)
        return route_from_pb(topic, reply.route)

    async def offsets_at(
        self, topic: str, at_ms: int, *, upper: bool = False
    ) -> BrokerList[tuple[MessageQueue, int]]:
        """Return each queue's offset of the first message stored at or after `at_ms`.

        Args:
            topic: An existing topic.
            at_ms: Unix milliseconds.
            upper: Return the offset of the last message stored at or before `at_ms` instead.

        Raises:
            TopicNotFound: No broker has the topic.
            Unreachable: No broker that answers has the topic, and some gave no answer; names them.
            UsageError: `at_ms` is no time in Unix milliseconds.
        """
        at_ms = check_time_ms("at_ms", at_ms)
        described = admin.DescribeTopicRequest(topic=check_topic(topic))
        boundary = admin.UPPER if upper else admin.LOWER

        async def offsets(
            data: BrokerData, connection: Connection
        ) -> list[tuple[MessageQueue, int]]:
            found: list[tuple[MessageQueue, int]] = []
            for one in (await self._call(connection, DESCRIBE_TOPIC, described)).queues:
                request = admin.QueryOffsetByTimeRequest(
                    topic=topic, queue_id=one.queue_id, at_ms=at_ms, boundary=boundary
                )
                reply = await self._call(connection, QUERY_OFFSET_BY_TIME, request)
                found.append((MessageQueue(topic, data.broker_name, one.queue_id), reply.offset))
            return found

        replies = await self._ask_each(offsets, unknown=(TopicNotFound,))
        if not replies.by_broker:
            raise _no_topic(topic)
        return BrokerList(chain.from_iterable(replies.answers), replies.unreachable)


def _no_topic(topic: str) -> RefusedError:
    return refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic {topic!r} is on no broker")


def _created_at(broker_name: str, reply: admin.DescribeTopicReply) -> TopicCreatedAt:
    log_offset = reply.created_log_offset if reply.HasField("created_log_offset") else None
    return TopicCreatedAt(broker_name, log_offset, reply.created_at_ms)


def _checked(config: TopicConfig) -> common.TopicConfig:
    """Convert `config` to its wire form.

    Raises:
        UsageError: The name or a number is illegal.
    """
    try:
        return topic_config_to_pb(check_topic_config(config))
    except ValueError as error:  # beyond the range of the field
        raise UsageError(f"topic {config.topic!r}: {error}") from error


def _topic_or_error(config: TopicConfig) -> common.TopicConfig | UsageError:
    try:
        return _checked(config)
    except UsageError as error:
        return error
