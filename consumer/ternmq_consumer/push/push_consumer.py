"""Push consumer: a member of a group that shares the queues of its topics."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from ternmq_client.config import ClientConfig, checked_config, resolve_client
from ternmq_client.instance import ClientInstance
from ternmq_client.interceptors import ConsumeInterceptor, ConsumeInterceptors
from ternmq_client.reply_message import ReplyingClient
from ternmq_consumer.config import PushConsumerConfig
from ternmq_consumer.listener.consume_dispatcher import ConsumeDispatcher, work_on
from ternmq_consumer.listener.consume_service import ConsumeService
from ternmq_consumer.listener.consumer_statistics import ConsumeCounters, ConsumerStatistics
from ternmq_consumer.listener.listener_call import BatchListener, ColumnsListener, Listener
from ternmq_consumer.offsets.consume_from_where import StartOffsets, consume_from_policy
from ternmq_consumer.offsets.offset_store import OffsetStore
from ternmq_consumer.offsets.remote_offset_store import RemoteOffsetStore, reset_queries, resets_of
from ternmq_consumer.process_queue.queue_locks import QueueLocks
from ternmq_consumer.process_queue.running_info import RunningInfoReporter, facts_of
from ternmq_consumer.pull_stream.flow_control import FlowControlWindow
from ternmq_consumer.pull_stream.pull_links import PullLinks
from ternmq_consumer.push.message_iterator import MessageIterator
from ternmq_consumer.push.push_assembly import (
    BROADCASTER,
    Listeners,
    consume_service_of,
    is_broadcasting,
    locks_of,
    observed,
    open_offsets,
    timeout_jobs,
)
from ternmq_consumer.push.push_assignment import PushAssignment
from ternmq_consumer.push.seeking_push_consumer import SeekingPushConsumer
from ternmq_consumer.rebalance.allocation.strategy_names import strategy_of
from ternmq_consumer.rebalance.rebalancer import RETRY_S, Rebalancer
from ternmq_consumer.subscriptions import (
    Subscriptions,
    subscription_message,
    subscriptions_by_topic,
)
from ternmq_model.arguments import check_function, check_interceptors, is_async
from ternmq_model.columns.pyarrow_support import check_pyarrow
from ternmq_model.errors import ClosedError, RefusedError, TopicNotFound, UsageError
from ternmq_model.names import RETRY_PREFIX, check_group
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.stored_message import StoredMessage
from ternmq_model.subscription import ALL_TAGS, parse_subscription
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting.environment import Blocking, Environment, EnvironmentSource
from ternmq_runtime.blocking_pool import BlockingPool
from ternmq_runtime.lifecycle import Lifecycle
from ternmq_runtime.service import Job, JobRunner, OwnedTasks, run_or_abandon
from ternmq_runtime.timers import Wait

if TYPE_CHECKING:
    from ternmq_runtime.timers import TimerHandle

_STALE_INTERVAL_S: Final = 20.0

_CANCELLED_WAIT_S: Final = 1.0
"""Time for the cleanup of a cancelled `async def` listener, s."""


class PushConsumer(SeekingPushConsumer, ReplyingClient, Lifecycle):
    """Consumer of topics as a member of a group, open inside `async with`.

    Every message of the topics goes to one member of the group, at least once: after the death of a
    member, or a change of a queue's owner, messages can come again. A message is finished when the
    listener returns. If the listener raises or answers `RECONSUME_LATER`, the message goes back to
    its broker and comes again after a delay, to any member; after `config.retries_max` retries it
    is a dead letter. The group's offset passes the message only when the broker has confirmed the
    retry. `config.order_per_queue` consumes in order, `config.message_model` broadcasts.

    Without a listener the application iterates: `async for message in consumer`. A message is
    finished when the application requests the next one; `commit` finishes the present one.

    Entering joins the group and returns; `assigned` waits for the first share of the queues.
    Leaving, also by a cancellation of the block, stops reading, waits `config.close_wait_s` for
    running listener calls, commits and leaves the group. A longer call of an `async def` is
    cancelled, and abandoned if it goes on for 1 s after that: its event loop cannot end earlier. A
    longer call of a plain function is abandoned: a thread cannot be ended, but the process does not
    wait for it. The log names such a listener. The lowest unfinished offset of a queue is
    committed, so that message and all later ones come again, finished ones too. Leaving waits up to
    `request_timeout_s` + 1 s for brokers that do not answer. A crash inside the consumer cancels
    the block and is raised from it.

    Entering raises `Unreachable` if no NameServer can be reached, and `RefusedError` if a broker
    refuses this client. The consumer waits for topics that do not exist yet.

    Args:
        group: Consumer group.
        topics: A topic; tags or a condition by topic (`{"orders": "eu || jp"}`,
            `{"orders": sql("amount > 100")}`); or subscriptions. All members of a group must have
            equal subscriptions.
        listener: Function that receives each message: a plain function in one of `config.workers`
            threads, or an `async def` on the loop. At most `config.workers` calls run at a time.
        batch_listener: Function that receives waiting messages of one queue, at most
            `config.batch_messages`. Its answer holds for all of them.
        columns_listener: Batch listener that receives the messages as an Arrow `RecordBatch`, with
            the columns of the Spark source. At most one of the three kinds is given.
        interceptors: Interceptors of every call of the listener, called on the loop.
        on_refused: Function called on the loop with each refusal: a topic or queue that may not be
            read, a group that may not consume, a condition that a broker refuses. It must not
            raise. The consumer asks again meanwhile.
        nameserver: `HOST:PORT`, several separated by `;` or `,`, or a sequence of such. None = the
            NameServers of `client`.
        config: Settings of the consumer.
        client: Settings of the client.
        env: Clock, network and blocking calls; None = those of the process.
        client_config: Deprecated name of `client`. Its use gives a warning.

    Raises:
        IllegalName: The group's name or a topic's name is illegal.
        MissingPackage: `columns_listener` needs the extra `arrow`.
        UsageError: Several kinds of listener are given, a listener does not take one argument,
            `on_refused` is `async`, no topic is given, or an expression is malformed.
        ConfigError: A NameServer's address is illegal, an argument has another type, or
            `nameserver` and `client` name different NameServers.

    Source:
        RocketMQ `DefaultMQPushConsumer`, `ConsumeMessageConcurrentlyService`.
    """

    def __init__(
        self,
        group: str,
        topics: Subscriptions,
        *,
        listener: Listener | None = None,
        batch_listener: BatchListener | None = None,
        columns_listener: ColumnsListener | None = None,
        interceptors: Sequence[ConsumeInterceptor] = (),
        on_refused: Callable[[RefusedError], None] = lambda _: None,
        nameserver: str | Sequence[str] | None = None,
        config: PushConsumerConfig | None = None,
        client: ClientConfig | None = None,
        env: Environment | EnvironmentSource | None = None,
        client_config: ClientConfig | None = None,
    ) -> None:
        if listener is not None and batch_listener is not None:
            raise UsageError("a consumer has a listener or a batch listener, not both")
        if columns_listener is not None:
            if listener is not None or batch_listener is not None:
                raise UsageError("a consumer with a columns listener has no other listener")
            check_pyarrow()
        check_function("listener", listener, 1, optional=True)
        check_function("batch_listener", batch_listener, 1, optional=True)
        check_function("columns_listener", columns_listener, 1, optional=True)
        check_function("on_refused", on_refused, 1)
        if is_async(on_refused):
            raise UsageError(
                f"on_refused={on_refused!r} must be a plain function: its result is not awaited"
            )
        checked = check_interceptors(interceptors, "before_consume", "after_consume")
        self._group = check_group(group)
        self._subscriptions = subscriptions_by_topic(topics)
        self._listeners = Listeners(
            listener, batch_listener, columns_listener, ConsumeInterceptors(checked)
        )
        self._on_refused = on_refused
        self._config = checked_config("config", config, PushConsumerConfig)
        self._retry_topics: frozenset[str] = frozenset()
        client = resolve_client(nameserver, client, deprecated=client_config)
        if is_broadcasting(self._config):
            client = replace(client, instance_name=client.instance_name or BROADCASTER)
        else:
            retry_topic = RETRY_PREFIX + self._group
            self._retry_topics = frozenset({retry_topic})
            self._subscriptions[retry_topic] = parse_subscription(retry_topic, ALL_TAGS)
        super().__init__(ClientInstance(client, env=env))
        self._counters = ConsumeCounters()
        self._dispatcher: ConsumeDispatcher
        self._assigned = asyncio.Event()
        self._assignment: PushAssignment | None = None
        self._rebalancing: Job | None = None
        self._retry: TimerHandle | None = None
        self._calls_end_s = 0.0
        self._iterator: MessageIterator | None = None

    async def _open(self, stack: AsyncExitStack) -> None:
        if self._assignment is not None:
            raise ClosedError("a consumer is entered once")
        client = await stack.enter_async_context(self._client)
        self._dispatcher = self._listeners.dispatcher(
            self._config, self._counters, client, self._group
        )
        now_ms = client.env.clock.wall_ms()
        for topic, subscription in self._subscriptions.items():
            self._subscriptions[topic] = replace(subscription, version_ms=now_ms)
        stack.push_async_callback(self._leave_group)
        self._listeners = await observed(self._listeners, client, stack, group=self._group)
        stack.enter_context(self._reporter(client))
        blocking = await self._enter_blocking(stack)
        tasks = await stack.enter_async_context(OwnedTasks())
        locks = locks_of(
            self._config,
            client,
            tasks,
            group=self._group,
            on_lost=self._lose,
            on_renewed=self._resume,
        )
        offsets = await open_offsets(
            self._config, client, locks, group=self._group, on_reset=self._go_on
        )
        links = PullLinks(
            client.env,
            client,
            tasks,
            client_id=client.client_id,
            group=self._group,
            epoch_of=offsets.epoch,
            telemetry=client.telemetry,
        )
        self._assignment = assignment = self._make_assignment(links, offsets, locks)
        service = consume_service_of(
            self._config,
            client,
            tasks,
            self._dispatcher,
            self._counters,
            locks,
            group=self._group,
            offsets=offsets,
        )
        callers = self._listeners.callers(self._config, client, blocking, self._group)
        if callers:
            works = {
                f"listener-{number}": partial(work_on, self._dispatcher, call, service)
                for number, call in enumerate(callers)
            }
            giving_up = self._dispatcher.report_uncancelled
            tasks.spawn(
                run_or_abandon(works, wait_s=_CANCELLED_WAIT_S, on_abandoned=giving_up), "listeners"
            )
        stack.push_async_callback(self._end_calls, assignment)
        stack.callback(self._end_iteration)
        stack.callback(
            client.sessions.on_command("offsets_reset", resets_of(self._group, assignment.reset))
        )
        jobs = self._make_jobs(assignment, links, service, locks)
        await self._find_topics()
        client.routes.add_listener(lambda _topic: self._rebalance_now(), of_told=True)
        await client.join_group(self._group_message(), self._rebalance_now)
        await stack.enter_async_context(jobs)

    def __aiter__(self) -> AsyncIterator[StoredMessage]:
        """Iterate over the messages without an end.

        Raises:
            UsageError: The consumer has a listener.
            ClosedError: The consumer is not open.
        """
        if not self._listeners.is_iterated:
            raise UsageError("a consumer with a listener cannot be iterated")
        self._check_owner()
        if self._iterator is None:
            _ = self._client.env  # raises where messages cannot come: not entered, or left
            self._iterator = MessageIterator(self._dispatcher)
        return self._iterator

    async def assigned(self) -> None:
        """Wait until this member has its first share of the queues. The share may be empty.

        The call returns when every topic has a route and every queue of the share is being read.

        Raises:
            ClosedError: The consumer is not open.
        """
        self._check_owner()
        if not self._assigned.is_set():
            _ = self._client.env  # raises where no share can come: not entered, or left
        await self._assigned.wait()

    def assignment(self) -> list[MessageQueue]:
        """Return the queues that this member owns, sorted.

        Queues of the group's retry topic are shared like the others and may be among them.
        """
        return [] if self._assignment is None else self._assignment.queues

    def _reporter(self, client: ClientInstance) -> RunningInfoReporter:
        """Return the reporter that answers brokers with the running info."""
        return RunningInfoReporter(
            client.sessions,
            self._group,
            queues=lambda: [] if self._assignment is None else self._assignment.reports(),
            facts=lambda: facts_of(self._config, self.statistics()),
        )

    def statistics(self) -> ConsumerStatistics:
        """Return counters and rates of the consumed messages."""
        count, record_bytes = (0, 0) if self._assignment is None else self._assignment.in_hand
        now_ms = self._client.env.clock.monotonic_ms()
        return self._counters.statistics(now_ms, in_hand_messages=count, in_hand_bytes=record_bytes)

    async def commit(self) -> None:
        """Commit the offsets of all queues. The present message of an iteration counts as finished.

        A broker that does not answer gets the offsets with a later commit.
        """
        if self._assignment is None:
            raise ClosedError("the consumer is not open")
        self._check_owner()
        if self._iterator is not None:
            self._iterator.finish_present()
        await self._commit_step()

    @property
    def _owning(self) -> PushAssignment:
        if self._assignment is None:
            raise ClosedError("the consumer is not open: use it inside `async with`")
        self._check_owner()
        return self._assignment

    def _make_assignment(
        self, links: PullLinks, offsets: OffsetStore, locks: QueueLocks | None
    ) -> PushAssignment:
        config, client = self._config, self._client
        timeout_s = client.config.request_timeout_s
        if isinstance(offsets, RemoteOffsetStore):
            client.on_reader_moved(lambda broker_name, _: offsets.resend_offsets(broker_name))
            client.sessions.on_command("welcome", reset_queries(client.tasks, offsets))
        first = consume_from_policy(config.consume_from, config.consume_at_ms, client.env.clock)
        return PushAssignment(
            links,
            offsets,
            StartOffsets(client, offsets, first, timeout_s=timeout_s),
            FlowControlWindow(
                config.pull_threshold_messages, config.pull_threshold_bytes, config.span_max
            ),
            drop_wait_s=config.drop_wait_s,
            in_order=config.order_per_queue,
            in_columns=self._listeners.columns_listener is not None,
            on_ready=self._dispatcher.offer,
            on_lost=self._look_for,
            on_refused=self._on_refused,
            locks=locks,
            wall_ms=client.env.clock.wall_ms,
        )

    def _go_on(self, queue: MessageQueue, offset: QueueOffset) -> None:
        if self._assignment is not None:
            self._assignment.go_on(queue, offset)

    def _lose(self, queue: MessageQueue) -> None:
        if self._assignment is not None:
            self._assignment.lose(queue)

    def _resume(self, queue: MessageQueue) -> None:
        if self._assignment is not None:
            self._assignment.resume(queue)

    def _look_for(self, queue: MessageQueue) -> None:
        """Rebalance after a pause, for a lost queue that may have returned or left the route.

        The pause is for a broker and a route that do not agree yet.
        """
        self._client.ask_route_again(queue.topic)
        self._rebalance_soon()

    def _rebalance_soon(self, wait: Wait = Wait.DUE) -> None:
        """Rebalance after a pause. Only one timer runs, however many rebalances fail."""
        timers = self._client.env.timers
        if self._retry is None or self._retry.when() <= timers.now_s():
            self._retry = timers.call_later(RETRY_S, self._rebalance_now, wait=wait)

    def _rebalance_now(self) -> None:
        if self._rebalancing is not None:
            self._rebalancing.wake()

    def _make_jobs(
        self,
        assignment: PushAssignment,
        links: PullLinks,
        service: ConsumeService,
        locks: QueueLocks | None,
    ) -> JobRunner:
        client, config = self._client, self._config
        rebalancer = Rebalancer(
            client,
            client.routes,
            assignment,
            group=self._group,
            client_id=client.client_id,
            subscriptions=self._subscriptions,
            optional_topics=self._retry_topics,
            takes_all=is_broadcasting(config),
            allocate=strategy_of(config.allocate),
            timeout_s=client.config.request_timeout_s,
            take_over_wait_s=config.take_over_wait_s,
            timers=client.env.timers,
            wall_ms=client.env.clock.wall_ms,
            on_settled=self._assigned.set,
            retry_soon=self._rebalance_soon,
            on_refused=self._on_refused,
        )

        async def renew_stale() -> bool:
            links.renew_stale()
            return False

        async def sample() -> bool:
            self._counters.sample(client.env.clock.monotonic_ms())
            return False

        self._rebalancing = Job(
            name="rebalance", interval_s=config.rebalance_s, step=rebalancer.step
        )
        return JobRunner(
            *([] if locks is None else [locks.job()]),
            *timeout_jobs(config, service),
            self._rebalancing,
            Job(name="commit", interval_s=config.commit_s, step=self._commit_step),
            Job(name="renew-stale", interval_s=_STALE_INTERVAL_S, step=renew_stale),
            Job(name="sample", interval_s=1.0, step=sample),
            timers=client.env.timers,
        )

    async def _enter_blocking(self, stack: AsyncExitStack) -> Blocking:
        """Return the pool of threads for plain listeners, or the simulation's own.

        Listeners may take long, and the client's pool is for short calls.
        """
        given = self._client.env.blocking
        if not isinstance(given, BlockingPool):
            return given
        pool = BlockingPool(self._config.workers)
        stack.push_async_callback(self._end_threads, pool)
        return pool

    async def _end_calls(self, assignment: PushAssignment) -> None:
        """Stop reading and wait for the listener calls of owned queues."""
        self._calls_end_s = asyncio.get_running_loop().time() + self._config.close_wait_s
        await assignment.quiesce(self._config.close_wait_s)
        self._dispatcher.report_outliving(self._on_unanswered)

    async def _end_threads(self, pool: BlockingPool) -> None:
        """Wait for the calls of given-away queues too, for the rest of `close_wait_s`."""
        left_s = self._calls_end_s - asyncio.get_running_loop().time()
        await pool.close(wait_s=max(0.0, left_s))

    def _group_message(self) -> groups.ConsumerGroup:
        return groups.ConsumerGroup(
            group=self._group,
            model=groups.BROADCASTING if is_broadcasting(self._config) else groups.CLUSTERING,
            consume_from=self._config.consume_from.name,
            subscriptions=map(subscription_message, self._subscriptions.values()),
        )

    async def _commit_step(self) -> bool:
        if self._iterator is not None:
            self._iterator.settle()
        if self._assignment is not None:
            await self._assignment.commit()
        return False

    async def _find_topics(self) -> None:
        """Load the routes of the topics, so that an unreachable address is an early error.

        Raises:
            Unreachable: No NameServer can be reached.
            TransportError: No NameServer answers.
        """
        for topic in self._subscriptions:
            with suppress(TopicNotFound):  # it may be created any moment
                await self._client.routes.route(topic)

    def _end_iteration(self) -> None:
        if self._iterator is not None and (present := self._iterator.end()) is not None:
            self._on_unanswered(present)

    def _on_unanswered(self, last: StoredMessage) -> None:
        self._client.env.on_unanswered(self._group, last.queue, last.queue_offset + 1)

    async def _leave_group(self) -> None:
        if self._iterator is not None:
            self._iterator.settle()
        if self._assignment is not None:
            with suppress(TimeoutError):  # one request's time for the offsets and the locks
                async with asyncio.timeout(self._client.config.request_timeout_s):
                    await self._assignment.close()
        self._client.leave_group(self._group)
