"""Administration of the dead letters of a cluster."""

import contextlib
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

from ternmq_client.admin.admin_calls import AdminCalls
from ternmq_client.admin.descriptions import BrokerList
from ternmq_client.admin.messages import split_messages
from ternmq_client.admin.redrive import DeadLetter, redrive_key, redrive_request, target_topic
from ternmq_model.errors import (
    MessageNotFound,
    RefusedError,
    TernError,
    TopicNotFound,
    refusal,
)
from ternmq_model.names import DEAD_LETTER_PREFIX, DEAD_LETTER_TOOLS, check_stored_group
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import BrokerData
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting.rpc import Connection
from ternmq_remoting.service_methods import (
    COMMIT_OFFSETS,
    DELETE_TOPIC,
    DESCRIBE_TOPIC,
    LOCK_QUEUES,
    PULL,
    QUERY_MESSAGES,
    QUERY_OFFSET,
    SEND,
    UNLOCK_QUEUES,
)

_CLOCKS_DIFFER_MS: Final = 3_600_000
"""Difference of two brokers' clocks that the search for a copy allows, ms."""


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Number of dead letters of a group."""

    group: str
    """Name of the group."""

    waiting: int
    """Number that were neither redriven nor dropped."""

    kept: int
    """Number that can still be read."""

    last_died_at_ms: int
    """Store time of the newest, Unix milliseconds; 0 = none is left."""


@dataclass(frozen=True, slots=True)
class Redriven:
    """Outcome of one dead letter's redrive."""

    message_id: str
    """Id of the message that became a dead letter."""

    topic: str
    """Topic of the new message."""

    new_message_id: str
    """Id of the new message."""

    outcome: str
    """`sent`; `sent before` (an interrupted run, or a redrive of this letter alone, sent it); or
    `would be sent`."""


@dataclass(frozen=True, slots=True)
class _DeadLetterQueue:
    """One queue of dead letters on one broker, with its progress."""

    data: BrokerData
    connection: Connection
    topic: str
    queue_id: int
    least: int
    end: int
    handled: int
    version: int
    last_stored_at_ms: int


class DeadLetterAdmin(AdminCalls):
    """Calls about dead letters. Changes lock the queue against other tools."""

    async def dead_letter_counts(self) -> BrokerList[DeadLetters]:
        """Return the number of dead letters of each group that has some, sorted by group.

        Raises:
            Unreachable: No broker answers; names each.
        """
        topics = [
            topic
            async for page in self._names.topics()
            for topic in page
            if topic.startswith(DEAD_LETTER_PREFIX)
        ]
        if not topics:
            return BrokerList()

        async def described(data: BrokerData, connection: Connection) -> list[_DeadLetterQueue]:
            found: list[_DeadLetterQueue] = []
            for topic in topics:
                with contextlib.suppress(TopicNotFound):
                    found += await self._queues(data, connection, topic)
            return found

        asked = await self._ask_each(described)
        by_topic: dict[str, list[_DeadLetterQueue]] = {topic: [] for topic in topics}
        for queue in chain.from_iterable(asked.answers):
            by_topic[queue.topic].append(queue)
        found = (
            DeadLetters(
                topic.removeprefix(DEAD_LETTER_PREFIX),
                sum(each.end - each.handled for each in queues),
                sum(each.end - each.least for each in queues),
                max((each.last_stored_at_ms for each in queues), default=0),
            )
            for topic, queues in by_topic.items()
        )
        return BrokerList(found, asked.unreachable)

    async def dead_letters(
        self, group: str, *, maximum: int = 100, with_handled: bool = False
    ) -> BrokerList[DeadLetter]:
        """Return a group's dead letters, broker by broker, oldest first.

        Args:
            group: Name of the consumer group.
            maximum: Limit of the result.
            with_handled: Include letters that were redriven or dropped and can still be read.

        Returns:
            The letters; empty for a group without dead letters, also for an unknown group.

        Raises:
            Unreachable: Brokers that answer have no letter, and some gave no answer; names them.
        """
        topic = DEAD_LETTER_PREFIX + check_stored_group(group)

        async def kept(data: BrokerData, connection: Connection) -> list[DeadLetter]:
            found: list[DeadLetter] = []
            for queue in await self._queues(data, connection, topic):
                begin = queue.least if with_handled else queue.handled
                async for letters, _ in _letters(queue, begin, self._timeout_s):
                    found += letters[: maximum - len(found)]
                    if len(found) >= maximum:
                        return found
            return found

        asked = await self._ask_each(kept, unknown=(TopicNotFound,))
        letters = islice(chain.from_iterable(asked.answers), maximum)
        return BrokerList(letters, asked.unreachable)

    async def redrive(
        self,
        group: str,
        *,
        message_ids: Collection[str] | None = None,
        to_group: bool = False,
        dry_run: bool = False,
    ) -> list[Redriven]:
        """Send dead letters again, each once, also after an interrupted run.

        The new message goes to the letter's original topic, where every group gets it, with no
        tries counted. Its unique key follows from the letter's offset, so an earlier run's message
        is found by the brokers' index, which must be on. Without `message_ids` all waiting letters
        are sent, in order, and the offset of the tools moves behind them.

        Args:
            group: Name of the consumer group.
            message_ids: Ids of the letters to send, waiting or not; None = all waiting letters.
            to_group: Send the new messages to the group alone.
            dry_run: Return the outcomes without sending.

        Raises:
            TopicNotFound: The original topic of a letter is deleted.
            MessageNotFound: No letter has one of the ids; the others were sent.
            UsageError: A letter has no original topic; the letters before it were sent.
            RefusedError: Another tool has locked the queue, or a broker refuses a letter.
            TransportError: A broker does not answer. Repeating is safe: no letter is sent twice.
        """
        done: list[Redriven] = []
        missing = set(message_ids or ())
        async with self._found(group) as (queues, connections):
            for queue in queues:
                begin = queue.handled if message_ids is None else queue.least
                async with self._locked(queue, is_needed=not dry_run) as token:
                    async for letters, behind in _letters(queue, begin, self._timeout_s):
                        for letter in letters:
                            if message_ids is not None and not letter.is_any_of(message_ids):
                                continue
                            missing -= {each for each in missing if letter.is_any_of({each})}
                            done.append(
                                await self._redrive(
                                    letter, queue, connections, to_group=to_group, dry_run=dry_run
                                )
                            )
                        if not dry_run:
                            await self._lock(queue, token)
                        if message_ids is None and not dry_run:
                            await self._commit(queue, behind, token)
        if missing:
            remark = f"group {group!r} has no dead letter {', '.join(sorted(missing))}"
            raise refusal(ResponseCode.QUERY_NOT_FOUND, remark)
        return done

    async def drop_dead_letters(self, group: str, *, through: str = "") -> int:
        """Mark dead letters as handled and return their number. They stay until they expire.

        Args:
            group: Name of the consumer group.
            through: Id of the last letter to drop, on its broker alone; empty = all letters.

        Raises:
            MessageNotFound: No waiting letter has the id; nothing is dropped.
            RefusedError: Another tool has locked the queue.
        """
        count = 0
        async with self._found(group) as (queues, _):
            for queue in queues:
                end: int | None = queue.end
                async with self._locked(queue, is_needed=True) as token:
                    if through:
                        end = await self._behind(queue, through)
                    if end is not None:
                        await self._commit(queue, end, token)
                        count += end - queue.handled
                        if through:
                            return count
        if through:
            remark = f"group {group!r} has no dead letter {through} that waits"
            raise refusal(ResponseCode.QUERY_NOT_FOUND, remark)
        return count

    async def delete_dead_letters(self, group: str) -> list[str]:
        """Delete a group's topic of dead letters; return the names of the brokers that had it."""
        request = admin.DeleteTopicRequest(topic=DEAD_LETTER_PREFIX + check_stored_group(group))
        async with self._found(group) as (queues, _):
            connections = {each.data.broker_name: each.connection for each in queues}
            for connection in connections.values():
                await self._call(connection, DELETE_TOPIC, request)
        return sorted(connections)

    async def _redrive(
        self,
        letter: DeadLetter,
        queue: _DeadLetterQueue,
        connections: Sequence[Connection],
        *,
        to_group: bool,
        dry_run: bool,
    ) -> Redriven:
        topic, key = target_topic(letter, to_group=to_group), redrive_key(letter)
        outcome = "would be sent" if dry_run else "sent"
        if await self._is_sent(letter, topic, key, connections):
            outcome = "sent before"
        elif not dry_run:
            # The letter's own broker comes first: the group consumes from it already.
            request = redrive_request(letter, to_group=to_group)
            others = [each for each in connections if each is not queue.connection]
            await self._send([queue.connection, *others], request)
        return Redriven(letter.origin_message_id, topic, key, outcome)

    async def _is_sent(
        self, letter: DeadLetter, topic: str, key: str, connections: Sequence[Connection]
    ) -> bool:
        request = messages.QueryMessagesRequest(
            topic=topic,
            key=key,
            begin_ms=max(0, letter.message.stored_at_ms - _CLOCKS_DIFFER_MS),
            messages_max=1,
            is_unique_key=True,
        )
        for connection in connections:
            with contextlib.suppress(MessageNotFound, TopicNotFound):
                await self._call(connection, QUERY_MESSAGES, request)
                return True
        return False

    async def _send(self, connections: Sequence[Connection], request: messages.SendRequest) -> None:
        failure: RefusedError | None = None
        for connection in connections:
            try:
                reply = await self._call(connection, SEND, request)
            except TopicNotFound as error:
                failure = error
                continue
            if reply.status.code:
                raise refusal(reply.status.code, reply.status.remark, may_have_happened=True)
            return
        assert failure is not None, "there is a broker"
        raise failure

    @asynccontextmanager
    async def _locked(self, queue: _DeadLetterQueue, *, is_needed: bool) -> AsyncGenerator[int]:
        """Hold the lock of a queue and yield its token; 0 without a lock."""
        if not is_needed:
            yield 0
            return
        held = await self._lock(queue)
        try:
            yield held.token
        finally:
            # A lock that is not released expires, and the first error is the one to raise.
            with contextlib.suppress(TernError):
                request = groups.UnlockQueuesRequest(
                    group=DEAD_LETTER_TOOLS, client_id=self._tool_id, queues=[held]
                )
                await self._call(queue.connection, UNLOCK_QUEUES, request)

    async def _lock(self, queue: _DeadLetterQueue, token: int = 0) -> groups.QueueLock:
        """Lock a queue, or renew the lock with `token`.

        Raises:
            RefusedError: NO_PERMISSION: another tool has locked the queue.
        """
        lock = groups.QueueLock(topic=queue.topic, queue_id=queue.queue_id, token=token)
        request = groups.LockQueuesRequest(
            group=DEAD_LETTER_TOOLS, client_id=self._tool_id, queues=[lock]
        )
        reply = await self._call(queue.connection, LOCK_QUEUES, request)
        if not reply.locked:
            remark = (
                f"{queue.topic} queue {queue.queue_id} on {queue.data.broker_name} is being handled"
                " by another command, or by one that was cut off less than 30 s ago"
            )
            raise refusal(ResponseCode.NO_PERMISSION, remark)
        return reply.locked[0]

    async def _commit(self, queue: _DeadLetterQueue, offset: int, token: int) -> None:
        """Commit the offset up to which the letters of a queue are handled."""
        committed = groups.QueueOffset(
            topic=queue.topic,
            queue_id=queue.queue_id,
            offset=offset,
            version=queue.version,
            lock_token=token,
        )
        request = groups.CommitOffsetsRequest(
            group=DEAD_LETTER_TOOLS, client_id=self._tool_id, offsets=[committed]
        )
        reply = await self._call(queue.connection, COMMIT_OFFSETS, request)
        if reply.refused:
            raise refusal(reply.refused[0].status.code, reply.refused[0].status.remark)

    async def _behind(self, queue: _DeadLetterQueue, message_id: str) -> int | None:
        """Return the offset behind a waiting letter; None when it is not in this queue."""
        async for letters, _ in _letters(queue, queue.handled, self._timeout_s):
            for letter in letters:
                if letter.is_any_of({message_id}):
                    return letter.message.queue_offset + 1
        return None

    @asynccontextmanager
    async def _found(
        self, group: str
    ) -> AsyncGenerator[tuple[Sequence[_DeadLetterQueue], Sequence[Connection]]]:
        """Connect to all masters, and yield the queues of a group's dead letters beside that."""
        topic = DEAD_LETTER_PREFIX + check_stored_group(group)
        async with self._masters(await self._writable()) as masters:
            found: list[_DeadLetterQueue] = []
            for data, connection in masters:
                with contextlib.suppress(TopicNotFound):
                    found += await self._queues(data, connection, topic)
            yield found, [connection for _, connection in masters]

    async def _queues(
        self, data: BrokerData, connection: Connection, topic: str
    ) -> list[_DeadLetterQueue]:
        """Return the queues of a topic on one broker.

        Raises:
            TopicNotFound: The broker does not have the topic.
        """
        request = admin.DescribeTopicRequest(topic=topic)
        found: list[_DeadLetterQueue] = []
        for one in (await self._call(connection, DESCRIBE_TOPIC, request)).queues:
            query = groups.QueryOffsetRequest(
                group=DEAD_LETTER_TOOLS, topic=topic, queue_id=one.queue_id
            )
            committed = await self._call(connection, QUERY_OFFSET, query)
            queue = _DeadLetterQueue(
                data,
                connection,
                topic,
                one.queue_id,
                one.min_offset,
                one.max_offset,
                min(max(committed.offset, one.min_offset), one.max_offset),
                committed.version,
                one.last_stored_at_ms,
            )
            found.append(queue)
        return found

    @property
    def _tool_id(self) -> str:
        """Client id with which this tool locks queues and commits offsets."""
        if not self._tool:
            assert self._env is not None, "is open"
            self._tool = f"dead-letters@{self._env.random.getrandbits(64):016x}"
        return self._tool

    _tool: str = ""


async def _letters(
    queue: _DeadLetterQueue, begin: int, timeout_s: float
) -> AsyncGenerator[tuple[list[DeadLetter], int]]:
    """Yield the letters of a queue in order, some at a time, with the offset behind them."""
    offset = begin
    while offset < queue.end:
        request = messages.PullRequest(
            topic=queue.topic,
            queue_id=queue.queue_id,
            offset=offset,
            subscription=messages.Subscription(expression="*"),
        )
        reply = await queue.connection.call(PULL, request, timeout_s=timeout_s)
        found = split_messages(reply.records, reply.record_sizes, queue.data.broker_name)
        if reply.next_offset <= offset:
            return
        offset = reply.next_offset
        yield (
            [
                DeadLetter(each, each.queue_offset < queue.handled)
                for each in found
                if each.queue_offset < queue.end
            ],
            min(offset, queue.end),
        )
