"""The consumer that asks: reads the queues it is told to, from where it is told to."""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from typing import Final

from ternmq_client.config import ClientConfig, nameserver_texts
from ternmq_client.instance import ClientInstance
from ternmq_consumer.config import PullConsumerConfig
from ternmq_consumer.fetched_queue import FetchedQueue
from ternmq_consumer.flow_control import Window
from ternmq_consumer.offset_store import OffsetStore
from ternmq_consumer.pull_link import PullLinks
from ternmq_consumer.starting_points import StartingPoints, first_start
from ternmq_model.errors import ClosedError, CorruptRecord, RefusedError, TopicNotFound, UsageError
from ternmq_model.names import check_group
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_model.stored_message import StoredMessage
from ternmq_model.subscription import ALL_TAGS, parse_subscription
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting.contracts import DESCRIBE_TOPIC
from ternmq_remoting.environment import Environment
from ternmq_runtime.lifecycle import Lifecycle
from ternmq_runtime.service import Job, JobRunner

POLL_MESSAGES_MAX: Final = 4096
"""Most messages of one `poll`, unless it says otherwise."""

_STALE_INTERVAL_S: Final = 20.0


class PullConsumer(Lifecycle):
    """Reads assigned queues, between `async with` and its end.

    It is no member of a group and shares nothing: every queue of `assign` is read from its
    position on. Messages that `poll` has returned are behind the position; `commit` tells the
    brokers the positions under the group's name, from which `assign` begins the next time.

    One task at a time may poll. Leaving commits nothing.

    Args:
        group: Under whose name offsets are kept; empty = none are.
        nameserver: `HOST:PORT`, or several; overrides what `client_config` says.
        config: How to consume.
        client_config: How to find and talk to services.
        env: The seams; None = the real world.

    Raises:
        IllegalName: The group's name.

    Source:
        RocketMQ `DefaultLitePullConsumer`.
    """

    def __init__(
        self,
        group: str = "",
        *,
        nameserver: str | Sequence[str] | None = None,
        config: PullConsumerConfig | None = None,
        client_config: ClientConfig | None = None,
        env: Environment | None = None,
    ) -> None:
        self._group = check_group(group) if group else ""
        self._config = config or PullConsumerConfig()
        client = client_config or ClientConfig()
        if nameserver is not None:
            client = replace(client, nameservers=nameserver_texts(nameserver))
        self._client = ClientInstance(client, env=env)
        self._fetched: dict[MessageQueue, FetchedQueue] = {}
        self._new: dict[MessageQueue, None] = {}
        """Assigned queues that no poll has seen yet, or not since they were gone."""
        self._gone: dict[MessageQueue, RefusedError] = {}
        """Queues whose broker has them no more, until a poll has said so."""
        self._ready: deque[FetchedQueue] = deque()
        self._arrived = asyncio.Event()
        self._opened: tuple[PullLinks, OffsetStore, StartingPoints] | None = None

    async def _open(self, stack: AsyncExitStack) -> None:
        if self._opened is not None:
            raise ClosedError("a consumer is entered once")
        client = await stack.enter_async_context(self._client)
        links = PullLinks(
            client.env, client, client.tasks, client_id=client.client_id, group=self._group
        )
        timeout_s = client.config.request_timeout_s
        offsets = OffsetStore(
            client, group=self._group, client_id=client.client_id, timeout_s=timeout_s
        )
        config = self._config
        first = first_start(config.consume_from, config.consume_at_ms, client.env.clock)
        starting_points = StartingPoints(client, offsets, first, timeout_s=timeout_s)

        async def renew_stale() -> bool:
            links.renew_stale()
            return False

        await stack.enter_async_context(
            JobRunner(Job(name="renew-stale", interval_s=_STALE_INTERVAL_S, step=renew_stale))
        )
        self._opened = links, offsets, starting_points
        stack.callback(self.assign, ())

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of `topic` that may be read, sorted.

        Raises:
            TopicNotFound: No NameServer knows it.
            TransportError: No NameServer answers.
        """
        return (await self._client.routes.route(topic)).read_queues()

    def assign(self, queues: Iterable[MessageQueue], expression: str = ALL_TAGS) -> None:
        """Read these queues and no others.

        One that was assigned before goes on where it is. A new one begins where `seek` says, else
        at the group's offset, else where `config.consume_from` says; the first `poll` finds out.

        Args:
            queues: Of any topics.
            expression: Tags that are wanted of the new ones: `*`, or `a || b`.

        Raises:
            UsageError: The expression names no tag, or `queues` are not queues.
        """
        given: object = queues
        if isinstance(given, str):  # whoever does not check types learns it here
            raise UsageError(
                f"assign takes queues, not a topic: assign(await consumer.queues({queues!r}))"
            )
        now_ms = self._client.env.clock.wall_ms()
        wanted = dict.fromkeys(queues)
        new = {
            queue: parse_subscription(queue.topic, expression, version_ms=now_ms)
            for queue in wanted
            if queue not in self._fetched
        }
        for queue in self._fetched.keys() - wanted.keys():
            self._fetched.pop(queue).stop()
            self._new.pop(queue, None)
            self._gone.pop(queue, None)
            self._parts[1].forget((queue,))
        config = self._config
        self._new.update(dict.fromkeys(new))
        for queue, subscription in new.items():
            self._fetched[queue] = FetchedQueue(
                queue,
                subscription,
                Window(config.pull_threshold_messages, config.pull_threshold_bytes),
                check_crc=config.check_crc,
                on_ready=self._offer,
                on_gone=self._lose,
            )

    def assignment(self) -> list[MessageQueue]:
        """Return the assigned queues, sorted."""
        return sorted(self._fetched)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Let the next message of `queue` be the one at `offset`, or the first after it.

        An offset before the first message or after the last one is corrected by the broker to
        the nearest that is.

        Raises:
            UsageError: The queue is not assigned, or the offset is negative.
        """
        if offset < 0:
            raise UsageError(f"{queue}: offset {offset} is negative")
        fetched = self._assigned(queue)
        links, offsets, _ = self._parts
        if fetched.position is None:
            offsets.begin(queue, QueueOffset(offset), None)
        offsets.restart(queue, QueueOffset(offset))
        fetched.start(links, QueueOffset(offset))

    async def seek_to_first(self, *queues: MessageQueue) -> None:
        """Go to the oldest message of these queues; of all that are assigned if none is named.

        Raises:
            TransportError: A broker did not answer; queues named before are sought already.
            UsageError: A queue is not assigned.
        """
        for queue in queues or self.assignment():
            self.seek(queue, await self.min_offset(queue))

    async def seek_to_last(self, *queues: MessageQueue) -> None:
        """Go behind the newest message of these queues; of all that are assigned if none is named.

        Raises:
            TransportError: A broker did not answer; queues named before are sought already.
            UsageError: A queue is not assigned.
        """
        for queue in queues or self.assignment():
            self.seek(queue, await self.max_offset(queue))

    async def poll(
        self, *, timeout_s: float = 1.0, messages_max: int = POLL_MESSAGES_MAX
    ) -> list[StoredMessage]:
        """Return the next messages of the assigned queues, waiting for the first one.

        Those of one queue come in the order of their offsets; the queues take turns. Cancelling
        is safe: what was not returned is returned by the next call.

        Args:
            timeout_s: How long to wait, once it is known where to begin in every queue. 0 = give
                what is there.
            messages_max: Most messages, 1 or more.

        Returns:
            Nothing when `timeout_s` is over.

        Raises:
            CorruptRecord: What the broker sent of one queue is broken. The positions stay; the
                next call goes on, with that queue read again.
            TopicNotFound: A queue, which it names, is gone, with what was read ahead of it and with
                its position. It stays assigned: once it exists again, the next call begins it as
                if it were newly assigned; until then each raises this. `assign` others to go on.
            TransportError: It could not be found out where to begin in a queue.
            UsageError: No queue is assigned.
        """
        if not self._fetched:
            raise UsageError("assign queues before you poll")
        if messages_max < 1:
            raise UsageError(f"messages_max={messages_max}: must be 1 or more")
        self._tell_gone()
        if self._new:
            await self._begin_new()
        # One who polls in a loop must not keep what reads ahead, and heartbeats, from their turn.
        await asyncio.sleep(0)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not (found := self._take(messages_max)):
                    self._tell_gone()
                    self._arrived.clear()
                    await self._arrived.wait()
                return found
        return []

    def position(self, queue: MessageQueue) -> QueueOffset | None:
        """Return the offset of the next message; None before the first `poll` has found it out.

        Raises:
            UsageError: The queue is not assigned.
        """
        return self._assigned(queue).position

    async def commit(self) -> bool:
        """Tell the brokers all positions that they do not have yet.

        After a `seek` backwards, lower offsets than before are kept too.

        Returns:
            Whether the brokers have all positions now. If one did not answer, or refused (the log
            says why: another consumer of the group may be further), the next call tries again.

        Raises:
            UsageError: The consumer has no group.
        """
        self._check_group("commit")
        _, offsets, _ = self._parts
        for queue, fetched in self._fetched.items():
            if fetched.position is not None:
                offsets.place(queue, fetched.position)
        return await offsets.commit()

    async def committed(self, queue: MessageQueue) -> QueueOffset | None:
        """Return the group's offset as the broker has it; None = never committed.

        Raises:
            TransportError: The broker did not answer.
            UsageError: The consumer has no group.
        """
        self._check_group("have an offset")
        await self._client.routes.route(queue.topic)
        return await self._parts[1].query(queue)

    async def min_offset(self, queue: MessageQueue) -> QueueOffset:
        """Return the offset of the oldest message of `queue`.

        Raises:
            TopicNotFound: Nobody has the topic.
            TransportError: The broker did not answer.
        """
        return QueueOffset((await self._status(queue)).min_offset)

    async def max_offset(self, queue: MessageQueue) -> QueueOffset:
        """Return the offset that the next message of `queue` will have.

        Raises:
            TopicNotFound: Nobody has the topic.
            TransportError: The broker did not answer.
        """
        return QueueOffset((await self._status(queue)).max_offset)

    async def _begin_new(self) -> None:
        """Learn who serves newly assigned queues, and where to begin in those not sought."""
        links, offsets, starting_points = self._parts
        for queue in list(self._new):
            await self._client.routes.route(queue.topic)
            fetched = self._fetched.get(queue)
            if fetched is not None and fetched.position is None:
                start, committed = await starting_points.find(queue)
                if fetched.position is None and self._fetched.get(queue) is fetched:
                    offsets.begin(queue, start, committed)
                    fetched.start(links, start)
            self._new.pop(queue, None)

    def _take(self, count_max: int) -> list[StoredMessage]:
        """Return what is there, at most `count_max` messages, queue by queue in turn."""
        found: list[StoredMessage] = []
        while self._ready and len(found) < count_max:
            fetched = self._ready.popleft()
            fetched.is_listed = False
            if not fetched.has_something:
                continue  # sought or dropped since it was listed
            try:
                part = fetched.take(count_max - len(found))
            except CorruptRecord:
                if found:
                    # It is read again and comes up again if it stays broken.
                    return found
                raise
            if fetched.has_something:
                self._offer(fetched)
            found = found + part if found else part
        return found

    def _lose(self, fetched: FetchedQueue, error: RefusedError) -> None:
        """Forget where a queue was that is gone; the next poll says so."""
        queue = fetched.queue
        self._parts[1].forget((queue,))
        self._client.ask_route_again(queue.topic)
        self._new[queue] = None
        self._gone[queue] = error
        self._arrived.set()

    def _tell_gone(self) -> None:
        for queue in self._gone:
            error = self._gone.pop(queue)
            remark = f"queue {queue} is gone: {error.remark}"
            raise TopicNotFound(ResponseCode.TOPIC_NOT_EXIST, remark, error.peer)

    def _offer(self, fetched: FetchedQueue) -> None:
        if not fetched.is_listed:
            fetched.is_listed = True
            self._ready.append(fetched)
        self._arrived.set()

    async def _status(self, queue: MessageQueue) -> admin.QueueStatus:
        await self._client.routes.route(queue.topic)
        connection = await self._client.broker(queue.broker_name)
        reply = await connection.call(
            DESCRIBE_TOPIC,
            admin.DescribeTopicRequest(topic=queue.topic),
            timeout_s=self._client.config.request_timeout_s,
        )
        for status in reply.queues:
            if status.queue_id == queue.queue_id:
                return status
        return admin.QueueStatus(queue_id=queue.queue_id)

    def _assigned(self, queue: MessageQueue) -> FetchedQueue:
        fetched = self._fetched.get(queue)
        if fetched is None:
            raise UsageError(f"{queue} is not assigned")
        return fetched

    def _check_group(self, verb: str) -> None:
        if not self._group:
            raise UsageError(f"a consumer without a group cannot {verb}")

    @property
    def _parts(self) -> tuple[PullLinks, OffsetStore, StartingPoints]:
        if self._opened is None:
            raise ClosedError("the consumer is not open: use it inside `async with`")
        return self._opened
