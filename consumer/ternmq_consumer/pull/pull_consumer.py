"""Pull consumer: it reads assigned or subscribed queues for `poll`."""

from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from ternmq_client.config import ClientConfig, checked_config, resolve_client
from ternmq_client.instance import ClientInstance
from ternmq_client.reply_message import ReplyingClient
from ternmq_client.telemetry.operation_key import topic_of_all
from ternmq_consumer.config import PullConsumerConfig
from ternmq_consumer.offsets.consume_from_where import StartOffsets, consume_from_policy
from ternmq_consumer.offsets.remote_offset_store import RemoteOffsetStore, resets_of
from ternmq_consumer.process_queue.running_info import (
    ProcessQueueInfo,
    RunningInfoReporter,
    facts_of,
)
from ternmq_consumer.pull.fetched_queue import FetchedQueue
from ternmq_consumer.pull.group_membership import PullMembership
from ternmq_consumer.pull.polling_pull_consumer import PollingPullConsumer
from ternmq_consumer.pull.pull_assignment import (
    PullContext,
    RebalanceCallback,
    RebalanceCallbacks,
    commit_settled,
)
from ternmq_consumer.pull.pull_queues import PullQueues
from ternmq_consumer.pull_stream.pull_links import PullLinks
from ternmq_consumer.rebalance.unreadable_brokers import UnreadableBrokers
from ternmq_consumer.subscriptions import (
    SubscriptionExpression,
    Subscriptions,
    subscription_to,
    subscriptions_by_topic,
)
from ternmq_model.arguments import check_function, is_kind
from ternmq_model.errors import ClosedError, RefusedError, TopicNotFound, Unreachable, UsageError
from ternmq_model.names import check_group, check_topic
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_model.subscription import ALL_TAGS
from ternmq_remoting.environment import Environment, EnvironmentSource
from ternmq_runtime.lifecycle import Lifecycle
from ternmq_runtime.service import Job, JobRunner

if TYPE_CHECKING:
    import asyncio

_STALE_INTERVAL_S: Final = 20.0

_CALLBACKS_WAIT_S: Final = 10.0
"""Time that leaving waits for `on_revoked`, s."""


class PullConsumer(PollingPullConsumer, ReplyingClient, Lifecycle):
    """Consumer that reads queues on `poll`, open inside `async with`.

    After `assign` the consumer reads exactly the given queues and is no member of its group. After
    `subscribe` the consumer is a member of its group and shares the queues of the topics with the
    other members, like a push consumer. A consumer uses one of the two, not both.

    The position of a queue is behind the messages that `poll` has returned. `commit` stores the
    positions at the brokers as the group's offsets: the next consumer of the group begins there.
    With `config.auto_commit` the consumer commits by itself; a call of `poll` marks the messages of
    the call before as handled. Without it, leaving commits nothing. Leaving waits up to 10 s for
    `on_revoked`, and up to `request_timeout_s` + 1 s for brokers that do not answer.

    Only one task may poll at a time.

    Args:
        group: Consumer group of the offsets and of the membership; empty = no group.
        nameserver: `HOST:PORT`, several separated by `;` or `,`, or a sequence of such. None = the
            NameServers of `client`.
        config: Settings of the consumer.
        client: Settings of the client.
        env: Clock, network and blocking calls; None = those of the process.
        client_config: Deprecated name of `client`. Its use gives a warning.

    Raises:
        IllegalName: The group's name is illegal.
        UsageError: `config.auto_commit` is true without a group.
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
        env: Environment | EnvironmentSource | None = None,
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
        """Assigned queues without a start offset: new ones, and ones that were gone."""
        self._gone: dict[MessageQueue, RefusedError] = {}
        """Queues that their broker no longer has, until a poll raises the error."""
        self._failures: deque[Exception] = deque()
        """Errors of callbacks, and refusals of brokers, until a poll raises them."""
        self._commit_due_ms = 0
        self._committing: asyncio.Task[bool] | None = None
        self._opened: PullContext | None = None
        self._membership: PullMembership | None = None
        self._is_closed = False

    async def _open(self, stack: AsyncExitStack) -> None:
        if self._opened is not None:
            raise ClosedError("a consumer is entered once")
        client, config = await stack.enter_async_context(self._client), self._config
        links = PullLinks(
            client.env,
            client,
            client.tasks,
            client_id=client.client_id,
            group=self._group,
            telemetry=client.telemetry,
        )
        timeout_s = client.config.request_timeout_s
        offsets = RemoteOffsetStore(
            client,
            group=self._group,
            client_id=client.client_id,
            timeout_s=timeout_s,
            on_reset=self._go_on,
            telemetry=client.telemetry,
        )
        client.on_reader_moved(lambda broker_name, _: offsets.resend_offsets(broker_name))
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
        reporter = RunningInfoReporter(
            client.sessions, self._group, queues=self._reports, facts=lambda: facts_of(config)
        )
        stack.enter_context(reporter)
        stack.push_async_callback(self._close)

        async def renew_stale() -> bool:
            links.renew_stale()
            return False

        await stack.enter_async_context(
            JobRunner(
                Job(name="renew-stale", interval_s=_STALE_INTERVAL_S, step=renew_stale),
                timers=client.env.timers,
            )
        )
        await stack.enter_async_context(membership)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the readable queues of `topic`, sorted.

        Brokers without read permission are left out and logged.

        Raises:
            IllegalName: The topic's name is illegal.
            PermissionRefused: No queue of the topic may be read.
            TopicNotFound: No NameServer knows the topic.
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
        """Replace the assigned queues.

        A queue that is assigned already keeps its position. A new queue begins at the offset of
        `seek`, else at the group's offset, else at `config.consume_from`; the first `poll` resolves
        it.

        Args:
            queues: Queues of any topics.
            expression: Filter of the new queues: tags, such as `*` or `a || b`, or a condition on
                properties: `sql("amount > 100")`.

        Raises:
            UsageError: The expression is malformed, `queues` has other values than queues, or the
                consumer is subscribed.
        """
        given: object = queues
        if isinstance(given, str):  # for callers without a type checker
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
        """Join the group and read this member's share of the queues of `topics`.

        The call returns when the consumer has joined; `assigned` waits for the first share. A queue
        begins at the group's offset, else at `config.consume_from`. The next `poll` raises the
        error of a callback.

        Args:
            topics: A topic, tags or conditions by topic, or subscriptions, as for `PushConsumer`.
                All members of a group must have equal subscriptions.
            on_assigned: Function or coroutine function that receives new queues before they are
                read. It may `seek`.
            on_revoked: Function or coroutine function that receives queues that go to another
                member, are deleted, or are given up by leaving. Their messages are not polled any
                more. It may `commit` their positions.

        Raises:
            UsageError: The consumer has no group, has assigned queues, or is subscribed already.
            IllegalName: A topic's name is illegal.
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
        """Give up every queue, call `on_revoked` and leave the group. Safe to repeat."""
        await self._member.unsubscribe()

    async def assigned(self) -> None:
        """Wait until this member has its first share of the queues. The share may be empty.

        Raises:
            UsageError: The consumer is not subscribed.
        """
        await self._member.assigned()

    def assignment(self) -> list[MessageQueue]:
        """Return the queues of this consumer, sorted."""
        return self._queues.names

    def pause(self, *queues: MessageQueue) -> None:
        """Suspend polling of these queues until `resume`. They stay assigned.

        Reading ahead goes on up to its bound.

        Raises:
            UsageError: A queue is not assigned. The queues before it are paused.
        """
        for queue in queues:
            self._queues.pause(queue)

    def resume(self, *queues: MessageQueue) -> None:
        """Resume paused queues. A queue that is not paused is unchanged.

        Raises:
            UsageError: A queue is not assigned. The queues before it are resumed.
        """
        for queue in queues:
            self._queues.resume(queue)

    def paused(self) -> list[MessageQueue]:
        """Return the paused queues, sorted."""
        return self._queues.paused

    async def _prepare_poll(self) -> None:
        self._check_not_closed()
        if not len(self._queues) and not self._is_subscribed:
            raise UsageError("assign queues, or subscribe, before you poll")
        self._check_owner()
        self._client.check_owned()
        if self._config.auto_commit:
            self._settle()
        await self._seeks.settled()
        self._raise_news()
        if self._new:
            await self._begin_new()

    def _count(self, messages: int) -> None:
        if (telemetry := self._client.telemetry) is not None:
            topic = topic_of_all(queue.topic for queue in self._queues.names)
            telemetry.consumed({topic: messages}, self._group)

    async def commit(self) -> bool:
        """Store the positions of all queues at their brokers.

        After a `seek` backwards the brokers store the lower offsets too.

        Returns:
            True = the brokers have all positions. After False the next call tries again: a broker
            did not answer, or refused because another consumer of the group is ahead (see the log).

        Raises:
            UsageError: The consumer has no group.
        """
        self._check_group("commit")
        self._note_positions()
        return await self._context.offsets.commit()

    async def committed(self, queue: MessageQueue) -> QueueOffset | None:
        """Return the group's offset at the broker; None = never committed.

        A broker of an earlier version may return 0 instead of None for a young queue.

        Raises:
            TransportError: The broker does not answer.
            UsageError: The consumer has no group.
        """
        self._check_group("have an offset")
        await self._client.routes.route(queue.topic)
        queried = await self._context.offsets.query(queue)
        return None if queried is None or queried.is_kept is False else queried.offset

    def _note_positions(self) -> None:
        """Include every position in the next commit."""
        for fetched in self._queues.all:
            if fetched.position is not None:
                self._context.offsets.place(fetched.queue, fetched.position)

    def _answered(self, fetched: FetchedQueue) -> QueueOffset | None:
        """Return the offset below which the application has answered for the messages."""
        if self._config.auto_commit:
            return fetched.settled
        return self._context.offsets.at(fetched.queue)

    def _reports(self) -> list[ProcessQueueInfo]:
        placed = [each for each in self._queues.all if each.position is not None]
        return [each.report(self._answered(each)) for each in placed]

    def _settle(self) -> None:
        """Mark the messages of earlier polls as handled, and commit them if a commit is due."""
        self._queues.settle()
        now_ms = self._client.env.clock.monotonic_ms()
        if now_ms < self._commit_due_ms or (self._committing and not self._committing.done()):
            return
        self._commit_due_ms = now_ms + int(self._config.auto_commit_s * 1000)
        self._note_positions()
        self._committing = self._client.tasks.spawn(self._context.offsets.commit(), "auto-commit")

    async def _close(self) -> None:
        for fetched in self._queues.all:
            if fetched.polled_to is not None and not fetched.is_answered(self._answered(fetched)):
                self._client.env.on_unanswered(self._group, fetched.queue, fetched.polled_to)
        try:
            await self._member.leave(_CALLBACKS_WAIT_S)
            if self._config.auto_commit:
                await commit_settled(self._context.offsets, self._queues.all)
        finally:
            for queue in self._queues.names:
                self._queues.remove(queue)
            self._is_closed = True
            self._queues.arrived.set()

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
                        raise Unreachable(f"{queue}: the group's start offset is not committed")
                    if fetched.position is None and self._queues.find(queue) is fetched:
                        now_at = context.offsets.at(
                            queue
                        )  # another client may have set it meanwhile
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
        """Continue at an offset of the group that a reset has set."""
        fetched = self._queues.find(queue)
        if fetched is not None:
            fetched.start(self._context.links, offset)

    def _lose(self, fetched: FetchedQueue, error: RefusedError) -> None:
        """Drop the position of a missing queue. An assigned one fails the next poll."""
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
        """Store the refusal of a queue for the next poll. Equal refusals are stored once."""
        if not any(isinstance(each, RefusedError) for each in self._failures):
            self._fail(error)

    def _raise_news(self) -> None:
        if self._failures:
            raise self._failures.popleft()
        for queue in self._gone:
            error = self._gone.pop(queue)
            remark = f"queue {queue} is gone: {error.remark}"
            raise TopicNotFound(ResponseCode.TOPIC_NOT_EXIST, remark, error.peer)
        self._check_not_closed()

    def _check_not_closed(self) -> None:
        if self._is_closed:
            raise ClosedError("the consumer is closed")

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
