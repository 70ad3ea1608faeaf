"""Reader of a cluster's topics, queues, their ends, offsets by time, and bytes."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Final, NamedTuple, TypeVar

from ternmq_client.config import ClientConfig
from ternmq_client.instance import ClientInstance
from ternmq_client.retry_timeout import RETRY_TIMEOUT_S, RetryTimeout, nobody_registered
from ternmq_client.routes.route_cache import LOSS_GRACE_MS
from ternmq_consumer.offsets.offset_lookup import QueueRange
from ternmq_consumer.rebalance.unreadable_brokers import UnreadableBrokers
from ternmq_consumer.scan import RangeToMeasure, given_up_when_broken, measure
from ternmq_model.errors import (
    RefusedError,
    TernError,
    TopicNotFound,
    TransportError,
    Unreachable,
    refusal,
)
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import MASTER_ID, TopicRoute
from ternmq_pipeline.offsets import OffsetRange
from ternmq_pipeline.options import Assign, SubscribePattern, TopicChoice, chosen_topics
from ternmq_pipeline.planning import ClusterSnapshot, RangeSize
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1.nameserver_pb2 import GetClusterRequest
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc import Rep, Req, UnaryRpc
from ternmq_remoting.service_methods import (
    DESCRIBE_TOPIC,
    GET_CLUSTER,
    QUERY_OFFSET_BY_TIME,
)
from ternmq_runtime.lifecycle import Lifecycle

T = TypeVar("T")

logger = logging.getLogger(__name__)

UNDER_WAY_MAX: Final = 32
"""Most concurrent requests to brokers."""


class _Answer(NamedTuple):
    """Answer of one broker about one topic."""

    ranges: dict[MessageQueue, QueueRange]
    is_slave: bool
    store_id: str
    """Id of the store whose bytes its log holds; "" when it does not tell."""

    created: int | None
    """End of its log when the topic was created; None when it does not tell."""


class ClusterReader(Lifecycle):
    """Reader of the topics, queues and offsets of a cluster, open inside `async with`.

    A question that nobody answers is asked again, see `ternmq_client.retry_timeout`.

    Args:
        config: Where the NameServers are, and how long one request may take.
        retry_timeout_s: For so long; 0 = not at all.
        env: The seams. None = the real world, opened and closed with this.
    """

    def __init__(
        self,
        config: ClientConfig | None = None,
        *,
        retry_timeout_s: float = RETRY_TIMEOUT_S,
        env: Environment | None = None,
    ) -> None:
        self.client = ClientInstance(config, env=env)
        self._unreadable = UnreadableBrokers()
        self._retry_timeout_s = retry_timeout_s
        self._silent_at_ms: int | None = None
        """Time of the last look at which no NameServer knew any broker."""
        self._under_way = asyncio.Semaphore(UNDER_WAY_MAX)
        self._gone: set[MessageQueue] = set()
        """Queues that were expected and are known not to come back."""

    async def _open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self.client)

    async def snapshot(
        self,
        choice: TopicChoice,
        *,
        include_system: bool = False,
        expected: Iterable[MessageQueue] = (),
        brokers: Collection[str] | None = None,
    ) -> ClusterSnapshot:
        """Return what the queues that `choice` takes have now.

        Args:
            choice: Which ones.
            include_system: A pattern takes topics that brokers made for themselves too.
            expected: Queues that were there before. One that nobody tells of is asked for again
                for five seconds: a NameServer that has just started does not know all yet.
            brokers: Those that are waited for, as long as for any answer, while no NameServer
                names them; then what the others have is returned. None = those that `choice`
                names, that a route has named since the question was asked, or that have left in
                order lately; then it is an error.

        Raises:
            TransportError: No NameServer answers, or none knows any broker, or a broker of a topic
                does not answer, or is not there any more or yet.
            RefusedError: One said no; or a queue that is expected or named, or every queue of a
                topic that is named, may not be read.
        """
        wanted = set(expected)
        seen: set[str] | None = None
        if brokers is None:
            brokers = seen = {queue.broker_name for queue in _named(choice)}
        retry_timeout = self._retry_timeout(was_there=bool(wanted))
        while True:
            found: ClusterSnapshot | None = None
            try:
                found = await self._snapshot(choice, include_system, wanted, seen)
                failure = self._doubt(found, wanted, brokers)
                if failure is None:
                    return found
            except TernError as error:
                failure = error
            try:
                await _pause(retry_timeout, failure)
            except TernError:
                if found is None or not (wanted or found.brokers):
                    raise
                if seen is not None and seen - found.brokers:
                    raise
                if absent := wanted - found.ranges.keys() - self._gone:
                    self._gone |= absent
                    logger.warning("queues are gone queues=%s", ", ".join(map(str, sorted(absent))))
                return found

    def _doubt(
        self, found: ClusterSnapshot, wanted: set[MessageQueue], brokers: Collection[str]
    ) -> TernError | None:
        """Return why more than `found` may be there in a moment; None when all of it is."""
        self._gone -= found.ranges.keys()
        now_ms = self.client.env.clock.monotonic_ms()
        if not found.brokers:
            self._silent_at_ms = now_ms
            if not wanted or wanted - self._gone:
                return nobody_registered(self.client.nameservers.addresses)
        if missed := sorted(set(brokers) - found.brokers):
            return Unreachable(f"broker {', '.join(missed)}: is registered at no NameServer")
        if absent := sorted(wanted - found.ranges.keys() - self._gone):
            remark = f"nobody tells of queues {', '.join(map(str, absent))}"
            return refusal(ResponseCode.TOPIC_NOT_EXIST, remark)
        if not wanted and self._silent_at_ms is not None:
            if now_ms - self._silent_at_ms < LOSS_GRACE_MS:
                return Unreachable("brokers register again with a NameServer that was away")
            self._silent_at_ms = None
        return None

    async def offsets_at(
        self, times_ms: Mapping[MessageQueue, int]
    ) -> dict[MessageQueue, QueueOffset]:
        """Return of each queue the first message stored at its time or later.

        Args:
            times_ms: Unix milliseconds.

        Returns:
            The end of a queue where all are older.

        Raises:
            TransportError: A broker does not answer.
            RefusedError: One said no.
        """
        return await self._again(lambda: self._offsets_at(times_ms))

    async def measure(self, asked: Sequence[tuple[OffsetRange, int]]) -> list[RangeSize]:
        """Return the bytes of ranges, each up to the message that reaches its number of bytes.

        Args:
            asked: With the number of bytes, 0 = no limit.

        Returns:
            One for each, in order.

        Raises:
            TransportError: A broker does not answer.
            RefusedError: One said no.
        """
        return await self._again(lambda: self._measure(asked))

    async def find_brokers(self, topics: Iterable[str]) -> None:
        """Look up the routes of `topics`, so that `ask` finds their brokers.

        Raises:
            TransportError: No NameServer answers.
        """
        await asyncio.gather(*map(self._route, topics))

    async def ask(self, broker_name: str, rpc: UnaryRpc[Req, Rep], request: Req) -> tuple[Rep, int]:
        """Ask the member of a broker name that consumers talk to now.

        Returns:
            The reply, and the id of the member.

        Raises:
            TransportError: It does not answer; it is dialled anew next time.
            RefusedError: It said no.
        """
        async with self._under_way:
            connection = await self.client.reader(broker_name)
            identity = connection.identity
            broker_id = MASTER_ID if identity is None else identity.broker_id
            with given_up_when_broken(self.client, broker_name, connection):
                timeout_s = self.client.config.request_timeout_s
                return await connection.call(rpc, request, timeout_s=timeout_s), broker_id

    async def _snapshot(
        self,
        choice: TopicChoice,
        include_system: bool,
        expected: Collection[MessageQueue],
        seen: set[str] | None,
    ) -> ClusterSnapshot:
        try:
            left = set[str]() if seen is None else await self._left()
            brokers = await self.client.nameservers.brokers()
        except TransportError:
            self._silent_at_ms = self.client.env.clock.monotonic_ms()
            raise
        topics = await self._topics(choice, include_system)
        routes = await self._routes(topics)
        _refuse_unreadable(choice, routes, expected)
        for route in routes:
            self._unreadable.note(route)
        # A client goes on with the queues of a broker that has just left; a plan does not.
        names = {data.broker_name for data in brokers}
        queues = [
            queue for route in routes for queue in route.read_queues() if queue.broker_name in names
        ]
        routed = {queue.topic for queue in queues}
        if isinstance(choice, Assign):
            queues = sorted(set(queues) & set(choice.queues))
        if seen is not None:
            # Asked twice: a broker may leave, or come back, while routes are asked.
            left |= await self._left()
            seen |= {queue.broker_name for queue in queues}
            if not isinstance(choice, Assign):
                seen |= left
        pairs = sorted({(queue.topic, queue.broker_name) for queue in queues})
        answers = await asyncio.gather(*(self._describe(*pair) for pair in pairs))
        told = dict(zip(pairs, answers, strict=True))
        ranges: dict[MessageQueue, QueueRange] = {}
        for queue in queues:
            answer = told[queue.topic, queue.broker_name]
            if answer is None:
                continue
            if queue in answer.ranges:
                ranges[queue] = answer.ranges[queue]
            elif answer.is_slave:
                # It has not heard of the queue yet; a master that tells of none has none.
                ranges[queue] = QueueRange(QueueOffset(0), QueueOffset(0))
        return ClusterSnapshot(
            ranges,
            missing=_missing(choice, ranges, routed),
            brokers=frozenset(names - left),
            answered_by_slave=frozenset(
                name for (_, name), answer in told.items() if answer and answer.is_slave
            ),
            stores={
                name: answer.store_id
                for (_, name), answer in told.items()
                if answer and answer.store_id
            },
            created={
                pair: answer.created
                for pair, answer in told.items()
                if answer and answer.created is not None
            },
        )

    async def _left(self) -> set[str]:
        """Return the brokers that have left in order and may be back in a moment."""
        reply = await self.client.nameservers.call(GET_CLUSTER, GetClusterRequest(page_size=1))
        return set(reply.left)

    async def _topics(self, choice: TopicChoice, include_system: bool) -> Sequence[str]:
        if not isinstance(choice, SubscribePattern):
            return choice.topics
        topics = [topic async for page in self.client.nameservers.topics() for topic in page]
        return chosen_topics(choice, topics, include_system=include_system)

    async def _routes(self, topics: Iterable[str]) -> list[TopicRoute]:
        """Return the routes of those of `topics` that exist, as NameServers tell them now."""
        found = await asyncio.gather(*map(self._route, topics))
        return [route for route in found if route is not None]

    async def _route(self, topic: str) -> TopicRoute | None:
        try:
            return await self.client.routes.route_now(topic)
        except TopicNotFound:
            return None

    async def _describe(self, topic: str, broker_name: str) -> _Answer | None:
        """Return what a broker says of a topic; None when it does not have it any more."""
        request = admin.DescribeTopicRequest(topic=topic)
        try:
            reply, broker_id = await self.ask(broker_name, DESCRIBE_TOPIC, request)
        except TopicNotFound:
            if self.client.member_to_ask(broker_name) == MASTER_ID:
                return None
            remark = f"broker {broker_name}: a slave stands in and does not know {topic} yet"
            raise Unreachable(remark) from None
        ranges = {
            MessageQueue(topic, broker_name, status.queue_id): QueueRange(
                QueueOffset(status.min_offset), QueueOffset(status.max_offset)
            )
            for status in reply.queues
        }
        created = reply.created_log_offset if reply.HasField("created_log_offset") else None
        return _Answer(ranges, broker_id != MASTER_ID, reply.store_id, created)

    async def _offsets_at(
        self, times_ms: Mapping[MessageQueue, int]
    ) -> dict[MessageQueue, QueueOffset]:
        async def at(queue: MessageQueue, at_ms: int) -> QueueOffset:
            request = admin.QueryOffsetByTimeRequest(
                topic=queue.topic, queue_id=queue.queue_id, at_ms=at_ms, boundary=admin.LOWER
            )
            reply, _ = await self.ask(queue.broker_name, QUERY_OFFSET_BY_TIME, request)
            return QueueOffset(reply.offset)

        offsets = await asyncio.gather(*(at(queue, ms) for queue, ms in times_ms.items()))
        return dict(zip(times_ms, offsets, strict=True))

    async def _measure(self, asked: Sequence[tuple[OffsetRange, int]]) -> list[RangeSize]:
        wanted = [
            RangeToMeasure(offset_range.queue, offset_range.begin, offset_range.end, bytes_max)
            for offset_range, bytes_max in asked
        ]
        return [RangeSize(one.end, one.bytes) for one in await measure(self.client, wanted)]

    async def _again(self, question: Callable[[], Awaitable[T]]) -> T:
        """Ask until there is an answer, or `RetryTimeout` ends it."""
        retry_timeout = self._retry_timeout()
        while True:
            try:
                return await question()
            except TernError as error:
                failure = error
            await _pause(retry_timeout, failure)

    def _retry_timeout(self, *, was_there: bool = False) -> RetryTimeout:
        return RetryTimeout(self.client.env, self._retry_timeout_s, was_there=was_there)


async def _pause(retry_timeout: RetryTimeout, failure: TernError) -> None:
    """Wait before the question is asked again, also of a disk that could not be read just now."""
    is_broken = isinstance(failure, RefusedError) and failure.code == ResponseCode.SYSTEM_ERROR
    await retry_timeout.pause(failure, may_pass=is_broken)


def _named(choice: TopicChoice) -> tuple[MessageQueue, ...]:
    return choice.queues if isinstance(choice, Assign) else ()


def _refuse_unreadable(
    choice: TopicChoice, routes: Iterable[TopicRoute], expected: Collection[MessageQueue]
) -> None:
    """Refuse a read of what may not be read: such queues are there, and nothing of them is lost.

    Raises:
        PermissionRefused: A queue that is expected or named, or every queue of a named topic.
    """
    needed = {*expected, *_named(choice)}
    for route in routes:
        closed = route.closed_brokers()
        is_named = not isinstance(choice, SubscribePattern)
        is_needed = any(
            queue.topic == route.topic and queue.broker_name in closed for queue in needed
        )
        if is_needed or (closed and is_named and not route.read_queues()):
            remark = f"topic {route.topic!r} may not be read at {', '.join(closed)}"
            raise refusal(ResponseCode.NO_PERMISSION, remark)


def _missing(
    choice: TopicChoice, ranges: Mapping[MessageQueue, QueueRange], routed: Collection[str]
) -> frozenset[str]:
    """Return which topics and queues are named and not there. Pure.

    Args:
        choice: What is named.
        ranges: What is there of it.
        routed: Topics that exist, whichever of their queues are named.
    """
    if isinstance(choice, SubscribePattern):
        return frozenset()
    if isinstance(choice, Assign):
        absent = set(choice.queues) - ranges.keys()
        return frozenset(
            f"queue {queue}" if queue.topic in routed else f"topic {queue.topic}"
            for queue in absent
        )
    return frozenset(
        f"topic {topic}" for topic in set(choice.topics) - {each.topic for each in ranges}
    )
