"""The pull consumer, which reads assigned or subscribed queues when it is polled."""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Final

from ternmq_client.config import ClientConfig, checked_config, resolve_client
from ternmq_client.instance import ClientInstance
from ternmq_client.reply_message import ReplyingClient
from ternmq_consumer.config import PullConsumerConfig
from ternmq_consumer.offsets.consume_from_where import StartOffsets, consume_from_policy
from ternmq_consumer.offsets.offset_resets import resets_of
from ternmq_consumer.offsets.remote_offset_store import RemoteOffsetStore
from ternmq_consumer.pull.fetched_queue import FetchedQueue
from ternmq_consumer.pull.group_membership import PullMembership
from ternmq_consumer.pull.pull_assignment import (
    PullContext,
    RebalanceCallback,
    RebalanceCallbacks,
    commit_settled,
)
from ternmq_consumer.pull.pull_queues import PullQueues
from ternmq_consumer.pull.seeking_pull_consumer import SeekingPullConsumer
from ternmq_consumer.pull_stream.pull_links import PullLinks
from ternmq_consumer.rebalance.unreadable_brokers import UnreadableBrokers
from ternmq_consumer.subscriptions import (
    SubscriptionExpression,
    Subscriptions,
    subscription_to,
    subscriptions_by_topic,
)
from ternmq_model.arguments import check_function, check_seconds, is_kind, is_whole
from ternmq_model.errors import ClosedError, RefusedError, TopicNotFound, Unreachable, UsageError
from ternmq_model.names import check_group, check_topic
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_model.stored_message import StoredMessage
from ternmq_model.subscription import ALL_TAGS
from ternmq_remoting.environment import Environment
from ternmq_runtime.lifecycle import Lifecycle
from ternmq_runtime.service import Job, JobRunner

POLL_MESSAGES_MAX: Final = 4096
"""Most messages of one `poll`, unless it says otherwise."""

_STALE_INTERVAL_S: Final = 20.0

_CALLBACKS_WAIT_S: Final = 10.0
"""Time that leaving waits for `on_revoked`."""


class PullConsumer(SeekingPullConsumer, ReplyingClient, Lifecycle):
    """Reads queues when it is asked to, between `async with` and its end.

    With `assign` it reads exactly the queues that it is given; it is then no member of a group, and
    shares nothing. With `subscribe` it is a member that shares the queues of its topics with the
    others, as push consumers do. Either, not both.

    Messages that `poll` has returned are behind the position of their queue. `commit` tells the
    brokers the positions under the group's name, from which this or another consumer begins the
    next time. With `config.auto_commit` the consumer does it by itself; what the last poll returned
    counts as dealt with when the next one is called. Otherwise leaving commits nothing. Leaving
    waits for `on_revoked` for up to 10 s, and for brokers that hang `request_timeout_s` and 1 s.

    One task at a time may poll.

    Args:
        group: Under whose name offsets are kept, and whose member it is; empty = none are.
        nameserver: `HOST:PORT`, several separated by `;` or `,`, or a sequence of such. None = as
            in `client`.
        config: How to consume.
        client: How to find and talk to services.
        env: The seams; None = the real world.
        client_config: The old name of `client`, with a deprecation warning.

    Raises:
        IllegalName: The group's name.
        UsageError: Offsets are to be committed by themselves, and there is no group.
        ConfigError: A NameServer's address is illegal, an argument has another type, or
            `nameserver` and `client` name different NameServers.

    Source:
        RocketMQ `DefaultLitePullConsumer`.
    """

    def __init__(
        self,
        group: str = "",
        *,
        nameserver: str | Sequence[str] | None = None,
        config: PullConsumerConfig | None = None,
        client: ClientConfig | None = None,
        env: Environment | None = None,
        client_config: ClientConfig | None = None,
    ) -> None:
        self._group = check_group(group) if group else ""
        self._unreadable = UnreadableBrokers()
        self._config = checked_config("config", config, PullConsumerConfig)
        if self._config.auto_commit:
            self._check_group("commit by itself")
        client = resolve_client(nameserver, client, deprecated=client_config)
        queues = PullQueues(self._config, self._lose, self._refuse)
        super().__init__(ClientInstance(client, env=env), queues)
        self._new: dict[MessageQueue, None] = {}
        """Assigned queues that no poll has seen yet, or not since they were gone."""
        self._gone: dict[MessageQueue, RefusedError] = {}
        """Queues whose broker has them no more, until a poll has said so."""
        self._failures: deque[Exception] = deque()
        """Errors of callbacks, and refusals of brokers, until a poll raises them."""
        self._commit_due_ms = 0
        self._committing: asyncio.Task[bool] | None = None
        self._opened: PullContext | None = None
        self._membership: PullMembership | None = None

    async def _open(self, stack: AsyncExitStack) -> None:
        if self._opened is not None:
            raise ClosedError("a consumer is entered once")
        client, config = await stack.enter_async_context(self._client), self._config
        links = PullLinks(
            client.env, client, client.tasks, client_id=client.client_id, group=self._group
        )
        timeout_s = client.config.request_timeout_s
        offsets = RemoteOffsetStore(
            client,
            group=self._group,
            client_id=client.client_id,
            timeout_s=timeout_s,
            on_reset=self._go_on,
        )
        client.on_reader_moved(lambda broker_name, _: offsets.tell_again(broker_name))
        first = consume_from_policy(config.consume_from, config.consume_at_ms, client.env.clock)
        start_offsets = StartOffsets(client, offsets, first, timeout_s=timeout_s)
        self._opened = PullContext(links, offsets, start_offsets, self._seeks.settled)
        self._commit_due_ms = client.env.clock.monotonic_ms() + int(config.auto_commit_s * 1000)
        self._membership = membership = PullMembership(
            client, self._queues, self._opened, self._group, config, self._fail, self._refuse
        )
        stack.callback(
            client.sessions.on_command("offsets_reset", resets_of(self._group, self._take_reset))
        )
        stack.push_async_callback(self._close)

        async def renew_stale() -> bool:
            links.renew_stale()
            return False

        await stack.enter_async_context(
            JobRunner(Job(name="renew-stale", interval_s=_STALE_INTERVAL_S, step=renew_stale))
        )
        await stack.enter_async_context(membership)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of `topic` that may be read, sorted.

        Brokers that do not permit it are left out, and logged.

        Raises:
            IllegalName: The topic's name.
            PermissionRefused: There is none: the topic may not be read.
            TopicNotFound: No NameServer knows it.
            TransportError: No NameServer answers.
        """
        route = await self._client.routes.route(check_topic(topic))
        queues = route.read_queues()
        if not queues:
            raise route.read_refusal()
        self._unreadable.note(route)
        return queues

    def assign(
        self, queues: Iterable[MessageQueue], expression: SubscriptionExpression = ALL_TAGS
    ) -> None:
        """Read these queues and no others.

        One that was assigned before goes on where it is. A new one begins where `seek` says, else
        at the group's offset, else where `config.consume_from` says; the first `poll` finds out.

        Args:
            queues: Of any topics.
            expression: What is wanted of the new ones: tags, such as `*` or `a || b`, or a
                condition on properties: `sql("amount > 100")`.

        Raises:
            UsageError: The expression names no tag or is no condition, `queues` are not queues, or
                the consumer is subscribed.
        """
        given: object = queues
        if isinstance(given, str):  # whoever does not check types learns it here
            raise UsageError(
                f"assign takes queues, not a topic: assign(await consumer.queues({queues!r})), "
                f"or subscribe({queues!r}) to share them"
            )
        if self._is_subscribed:
            raise UsageError("the consumer is subscribed: unsubscribe before you assign queues")
        if not is_kind(given, Iterable) or is_kind(given, MessageQueue):
            raise UsageError(f"assign takes a list of queues, not {queues!r}")
        now_ms = self._client.env.clock.wall_ms()
        wanted = dict.fromkeys(queues)
        if others := [each for each in wanted if not is_kind(each, MessageQueue)]:
            raise UsageError(f"assign takes a list of queues; {others[0]!r} is none")
        new = {
            queue: subscription_to(queue.topic, expression, version_ms=now_ms)
            for queue in wanted
            if self._queues.find(queue) is None
        }
        for queue in self._queues.names:
            if queue not in wanted:
                self._queues.remove(queue)
                self._new.pop(queue, None)
                self._gone.pop(queue, None)
                self._context.offsets.forget((queue,))
        self._new.update(dict.fromkeys(new))
        for queue, subscription in new.items():
            self._queues.add(queue, subscription)

    async def subscribe(
        self,
        topics: Subscriptions,
        *,
        on_assigned: RebalanceCallback | None = None,
        on_revoked: RebalanceCallback | None = None,
    ) -> None:
        """Join the group, and read this member's share of the queues of `topics` from now on.

        Returns when the group is joined; `assigned` waits for the first share. A queue begins at
        the group's offset, else where `config.consume_from` says. A callback that raises has its
        error raised by the next `poll`.

        Args:
            topics: A topic, tags or conditions by topic, or subscriptions, as for `PushConsumer`.
                All members of the group must say the same.
            on_assigned: Called with queues that are new, before anything of them is read: it may
                `seek`.
            on_revoked: Called with queues that go to another member, that were deleted, or that are
                given up by leaving. Nothing of them is polled any more; it may `commit` where they
                are. Both may be `async def`.

        Raises:
            UsageError: The consumer has no group, has queues assigned, or is subscribed already.
            IllegalName: A topic's name.
            RefusedError: A broker refuses this client.
            Unreachable: No NameServer answers.
        """
        self._check_group("subscribe")
        by_topic = subscriptions_by_topic(topics)
        if self._is_subscribed:
            raise UsageError("the consumer is subscribed already: unsubscribe first")
        if len(self._queues):
            raise UsageError("queues are assigned: assign(()) before you subscribe")
        check_function("on_assigned", on_assigned, 1, optional=True)
        check_function("on_revoked", on_revoked, 1, optional=True)
        callbacks = RebalanceCallbacks(on_assigned, on_revoked)
        await self._member.subscribe(by_topic, callbacks)

    async def unsubscribe(self) -> None:
        """Drop every queue, calling `on_revoked`, and leave the group. Safe to repeat."""
        await self._member.unsubscribe()

    async def assigned(self) -> None:
        """Wait until this member owns its first share of the queues, which may be none.

        Raises:
            UsageError: The consumer is not subscribed.
        """
        await self._member.assigned()

    def assignment(self) -> list[MessageQueue]:
        """Return the queues that are read now, sorted."""
        return self._queues.names

    def pause(self, *queues: MessageQueue) -> None:
        """Suspend polling of these queues until `resume`. They stay assigned.

        What is read ahead of them stays, and reading ahead goes on up to its bound.

        Raises:
            UsageError: A queue is not assigned; those named before it are paused.
        """
        for queue in queues:
            self._queues.pause(queue)

    def resume(self, *queues: MessageQueue) -> None:
        """Resume paused queues. A queue that is not paused is unchanged.

        Raises:
            UsageError: A queue is not assigned; those named before it are resumed.
        """
        for queue in queues:
            self._queues.resume(queue)

    def paused(self) -> list[MessageQueue]:
        """Return the paused queues, sorted."""
        return self._queues.paused

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
            PermissionRefused: A queue, or a whole topic, may not be read, or the group may not
                consume. Brokers are asked again every few seconds, and one call after each refusal
                raises this; the others serve the other queues. Positions stay.
            RefusedError: A broker does not take the condition that a queue is read by. It is asked
                again every few seconds.
            TopicNotFound: An assigned queue, which it names, is gone, with what was read ahead of
                it and with its position. It stays assigned: once it exists again, the next call
                begins it as if it were newly assigned; until then each raises this. `assign` others
                to go on.
            TransportError: It could not be found out where to begin in an assigned queue, or where
                a seek goes that was not awaited.
            UsageError: No queue is assigned and no topic subscribed.
            Exception: What a callback given to `subscribe` raised.
        """
        if not len(self._queues) and not self._is_subscribed:
            raise UsageError("assign queues, or subscribe, before you poll")
        timeout_s = (
            timeout_s if timeout_s == float("inf") else check_seconds("timeout_s", timeout_s)
        )
        if not is_whole(messages_max) or messages_max < 1:
            raise UsageError(f"messages_max={messages_max!r}: must be 1 or more, a whole number")
        self._check_owner()
        if self._config.auto_commit:
            self._settle()
        await self._seeks.settled()
        self._raise_news()
        if self._new:
            await self._begin_new()
        # One who polls in a loop must not keep what reads ahead, and heartbeats, from their turn.
        await asyncio.sleep(0)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while True:
                    await self._seeks.settled()  # what was read before is not given out meanwhile
                    if found := self._queues.take(messages_max):
                        return found
                    self._raise_news()
                    self._queues.arrived.clear()
                    await self._queues.arrived.wait()
        return []

    async def commit(self) -> bool:
        """Send the brokers all positions that they do not have yet.

        After a `seek` backwards, lower offsets than before are kept too.

        Returns:
            Whether the brokers have all positions now. If one did not answer, or refused (the log
            says why: another consumer of the group may be further), the next call tries again.

        Raises:
            UsageError: The consumer has no group.
        """
        self._check_group("commit")
        self._note_positions()
        return await self._context.offsets.commit()

    async def committed(self, queue: MessageQueue) -> QueueOffset | None:
        """Return the group's offset as the broker has it; None = never committed.

        A broker of an earlier version tells a group that is new to a young queue 0 instead.

        Raises:
            TransportError: The broker did not answer.
            UsageError: The consumer has no group.
        """
        self._check_group("have an offset")
        await self._client.routes.route(queue.topic)
        told = await self._context.offsets.query(queue)
        return None if told is None or told.is_kept is False else told.offset

    def _note_positions(self) -> None:
        """Include every position in the next commit."""
        for fetched in self._queues.all:
            if fetched.position is not None:
                self._context.offsets.place(fetched.queue, fetched.position)

    def _settle(self) -> None:
        """Record the messages of earlier polls as handled, and commit them when that is due."""
        self._queues.settle()
        now_ms = self._client.env.clock.monotonic_ms()
        if now_ms < self._commit_due_ms or (self._committing and not self._committing.done()):
            return
        self._commit_due_ms = now_ms + int(self._config.auto_commit_s * 1000)
        self._note_positions()
        self._committing = self._client.tasks.spawn(self._context.offsets.commit(), "auto-commit")

    async def _close(self) -> None:
        await self._member.leave(_CALLBACKS_WAIT_S)
        if self._config.auto_commit:
            await commit_settled(self._context.offsets, self._queues.all)
        for queue in self._queues.names:
            self._queues.remove(queue)

    async def _begin_new(self) -> None:
        """Query the brokers of newly assigned queues, and start offsets of those not sought."""
        context = self._context
        for queue in list(self._new):
            await self._client.routes.route(queue.topic)
            fetched = self._queues.find(queue)
            if fetched is not None and fetched.position is None:
                start, committed = await context.start_offsets.find(queue)
                if fetched.position is None and self._queues.find(queue) is fetched:
                    context.offsets.begin(queue, start, committed)
                    await context.offsets.commit([queue])
                    if not context.offsets.has_begun(queue):
                        raise Unreachable(f"{queue}: where the group begins is not committed")
                    if fetched.position is None and self._queues.find(queue) is fetched:
                        now_at = context.offsets.at(queue)  # somebody may have set it meanwhile
                        fetched.place(start if now_at is None else now_at)
            if self._queues.find(queue) is fetched and fetched and fetched.position is not None:
                fetched.start(context.links, fetched.position)
            self._new.pop(queue, None)

    def _is_new(self, queue: MessageQueue) -> bool:
        return queue in self._new

    def _take_reset(self, queue: MessageQueue, offset: QueueOffset, version: int) -> None:
        if self._context.offsets.reset(queue, offset, version):
            self._go_on(queue, offset)
        else:
            self._member.take_reset(queue, offset, version)

    def _go_on(self, queue: MessageQueue, offset: QueueOffset) -> None:
        """Go on where somebody else has set the group's offset."""
        fetched = self._queues.find(queue)
        if fetched is not None:
            fetched.start(self._context.links, offset)

    def _lose(self, fetched: FetchedQueue, error: RefusedError) -> None:
        """Forget where a queue was that is gone; of an assigned one the next poll says so."""
        queue = fetched.queue
        self._context.offsets.forget((queue,))
        self._client.ask_route_again(queue.topic)
        if self._is_subscribed:
            self._member.lose(queue)
        else:
            self._new[queue] = None
            self._gone[queue] = error
            self._queues.arrived.set()

    def _fail(self, error: Exception) -> None:
        """Store the error of a callback for the next poll."""
        self._failures.append(error)
        self._queues.arrived.set()

    def _refuse(self, error: RefusedError) -> None:
        """Store the refusal of a queue for the next poll: once, however many queues there are."""
        if not any(isinstance(each, RefusedError) for each in self._failures):
            self._fail(error)

    def _raise_news(self) -> None:
        """Raise what a poll has to tell, one thing at a time."""
        if self._failures:
            raise self._failures.popleft()
        for queue in self._gone:
            error = self._gone.pop(queue)
            remark = f"queue {queue} is gone: {error.remark}"
            raise TopicNotFound(ResponseCode.TOPIC_NOT_EXIST, remark, error.peer)

    def _check_group(self, verb: str) -> None:
        if not self._group:
            raise UsageError(f"a consumer without a group cannot {verb}")

    @property
    def _is_subscribed(self) -> bool:
        return self._membership is not None and self._membership.is_subscribed

    @property
    def _member(self) -> PullMembership:
        if self._membership is None:
            raise ClosedError("the consumer is not open: use it inside `async with`")
        self._check_owner()
        return self._membership

    @property
    def _context(self) -> PullContext:
        if self._opened is None:
            raise ClosedError("the consumer is not open: use it inside `async with`")
        self._check_owner()
        return self._opened
