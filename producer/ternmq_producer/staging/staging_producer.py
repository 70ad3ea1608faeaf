"""The producer that stages messages, and ends them together."""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np

from ternmq_client.config import ClientConfig
from ternmq_client.retry_policy import RetryPolicy
from ternmq_client.retry_timeout import TOLD_EVERY_MS, RetryTimeout, lasted, nobody_registered, tell
from ternmq_model.arguments import is_kind
from ternmq_model.arrays import Ints
from ternmq_model.errors import (
    RequestTimedOut,
    TernError,
    TopicNotFound,
    TransportError,
    Unreachable,
    UsageError,
)
from ternmq_model.message import Message, SendManyFailed, SendResult
from ternmq_model.names import check_topic
from ternmq_model.transaction import Resolution, TransactionState
from ternmq_producer.batch.atomic_batch import check_messages
from ternmq_producer.batch.column_results import ColumnResults, SendColumnsFailed
from ternmq_producer.columns.message_columns import MessageColumns
from ternmq_producer.config import ProducerConfig
from ternmq_producer.producer import Producer
from ternmq_producer.staging.half_messages import HalfMessages, staging_suffix
from ternmq_producer.staging.staged_call import Rows, StagedCall
from ternmq_producer.staging.staged_messages import StagedMessage, StagedMessages
from ternmq_producer.staging.staging_errors import StageFailed
from ternmq_remoting.environment import Environment
from ternmq_runtime.lifecycle import Lifecycle
from ternmq_runtime.service import OwnedTasks

IMMUNITY_S: Final = 3600
_ATTEMPTS_MAX: Final = 8
"""Attempts for one message, enough for a broker that is killed repeatedly."""

_STAGE_TIMEOUT_S: Final = 30.0
_ANSWER_TIMEOUT_S: Final = 60.0


class StagingProducer(Lifecycle):
    """Producer of batches of messages that become visible together.

        async with StagingProducer("sink") as producer:
            staged = await producer.stage(messages, staged_for="query/7")
            await producer.end(staged, Resolution.COMMIT)

    One process may stage and another end: `encode_staged` returns the bytes to carry between two
    processes of the same producer group.

    Any number of tasks may use the producer, on the event loop that entered the block. Log lines
    and errors call `timeout_s` by the name of Spark's option, `retryTimeout`. Half messages are
    never stored twice, whatever `duplicates_allowed` of `config` is; without `config` a message has
    8 attempts.

    Raises:
        IllegalName: The group's name is illegal.
        ConfigError: An address of a NameServer is illegal.
    """

    def __init__(
        self,
        group: str,
        *,
        nameserver: str | Sequence[str] | None = None,
        config: ProducerConfig | None = None,
        client: ClientConfig | None = None,
        env: Environment | None = None,
    ) -> None:
        config = config or ProducerConfig(attempts_max=_ATTEMPTS_MAX)
        self._config = replace(config, duplicates_allowed=False)
        self._producer = Producer(
            group, nameserver=nameserver, config=self._config, client=client, env=env
        )
        self._retry = RetryPolicy(delay_s_first=0.1, delay_s_max=1.0)

    @property
    def group(self) -> str:
        """Name of the producer group."""
        return self._producer.group

    async def _open(self, stack: AsyncExitStack) -> None:
        """Open the producer. No service need be reachable yet."""
        await stack.enter_async_context(self._producer)

    async def stage(
        self,
        messages: Sequence[Message],
        *,
        staged_for: str,
        immunity_s: int = IMMUNITY_S,
        timeout_s: float | None = None,
    ) -> StagedMessages:
        """Store invisible half messages and return their places, in the order of `messages`.

        Messages with a sharding key keep their order and their queue. A delay counts from the
        commit on. Cancelling stops the waiting: the messages may be stored all the same, and are
        rolled back after their immunity.

        A message that is stored and not confirmed (a status other than SEND_OK, as while a slave is
        away) counts as staged: `states` waits for the confirmation, and finds a lost message.

        Args:
            messages: Messages of any topics, encoded at once: pass some ten thousand at a time.
            staged_for: Name of the batch, such as `query/7`: 1 to 200 printable ASCII characters
                without blanks. The messages' property TERNMQ_STAGED_FOR, also after the commit.
            immunity_s: Time from the store time after which the broker rolls the messages back, s.
                Earlier at the end of the retention time.
            timeout_s: Time limit while no NameServer returns a route or knows a broker, and again
                for each part of the messages, from its begin, while brokers are away. None = 30.

        Raises:
            UsageError: `staged_for` or `immunity_s` is illegal; nothing was sent.
            StageFailed: Some messages are illegal or not stored, or may not be; its `staged` has
                the others.
        """
        suffix = staging_suffix(self.group, staged_for=staged_for, immunity_s=immunity_s)
        limit_s = _STAGE_TIMEOUT_S if timeout_s is None else timeout_s
        check_messages(messages)
        topics = tuple(dict.fromkeys(one.topic for one in messages if is_kind(one.topic, str)))
        halves = HalfMessages(messages, suffix)
        async with self._known(topics, len(messages), limit_s):
            try:
                results = await self._producer.send_many(halves, timeout_s=limit_s)
            except SendManyFailed as failed:
                raise _stage_failed(failed.results, limit_s) from failed
        names: dict[tuple[str, str], int] = {}
        places = [
            names.setdefault((queue.broker_name, queue.topic), len(names))
            for queue in results.queues
        ]
        return StagedMessages.of_columns(
            tuple(names),
            np.array(places, dtype=np.uint16),
            results.physical_offsets,
            results.unique_keys,
        )

    async def stage_columns(
        self,
        topic: str,
        bodies: Any,
        *,
        tags: Any = None,
        keys: Any = None,
        properties: Any = None,
        sharding_keys: Any = None,
        staged_for: str,
        immunity_s: int = IMMUNITY_S,
        timeout_s: float | None = None,
    ) -> StagedMessages:
        """Store a half message for each row of columns, as `stage` does for each message.

        Args:
            topic: Topic of all messages.
            bodies: Bodies. This and the following columns are those of `Producer.send_columns`.
            tags: Tags.
            keys: Keys.
            properties: Properties.
            sharding_keys: Sharding keys.
            staged_for: Name of the batch, as for `stage`.
            immunity_s: Immunity of the messages, s, as for `stage`.
            timeout_s: Time limit, as for `stage`.

        Raises:
            UsageError: A column has another type or length, or a string that is no UTF-8, or
                `staged_for` or `immunity_s` is illegal; nothing was sent.
            StageFailed: Some messages are illegal or not stored, or may not be; its `staged` has
                the others.
        """
        suffix = staging_suffix(self.group, staged_for=staged_for, immunity_s=immunity_s)
        limit_s = _STAGE_TIMEOUT_S if timeout_s is None else timeout_s
        columns = MessageColumns(
            topic, bodies, tags=tags, keys=keys, properties=properties,
            sharding_keys=sharding_keys, suffix=suffix,
        )  # fmt: skip
        async with self._known((topic,), len(columns), limit_s):
            try:
                results = await self._producer.send_encoded(columns, limit_s)
            except SendColumnsFailed as failed:
                results, errors = failed.results, failed.results.errors
                staged = _staged(topic, results, np.flatnonzero(results.brokers >= 0))
                first, count = next(iter(errors)), len(results)
                raise _failure([*errors.values()], staged, first, count, limit_s) from failed
        return _staged(topic, results, slice(None))

    @asynccontextmanager
    async def _known(
        self, topics: Sequence[str], count: int, limit_s: float
    ) -> AsyncGenerator[None]:
        """Send in the block once the routes of `topics` are known, with a log of missing brokers.

        Raises:
            StageFailed: No NameServer returned a route in time.
        """
        try:
            await self._find(topics, limit_s)
        except TernError as error:
            raise StageFailed(error, StagedMessages(), failures=count, count=count) from error
        async with OwnedTasks() as tasks:
            tasks.spawn(self._tell_who_is_away(topics, limit_s), "tell who is away")
            yield

    async def states(
        self, staged: Sequence[StagedMessage], *, timeout_s: float = _ANSWER_TIMEOUT_S
    ) -> list[TransactionState]:
        """Return the states of staged messages, in order, without a change.

        OPEN messages can be committed now. The call waits while a broker is away.

        Args:
            staged: Messages of this producer group.
            timeout_s: Time limit of a broker's silence.

        Raises:
            TernError: A broker gave no states; the text names the broker.
        """
        columns = StagedMessages.of(staged)
        call = self._call(columns, timeout_s)
        states = np.zeros(len(columns), dtype=np.uint8)
        await _of_each_broker(columns, lambda name, rows: call.find(name, rows, states))
        by_value = {state.value: state for state in TransactionState}
        return [by_value[value] for value in states.tolist()]

    async def end(
        self,
        staged: Sequence[StagedMessage],
        resolution: Resolution,
        *,
        timeout_s: float = _ANSWER_TIMEOUT_S,
    ) -> None:
        """Commit staged messages, or roll them back, on each broker in the order of storage.

        Repeating the call with the same resolution is safe, from any process. Cancelling leaves
        some messages ended and others open.

        Args:
            staged: Messages of this producer group.
            resolution: COMMIT or ROLLBACK.
            timeout_s: Time limit of a broker's silence, such as its restart.

        Raises:
            UsageError: `resolution` is UNKNOWN.
            EndFailed: Some messages are not ended, or may not be; all others are.
        """
        if resolution is Resolution.UNKNOWN:
            raise UsageError("staged messages end by COMMIT or ROLLBACK")
        columns = StagedMessages.of(staged)
        call = self._call(columns, timeout_s)
        await _of_each_broker(columns, lambda name, rows: call.end(name, rows, resolution))
        call.check()

    async def _find(self, topics: Sequence[str], timeout_s: float) -> None:
        """Wait for the routes of `topics`; errors of a topic are left to the send.

        Raises:
            TransportError: No NameServer answered in time.
        """
        client, config = self._producer.client, self._config
        retry_timeout = RetryTimeout(client.env, timeout_s)
        template = config.template_topic if config.creates_topics else None
        find = partial(
            client.routes.route_to_write, template=template, queues_max=config.topic_queues
        )
        while True:
            try:
                for topic in topics:
                    check_topic(topic)
                await asyncio.gather(*map(find, topics))
                return
            except TransportError as error:
                failure: TernError = error
            except TopicNotFound as error:
                failure = error
                with suppress(TransportError):  # NameServers answered just now
                    if not await client.nameservers.brokers():
                        failure = nobody_registered(client.nameservers.addresses)
            except TernError:
                return
            try:
                await retry_timeout.pause(failure)
            except TopicNotFound:
                return

    async def _tell_who_is_away(self, topics: Sequence[str], timeout_s: float) -> None:
        """Log, until cancelled, the brokers that a send waits for, with the first part's time."""
        client = self._producer.client
        pause_s = TOLD_EVERY_MS / 1000
        for number in itertools.count(1):
            await client.env.timers.sleep(pause_s)
            routes = filter(None, map(client.routes.cached, topics))
            names = {queue.broker_name for route in routes for queue in route.write_queues()}
            if away := sorted(name for name in names if client.reaches(name) is False):
                left_s = max(0.0, timeout_s - number * pause_s)
                tell(f"broker {', '.join(away)}: cannot be reached", left_s)

    def _call(self, staged: StagedMessages, timeout_s: float) -> StagedCall:
        return StagedCall(
            self._producer.client, self.group, staged, retry=self._retry, timeout_s=timeout_s
        )


async def _of_each_broker(
    staged: StagedMessages, ask: Callable[[str, Rows], Coroutine[Any, Any, None]]
) -> None:
    """Ask all brokers concurrently for their messages; raise the first error as it is."""
    # Each task is awaited inside the block: in Python 3.11 a group whose tasks fail at its end
    # leaves its caller marked as cancelled.
    brokers = staged.rows_by_broker()
    try:
        async with OwnedTasks() as tasks:
            for asked in [tasks.spawn(ask(name, rows), name) for name, rows in brokers.items()]:
                await asked
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None


def _staged(topic: str, results: ColumnResults, rows: slice | Ints) -> StagedMessages:
    """Return the stored messages of some rows."""
    return StagedMessages.of_columns(
        [(name, topic) for name in results.broker_names],
        results.brokers[rows].astype(np.uint16),
        results.physical_offsets[rows],
        results.unique_keys[rows],
    )


def _stage_failed(results: Sequence[SendResult | TernError], limit_s: float) -> StageFailed:
    errors = [result for result in results if isinstance(result, TernError)]
    staged = StagedMessages.of(
        StagedMessage(one.queue.broker_name, one.queue.topic, one.physical_offset, one.message_id)
        for one in results
        if isinstance(one, SendResult)
    )
    return _failure(errors, staged, results.index(errors[0]), len(results), limit_s)


def _failure(
    errors: Sequence[TernError], staged: StagedMessages, first: int, count: int, limit_s: float
) -> StageFailed:
    """Return the error for `count` messages, of which the one at `first` failed first."""
    reason = errors[0]
    if isinstance(reason, Unreachable | RequestTimedOut):  # others use up attempts, not the time
        reason = lasted(reason, limit_s)
    reason.may_have_happened = any(error.may_have_happened for error in errors)
    return StageFailed(reason, staged, failures=len(errors), count=count, first=first)
