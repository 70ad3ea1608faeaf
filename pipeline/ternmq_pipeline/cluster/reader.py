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
from ternmq_pipeline.options.topics import Assign, SubscribePattern, TopicChoice, chosen_topics
from ternmq_pipeline.planning.admission import RangeSize
from ternmq_pipeline.planning.snapshot import ClusterSnapshot
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
    """Id of the broker's store; "" = unknown."""

    created: int | None
    """End of the broker's log when the topic was created; None = unknown."""


class ClusterReader(Lifecycle):
    """Reader of the topics, queues and offsets of a cluster, open inside `async with`.

    A request without an answer is sent again; see `ternmq_client.retry_timeout`.

    Args:
        config: Addresses of the NameServers, and the timeout of one request.
        retry_timeout_s: Time of the retries without an answer, s; 0 = no retries.
        env: Clock, network and blocking calls. None = those of the process.
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
        """Time of the last snapshot in which no NameServer knew a broker."""
        self._under_way = asyncio.Semaphore(UNDER_WAY_MAX)
        self._gone: set[MessageQueue] = set()
        """Expected queues that are known to be deleted."""

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
        """Return a snapshot of the queues of `choice`.

        Args:
            choice: Topics or queues of the read.
            include_system: True = a pattern matches system topics too.
            expected: Queues of an earlier snapshot. The reader asks again for five seconds for a
                queue that no route names: a NameServer that has just started knows no queue.
            brokers: Brokers that must be registered. The reader waits for them up to the retry
                timeout and then returns the queues of the others. None = brokers that `choice` or
                a route names, or that left in order lately. A missing one is then an error.

        Raises:
            TransportError: No NameServer answers or knows a broker, or a broker of a topic does
                not answer or is not registered.
            RefusedError: A server refuses the request; or an expected or named queue, or every
                queue of a named topic, may not be read.
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
        """Return the reason why `found` may be incomplete; None = it is complete."""
        self._gone -= found.ranges.keys()
        now_ms = self.client.env.clock.monotonic_ms()
        if not found.brokers:
            self._silent_at_ms = now_ms
            if not wanted or wanted - self._gone:
                return nobody_registered(self.client.nameservers.addresses)
        if missed := sorted(set(brokers) - found.brokers):
            return Unreachable(f"broker {', '.join(missed)}: is registered at no NameServer")
        if absent := sorted(wanted - found.ranges.keys() - self._gone):
            remark = f"no broker has queues {', '.join(map(str, absent))}"
            return refusal(ResponseCode.TOPIC_NOT_EXIST, remark)
        if not wanted and self._silent_at_ms is not None:
            if now_ms - self._silent_at_ms < LOSS_GRACE_MS:
                return Unreachable("brokers register again with a NameServer that was away")
            self._silent_at_ms = None
        return None

    async def offsets_at(
        self, times_ms: Mapping[MessageQueue, int]
    ) -> dict[MessageQueue, QueueOffset]:
        """Return the offset of each queue's first message stored at its time or later.

        Args:
            times_ms: Time of each queue, Unix milliseconds.

        Returns:
            Offset of each queue; its end if all messages are older.

        Raises:
            TransportError: A broker does not answer.
            RefusedError: A broker refuses the request.
        """
        return await self._again(lambda: self._offsets_at(times_ms))

    async def measure(self, asked: Sequence[tuple[OffsetRange, int]]) -> list[RangeSize]:
        """Return the bytes of ranges, each up to the message that reaches its limit.

        Args:
            asked: Ranges with their limits in bytes, 0 = no limit.

        Returns:
            One size for each range, in their order.

        Raises:
            TransportError: A broker does not answer.
            RefusedError: A broker refuses the request.
        """
        return await self._again(lambda: self._measure(asked))

    async def find_brokers(self, topics: Iterable[str]) -> None:
        """Look up the routes of `topics`, so that `ask` finds their brokers.

        Raises:
            TransportError: No NameServer answers.
        """
        await asyncio.gather(*map(self._route, topics))

    async def ask(self, broker_name: str, rpc: UnaryRpc[Req, Rep], request: Req) -> tuple[Rep, int]:
        """Send a request to the member of a broker name that consumers use now.

        Returns:
            The reply, and the id of the member.

        Raises:
            TransportError: The member does not answer. The next request opens a new connection.
            RefusedError: The member refuses the request.
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
        # A client keeps the queues of a broker that has just left; a plan drops them.
        names = {data.broker_name for data in brokers}
        queues = [
            queue for route in routes for queue in route.read_queues() if queue.broker_name in names
        ]
        routed = {queue.topic for queue in queues}
        if isinstance(choice, Assign):
            queues = sorted(set(queues) & set(choice.queues))
        if seen is not None:
            # The second request finds brokers that left or came back while routes were read.
            left |= await self._left()
            seen |= {queue.broker_name for queue in queues}
            if not isinstance(choice, Assign):
                seen |= left
        pairs = sorted({(queue.topic, queue.broker_name) for queue in queues})
        answers = await asyncio.gather(*(self._describe(*pair) for pair in pairs))
        by_pair = dict(zip(pairs, answers, strict=True))
        ranges: dict[MessageQueue, QueueRange] = {}
        for queue in queues:
            answer = by_pair[queue.topic, queue.broker_name]
            if answer is None:
                continue
            if queue in answer.ranges:
                ranges[queue] = answer.ranges[queue]
            elif answer.is_slave:
                # A slave may not know a new queue yet; a queue that a master omits does not exist.
                ranges[queue] = QueueRange(QueueOffset(0), QueueOffset(0))
        return ClusterSnapshot(
            ranges,
            missing=_missing(choice, ranges, routed),
            brokers=frozenset(names - left),
            answered_by_slave=frozenset(
                name for (_, name), answer in by_pair.items() if answer and answer.is_slave
            ),
            stores={
                name: answer.store_id
                for (_, name), answer in by_pair.items()
                if answer and answer.store_id
            },
            created={
                pair: answer.created
                for pair, answer in by_pair.items()
                if answer and answer.created is not None
            },
        )

    async def _left(self) -> set[str]:
        """Return the brokers that left in order and may return soon."""
        reply = await self.client.nameservers.call(GET_CLUSTER, GetClusterRequest(page_size=1))
        return set(reply.left)

    async def _topics(self, choice: TopicChoice, include_system: bool) -> Sequence[str]:
        if not isinstance(choice, SubscribePattern):
            return choice.topics
        topics = [topic async for page in self.client.nameservers.topics() for topic in page]
        return chosen_topics(choice, topics, include_system=include_system)

    async def _routes(self, topics: Iterable[str]) -> list[TopicRoute]:
        """Return the present routes of those of `topics` that exist."""
        found = await asyncio.gather(*map(self._route, topics))
        return [route for route in found if route is not None]

    async def _route(self, topic: str) -> TopicRoute | None:
        try:
            return await self.client.routes.route_now(topic)
        except TopicNotFound:
            return None

    async def _describe(self, topic: str, broker_name: str) -> _Answer | None:
        """Return a broker's answer about a topic; None = the broker has lost the topic."""
        request = admin.DescribeTopicRequest(topic=topic)
        try:
            reply, broker_id = await self.ask(broker_name, DESCRIBE_TOPIC, request)
        except TopicNotFound:
            if self.client.member_to_ask(broker_name) == MASTER_ID:
                return None
            remark = (
                f"broker {broker_name}: a slave replaces the master and does not know {topic} yet"
            )
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
        """Repeat a request until a server answers or the retry timeout is over."""
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
    """Wait before the next request, also after a broker could not read its disk."""
    is_broken = isinstance(failure, RefusedError) and failure.code == ResponseCode.SYSTEM_ERROR
    await retry_timeout.pause(failure, may_pass=is_broken)


def _named(choice: TopicChoice) -> tuple[MessageQueue, ...]:
    return choice.queues if isinstance(choice, Assign) else ()


def _refuse_unreadable(
    choice: TopicChoice, routes: Iterable[TopicRoute], expected: Collection[MessageQueue]
) -> None:
    """Refuse to read queues without read permission: their messages are not lost.

    Raises:
        PermissionRefused: An expected or named queue, or every queue of a named topic, is closed.
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
    """Return the topics and queues that `choice` names and no broker has. Pure.

    Args:
        choice: Topics or queues of the read.
        ranges: Existing queues of `choice`.
        routed: Existing topics of `choice`.
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
