"""Transactional messages: visible after the sender's local transaction, and only then."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from typing import Any, Final

from ternmq_client.config import ClientConfig, checked_config
from ternmq_client.interceptors import SendInterceptor
from ternmq_model.arguments import check_function, is_whole
from ternmq_model.errors import ClosedError, IllegalMessage, TernError, UsageError
from ternmq_model.message import (
    NO_PROPERTIES,
    Message,
    SendResult,
    SendStatus,
    SystemMessage,
)
from ternmq_model.names import check_topic
from ternmq_model.offsets import QueueOffset
from ternmq_model.properties import CHECK_IMMUNITY_S, PRODUCER_GROUP, TRANSACTION_PREPARED
from ternmq_model.queue import MessageQueue
from ternmq_model.transaction import Resolution, TransactionResult
from ternmq_producer.batch.atomic_batch import check_messages
from ternmq_producer.config import ProducerConfig
from ternmq_producer.producer import Producer
from ternmq_producer.queue_selection.selectors import QueueSelector
from ternmq_producer.transactions.transaction_checks import (
    Check,
    TransactionChecks,
    decide,
    end_request,
)
from ternmq_producer.transactions.transaction_ends import TransactionEnds
from ternmq_remoting.environment import Environment, EnvironmentSource
from ternmq_runtime.lifecycle import Lifecycle
from ternmq_runtime.timers import Wait

Execute = Callable[[Message, Any], Resolution | Awaitable[Resolution]]

_CHECK_WORKERS: Final = 16

_STATES: Final = {
    Resolution.UNKNOWN: "UNKNOW",
    Resolution.COMMIT: "COMMIT_MESSAGE",
    Resolution.ROLLBACK: "ROLLBACK_MESSAGE",
}
"""Names of the states in RocketMQ's traces."""


class TransactionProducer(Lifecycle):
    """Sends messages that are delivered only if a local transaction commits.

        async with TransactionProducer("payers", execute=pay, check=was_paid) as producer:
            result = await producer.send(Message("paid", body), order)

    Each send stores a *half message*, which no consumer can read, calls
    `execute(message, argument)`, and sends its result to the broker, which delivers or drops the
    message. A broker without a result, because this process died or returned UNKNOWN, asks any live
    producer of the group, which calls `check(message)`.

    Both functions are `async def`, or plain ones, which run in a thread. An exception is logged and
    counts as UNKNOWN. `check` must look up the outcome of a message in the store of `execute`, also
    of a message that another process has sent; while `execute` may still run, it returns UNKNOWN.

    Any number of tasks may use the producer, on the event loop that entered the block. The end of
    the block waits for ends of transactions that are under way, at most the send timeout, and then
    like that of `Producer`.

    Args:
        group: Name of the producer group: each of its members must be able to check.
        execute: Function that runs the local transaction.
        check: Function that returns the outcome of a local transaction.
        topics: Topics whose brokers may ask this producer from the start on; brokers of others may
            ask after the first send to them. A process that only checks needs `topics`.
        nameserver: `HOST:PORT`, several separated by `;` or `,`, or a sequence of these. None = the
            one in `client`.
        config: Settings of the producer. Half messages are never stored twice, whatever
            `duplicates_allowed` is.
        client: Settings of the connections.
        interceptors: Interceptors, called before and after every half message.
        env: Clock, network and threads. None = the operating system's.

    Raises:
        IllegalName: The group's or a topic's name is illegal.
        ConfigError: An address is illegal, an argument has another type, or `nameserver` and
            `client` name different NameServers.
        UsageError: `execute` is no function of two arguments, or `check` none of one.

    Source: RocketMQ `TransactionMQProducer`; here the producer awaits the end.
    """

    def __init__(
        self,
        group: str,
        *,
        execute: Execute,
        check: Check,
        topics: Sequence[str] = (),
        nameserver: str | Sequence[str] | None = None,
        config: ProducerConfig | None = None,
        client: ClientConfig | None = None,
        interceptors: Sequence[SendInterceptor] = (),
        env: Environment | EnvironmentSource | None = None,
    ) -> None:
        self._config = replace(
            checked_config("config", config, ProducerConfig), duplicates_allowed=False
        )
        self._producer = Producer(
            group,
            nameserver=nameserver,
            config=self._config,
            client=client,
            interceptors=interceptors,
            env=env,
        )
        check_function("execute", execute, 2)
        check_function("check", check, 1)
        if isinstance(topics, str):
            raise UsageError(f"topics={topics!r} must be a list: [{topics!r}]")
        self._topics = tuple(check_topic(topic) for topic in topics)
        self._execute = execute
        self._check = check
        self._running: Counter[str] = Counter()
        self._ends: TransactionEnds | None = None

    @property
    def group(self) -> str:
        """Name of the producer group."""
        return self._producer.group

    async def _open(self, stack: AsyncExitStack) -> None:
        """Open the producer. No service need be reachable before the first send."""
        if self._ends is not None:
            raise ClosedError("the producer is already open")
        await stack.enter_async_context(self._producer)
        client = self._producer.client
        self._ends = ends = TransactionEnds(client, retry=self._config.retry)
        checks = TransactionChecks(
            self.group,
            self._check,
            client,
            ends,
            is_running=self._running.__contains__,
            workers=_CHECK_WORKERS,
            timeout_s=self._config.send_timeout_s,
        )
        stack.callback(client.sessions.on_command("check_transaction", checks.asked))
        stack.push_async_callback(self._close)
        for topic in self._topics:
            client.tasks.spawn(self._attend(topic), f"attend {topic}")

    async def _close(self) -> None:
        """Refuse new messages, and wait for the answers to those under way, as `Producer` does."""
        ends, self._ends = self._ends, None
        assert ends is not None, "was opened"
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._config.send_timeout_s):
                    await ends.idle()
        finally:
            ends.abandon()

    async def _attend(self, topic: str) -> None:
        """Hold Sessions with every broker of `topic`, also those that come later."""
        client = self._producer.client
        while True:
            with suppress(TernError):
                route = await client.routes.route(topic)
                for data in route.brokers:
                    if data.master is not None:
                        client.sessions.attend(data.broker_name)
            known = client.routes.cached(topic) is not None
            pause_s = client.config.route_refresh_s if known else 1.0
            await client.env.timers.sleep(pause_s, wait=Wait.PERIODIC)

    async def send(
        self,
        message: Message,
        argument: Any = None,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
        check_after_s: int | None = None,
        end_awaited: bool = True,
    ) -> TransactionResult:
        """Send a half message, run the local transaction, and send its outcome to the broker.

        Cancelling before the half message is stored sends nothing, or leaves a half message that
        the broker checks. Cancelling later does not stop the local transaction: the broker checks.

        Args:
            message: Message without a delay, not to be changed until it is answered.
            argument: Second argument of `execute`.
            queue: Queue of the message; else `selector`, the sharding key or round robin chooses.
            selector: Function that chooses among the sorted queues of the topic.
            timeout_s: Time limit for the half message, and again for the end, that replaces
                `send_timeout_s`. The local transaction has no limit.
            check_after_s: Time before the broker checks, s; None = the broker's setting.
            end_awaited: Wait until the broker has confirmed the end. Without the wait,
                `is_confirmed` of the result is False.

        Returns:
            Outcome of the transaction. It is not confirmed when the broker did not get the end; the
            broker then checks.

        Raises:
            TernError: The half message is not stored, and `execute` was not called. With
                `may_have_happened` the message may be stored, and the broker will check.
        """
        if self._ends is None:
            raise ClosedError("the producer is not open: use it inside `async with`")
        half = half_message(message, self.group, check_after_s=check_after_s)
        sent = await self._producer.send(half, queue=queue, selector=selector, timeout_s=timeout_s)
        resolution = Resolution.ROLLBACK
        if sent.status is SendStatus.SEND_OK:
            resolution = await self._run(message, argument, sent)
        self._trace(message, sent, resolution)
        spans = self._producer.spans
        carrier = NO_PROPERTIES if spans is None else spans.take_half(sent.message_id)
        if resolution is Resolution.UNKNOWN:
            return TransactionResult(sent, resolution, is_confirmed=False)
        return await self._end(
            message, sent, resolution, timeout_s, is_awaited=end_awaited, carrier=carrier
        )

    def _trace(self, message: Message, sent: SendResult, resolution: Resolution) -> None:
        traces = self._producer.traces
        if traces is not None:
            at_ms = self._producer.client.env.clock.wall_ms()
            traces.transaction_ended(message, sent, _STATES[resolution], at_ms=at_ms)

    async def _run(self, message: Message, argument: object, sent: SendResult) -> Resolution:
        """Run the local transaction; meanwhile checks of the message get UNKNOWN."""
        self._running[sent.message_id] += 1
        try:
            env = self._producer.client.env
            with env.timers.busy():
                return await decide(env.blocking, self._execute, message, argument)
        finally:
            self._running[sent.message_id] -= 1
            if not self._running[sent.message_id]:
                del self._running[sent.message_id]

    async def _end(
        self,
        message: Message,
        sent: SendResult,
        resolution: Resolution,
        timeout_s: float | None,
        *,
        is_awaited: bool,
        carrier: Mapping[str, str],
    ) -> TransactionResult:
        ends = self._ends
        if ends is None:
            error = ClosedError("the producer was closed before the end was sent")
            return TransactionResult(sent, resolution, is_confirmed=False, error=error)
        answer = ends.send(
            sent.queue.broker_name,
            end_request(
                group=self.group,
                topic=message.topic,
                message_id=sent.message_id,
                transaction=sent.physical_offset,
                resolution=resolution,
            ),
            timeout_s=self._config.send_timeout_s if timeout_s is None else float(timeout_s),
            carrier=carrier,
        )
        if not is_awaited:
            return TransactionResult(sent, resolution, is_confirmed=False)
        try:
            reply = await asyncio.shield(answer)  # the end is sent, also after a cancellation
        except TernError as error:
            return TransactionResult(sent, resolution, is_confirmed=False, error=error)
        if resolution is not Resolution.COMMIT:
            return TransactionResult(sent, resolution, is_confirmed=True)
        return TransactionResult(
            sent,
            resolution,
            is_confirmed=True,
            queue_id=reply.queue_id,
            queue_offset=QueueOffset(reply.queue_offset),
        )


def half_message(message: Message, group: str, *, check_after_s: int | None) -> SystemMessage:
    """Return the half message of `message`.

    Raises:
        IllegalMessage: `message` is no message or is delayed, or `check_after_s` is no whole number
            or is negative.
    """
    check_messages((message,))
    message.check_kinds()
    if message.delay_level or message.deliver_at_ms or message.deliver_after_ms:
        raise IllegalMessage(
            f"message for {message.topic!r}: a transactional message cannot be delayed"
        )
    properties = dict(message.properties)
    if check_after_s is not None:
        if not is_whole(check_after_s) or check_after_s < 0:
            rule = "must be whole seconds, 0 or more"
            raise IllegalMessage(f"check_after_s is {check_after_s!r}, {rule}")
        properties[CHECK_IMMUNITY_S] = str(check_after_s)
    return SystemMessage(
        message.topic,
        message.body,
        tags=message.tags,
        keys=message.keys,
        properties=properties,
        sharding_key=message.sharding_key,
        flag=message.flag,
        system_properties={TRANSACTION_PREPARED: "true", PRODUCER_GROUP: group},
    )
