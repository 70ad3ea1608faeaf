"""Assembly of a push consumer: the parts that depend on its settings."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from ternmq_client.instance import ClientInstance
from ternmq_client.interceptors import ConsumeInterceptors
from ternmq_client.internal_producer import InternalProducer
from ternmq_client.telemetry.client_telemetry import ClientTelemetry
from ternmq_client.tracing.tracer import Tracer
from ternmq_consumer.config import MessageModel, OffsetsKept, PushConsumerConfig
from ternmq_consumer.listener.concurrent_service import ConcurrentConsumeService
from ternmq_consumer.listener.consume_dispatcher import PIECE_MESSAGES_MAX, ConsumeDispatcher
from ternmq_consumer.listener.consume_service import ConsumeService
from ternmq_consumer.listener.consumer_statistics import ConsumeCounters
from ternmq_consumer.listener.listener_call import (
    BatchListener,
    CallListener,
    ColumnsListener,
    Interception,
    Listener,
    in_batches,
    in_columns,
    one_by_one,
)
from ternmq_consumer.listener.orderly_service import OrderlyConsumeService
from ternmq_consumer.listener.traced_listener import traced_listener
from ternmq_consumer.offsets.local_offset_store import (
    default_folder,
    offsets_path,
    open_local_offset_store,
    own_group,
)
from ternmq_consumer.offsets.offset_store import OffsetStore
from ternmq_consumer.offsets.remote_offset_store import RemoteOffsetStore
from ternmq_consumer.process_queue.queue_locks import QueueLocks
from ternmq_consumer.retry.retry_copies import RetryCopies
from ternmq_consumer.retry.send_back_outbox import SendBackOutbox
from ternmq_model.names import RETRY_PREFIX
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_remoting.environment import Blocking
from ternmq_runtime.blocking_pool import name_of
from ternmq_runtime.service import Job, OwnedTasks

_ITERATED_MESSAGES_MAX: Final = 256
_CHECK_INTERVAL_S_MAX: Final = 60.0
_CHECKS_PER_TIMEOUT: Final = 15

BROADCASTER: Final = "DEFAULT"
"""Second half of the client id of a broadcasting member. A restart finds its file by this id."""


@dataclass(frozen=True, slots=True)
class Listeners:
    """Listeners of the application. At most one of the three is given."""

    listener: Listener | None
    batch_listener: BatchListener | None
    columns_listener: ColumnsListener | None
    interceptors: ConsumeInterceptors

    @property
    def is_iterated(self) -> bool:
        """True without a listener: the application iterates over the consumer."""
        return self._given is None

    @property
    def _given(self) -> Listener | BatchListener | ColumnsListener | None:
        return self.listener or self.batch_listener or self.columns_listener

    def dispatcher(
        self,
        config: PushConsumerConfig,
        counters: ConsumeCounters,
        client: ClientInstance,
        group: str,
    ) -> ConsumeDispatcher:
        """Return the dispatcher with the sizes of hand-outs for the listener."""
        telemetry = client.telemetry
        on_taken = None if telemetry is None else partial(telemetry.delivered, group=group)
        if self.batch_listener is not None or self.columns_listener is not None:
            take_max, share_among = config.batch_messages, 1
        elif self.listener is not None:
            share_among = 1 if config.order_per_queue else config.workers
            take_max = PIECE_MESSAGES_MAX
        else:
            take_max, share_among = _ITERATED_MESSAGES_MAX, 1
        listener = self._given
        return ConsumeDispatcher(
            counters,
            listener="" if listener is None else name_of(listener),
            take_max=take_max,
            share_among=share_among,
            in_order=config.order_per_queue,
            timers=client.env.timers,
            on_taken=on_taken,
        )

    def callers(
        self, config: PushConsumerConfig, client: ClientInstance, blocking: Blocking, group: str
    ) -> list[CallListener]:
        """Return the calls of the workers; none for an iterated consumer."""
        interception = (
            Interception(group, client.env.clock, self.interceptors) if self.interceptors else None
        )
        if self.columns_listener is not None:
            call = in_columns(
                self.columns_listener,
                blocking,
                in_order=config.order_per_queue,
                interception=interception,
            )
        elif self.batch_listener is not None:
            call = in_batches(self.batch_listener, blocking, interception=interception)
        elif self.listener is not None:
            call = one_by_one(
                self.listener, blocking, in_order=config.order_per_queue, interception=interception
            )
        else:
            return []
        return [call] * config.workers


async def observed(
    listeners: Listeners, client: ClientInstance, stack: AsyncExitStack, *, group: str
) -> Listeners:
    """Return the listeners with the interceptors of the environment.

    If the client's settings enable traces, or have a telemetry, calls are traced too.
    """
    if listeners.is_iterated:
        return listeners
    if client.telemetry is not None:
        listeners = traced_listeners(listeners, client.telemetry, group)
    interceptors = listeners.interceptors.plus(*client.env.consume_interceptors)
    if client.config.trace:
        tracer = await stack.enter_async_context(Tracer(client, group, "CONSUME"))
        interceptors = interceptors.plus(tracer.of_consumption())
    return replace(listeners, interceptors=interceptors)


def traced_listeners(listeners: Listeners, telemetry: ClientTelemetry, group: str) -> Listeners:
    """Return the listeners with spans and durations of their calls."""
    one, batch, columns = (
        listeners.listener,
        listeners.batch_listener,
        listeners.columns_listener,
    )
    return replace(
        listeners,
        listener=one and traced_listener(one, "one", telemetry, group),
        batch_listener=batch and traced_listener(batch, "batch", telemetry, group),
        columns_listener=columns and traced_listener(columns, "columns", telemetry, group),
    )


def timeout_jobs(config: PushConsumerConfig, service: ConsumeService) -> list[Job]:
    """Return the job that looks for listener calls that exceed the timeout, if there is one."""
    if not isinstance(service, ConcurrentConsumeService):
        return []
    interval_s = timeout_check_interval_s(config)
    return [Job(name="slow-calls", interval_s=interval_s, step=service.check_timeouts)]


def is_broadcasting(config: PushConsumerConfig) -> bool:
    """Return whether every member gets every message."""
    return config.message_model is MessageModel.BROADCASTING


def locks_of(
    config: PushConsumerConfig,
    client: ClientInstance,
    tasks: OwnedTasks,
    *,
    group: str,
    on_lost: Callable[[MessageQueue], None],
    on_renewed: Callable[[MessageQueue], None],
) -> QueueLocks | None:
    """Return the locks of queues; None = the consumer needs none."""
    if not config.order_per_queue or is_broadcasting(config):
        return None
    return QueueLocks(
        client,
        client.env.clock,
        tasks,
        group=group,
        client_id=client.client_id,
        timeout_s=client.config.request_timeout_s,
        on_lost=on_lost,
        on_renewed=on_renewed,
    )


async def open_offsets(
    config: PushConsumerConfig,
    client: ClientInstance,
    locks: QueueLocks | None,
    *,
    group: str,
    on_reset: Callable[[MessageQueue, QueueOffset], None],
) -> OffsetStore:
    """Return the open offset store of the consumer. See `RemoteOffsetStore` for `on_reset`.

    Raises:
        StoreError: The file of offsets cannot be read.
        OSError: The folder of the file cannot be created.
    """
    if is_broadcasting(config):
        if config.offsets_kept is OffsetsKept.LOCALLY:
            folder = config.offsets_folder or default_folder()
            path = offsets_path(folder, client.client_id, group)
            return await open_local_offset_store(path, client.env.blocking, client.epoch)
        group = own_group(group, client.client_id)
    return RemoteOffsetStore(
        client,
        group=group,
        client_id=client.client_id,
        timeout_s=client.config.request_timeout_s,
        token_of=_no_token if locks is None else locks.token,
        on_fenced=_ignore if locks is None else locks.lose,
        on_reset=on_reset,
        telemetry=client.telemetry,
    )


def consume_service_of(
    config: PushConsumerConfig,
    client: ClientInstance,
    tasks: OwnedTasks,
    dispatcher: ConsumeDispatcher,
    counters: ConsumeCounters,
    locks: QueueLocks | None,
    *,
    group: str,
    offsets: OffsetStore,
) -> ConsumeService:
    """Return the service that ends hand-outs."""
    send_backs = None
    if isinstance(offsets, RemoteOffsetStore) and not is_broadcasting(config):

        def note(broker_name: str, count: int) -> None:
            counters.sent_back(count)
            update_retry_route(client, group, broker_name)

        copies = RetryCopies(
            InternalProducer(client),
            group=group,
            timeout_s=client.config.request_timeout_s,
            retries_max=config.retries_max,
        )
        send_backs = SendBackOutbox(
            client,
            tasks,
            group=group,
            client_id=client.client_id,
            timeout_s=client.config.request_timeout_s,
            retries_max=config.retries_max,
            offsets=offsets,
            on_confirmed=note,
            send_copy=copies.send,
            telemetry=client.telemetry,
        )
    if config.order_per_queue:
        return OrderlyConsumeService(
            dispatcher,
            counters,
            send_backs=send_backs,
            suspend_s=config.suspend_s,
            retries_max=config.retries_max,
            on_fenced=_ignore if locks is None else locks.lose,
        )
    return ConcurrentConsumeService(
        dispatcher,
        counters,
        client.env.clock,
        send_backs=send_backs,
        retry_s=config.retry_s,
        timeout_s=config.consume_timeout_s,
    )


def update_retry_route(client: ClientInstance, group: str, broker_name: str) -> None:
    """Refresh the route of the group's retry topic if it does not name `broker_name`.

    The broker may have created the topic for a message that was sent back.
    """
    route = client.routes.cached(RETRY_PREFIX + group)
    if route is None or all(data.broker_name != broker_name for data in route.queues):
        client.ask_route_again(RETRY_PREFIX + group)


def timeout_check_interval_s(config: PushConsumerConfig) -> float:
    """Return the interval between checks for listener calls that exceed the timeout, s."""
    return min(_CHECK_INTERVAL_S_MAX, config.consume_timeout_s / _CHECKS_PER_TIMEOUT)


def _no_token(_queue: MessageQueue) -> int:
    return 0


def _ignore(_queue: MessageQueue, _token: int) -> None:
    pass  # a queue without a lock cannot lose it
