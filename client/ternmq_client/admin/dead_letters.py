"""Administration of dead letters, over a whole cluster."""

import contextlib
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from ternmq_client.admin.admin_calls import AdminCalls
from ternmq_client.admin.descriptions import BrokerList
from ternmq_client.admin.message_records import split_messages
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
"""A copy may lie on another broker, whose clock is another one."""


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Number of dead letters of a group."""

    group: str
    """Name of the group."""

    waiting: int
    """Neither redriven nor dropped."""

    kept: int
    """All that can still be read."""

    last_died_at_ms: int
    """Store time of the newest; 0 = there is none any more."""


@dataclass(frozen=True, slots=True)
class Redriven:
    """Outcome of one dead letter's redrive."""

    message_id: str
    """Id of the message that died."""

    topic: str
    """Topic that it was sent to."""

    new_message_id: str
    """Id of the message that was sent for it."""

    outcome: str
    """`sent`; `sent before`, by a run that was interrupted or for this letter alone; or `would be
    sent`."""


@dataclass(frozen=True, slots=True)
class _DeadLetterQueue:
    """One queue of dead letters on one broker, as far as it is handled."""

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
    """Dead letters of every group. Who handles some locks their queue, so that nobody else does."""

    async def dead_letter_counts(self) -> BrokerList[DeadLetters]:
        """Return the groups that have dead letters, sorted, with how many.

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
        for queue in (queue for _, told in asked.told for queue in told):
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
            group: Who gave them up.
            maximum: At most so many.
            with_handled: Also those that were redriven or dropped and can still be read.

        Returns:
            Nothing of a group without dead letters, also of one that no broker knows.

        Raises:
            Unreachable: It has none where brokers answer, and not all do; names each such.
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
        found = [letter for _, told in asked.told for letter in told]
        return BrokerList(found[:maximum], asked.unreachable)

    async def redrive(
        self,
        group: str,
        *,
        message_ids: Collection[str] | None = None,
        to_group: bool = False,
        dry_run: bool = False,
    ) -> list[Redriven]:
        """Send dead letters again, each once: what an interrupted run has sent is not sent again.

        Each goes to the topic that it was sent to first, where every group gets it, as a message
        without tries behind it. It is looked for there by a key that follows from its place, so the
        brokers need their index. Without `message_ids` all that wait are sent, in order, and count
        as handled.

        Args:
            group: Who gave them up.
            message_ids: Only these, by any of their ids, and those handled before as well.
            to_group: Send them to the group alone.
            dry_run: Tell what would be sent.

        Raises:
            TopicNotFound: A first topic is gone.
            MessageNotFound: There is no letter with one of the ids; others were sent.
            UsageError: A letter does not say where it came from; those before were sent.
            RefusedError: Somebody else handles the queue, or a broker refuses a letter.
            TransportError: A broker does not answer. Do it again: nothing is sent twice.
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
                            await self._renew(queue, token)
                        if message_ids is None and not dry_run:
                            await self._handled(queue, behind, token)
        if missing:
            remark = f"group {group!r} has no dead letter {', '.join(sorted(missing))}"
            raise refusal(ResponseCode.QUERY_NOT_FOUND, remark)
        return done

    async def drop_dead_letters(self, group: str, *, through: str = "") -> int:
        """Count dead letters as handled, and return how many; they stay until they expire.

        Args:
            group: Who gave them up.
            through: Up to the letter with this id, on its broker alone; empty = all.

        Raises:
            MessageNotFound: No letter that waits has the id; nothing is dropped.
            RefusedError: Somebody else handles the queue.
        """
        count = 0
        async with self._found(group) as (queues, _):
            for queue in queues:
                end: int | None = queue.end
                async with self._locked(queue, is_needed=True) as token:
                    if through:
                        end = await self._behind(queue, through)
                    if end is not None:
                        await self._handled(queue, end, token)
                        count += end - queue.handled
                        if through:
                            return count
        if through:
            remark = f"group {group!r} has no dead letter {through} that waits"
            raise refusal(ResponseCode.QUERY_NOT_FOUND, remark)
        return count

    async def delete_dead_letters(self, group: str) -> list[str]:
        """Delete a group's dead letters with their files; return the brokers' names.

        None are returned of a group without dead letters.
        """
        request = admin.DeleteTopicRequest(topic=DEAD_LETTER_PREFIX + check_stored_group(group))
        async with self._found(group) as (queues, _):
            connections = {each.data.broker_name: each.connection for each in queues}
            for connection in connections.values():
                await connection.call(DELETE_TOPIC, request, timeout_s=self._timeout_s)
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
            # The broker that has the letter takes it too, if it can: its group looks there anyway.
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
            try:
                await connection.call(QUERY_MESSAGES, request, timeout_s=self._timeout_s)
            except (MessageNotFound, TopicNotFound):
                continue
            return True
        return False

    async def _send(self, connections: Sequence[Connection], request: messages.SendRequest) -> None:
        failure: RefusedError | None = None
        for connection in connections:
            try:
                reply = await connection.call(SEND, request, timeout_s=self._timeout_s)
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
        """Give the token of the queue's lock; 0 when none is needed."""
        if not is_needed:
            yield 0
            return
        client_id = self._tool_id
        lock = groups.QueueLock(topic=queue.topic, queue_id=queue.queue_id)
        reply = await queue.connection.call(
            LOCK_QUEUES,
            groups.LockQueuesRequest(group=DEAD_LETTER_TOOLS, client_id=client_id, queues=[lock]),
            timeout_s=self._timeout_s,
        )
        if not reply.locked:
            raise _is_handled_elsewhere(queue)
        (held,) = reply.locked
        try:
            yield held.token
        finally:
            # Where that fails the lock ends by itself, and the reason is told by what came before.
            with contextlib.suppress(TernError):
                await queue.connection.call(
                    UNLOCK_QUEUES,
                    groups.UnlockQueuesRequest(
                        group=DEAD_LETTER_TOOLS, client_id=client_id, queues=[held]
                    ),
                    timeout_s=self._timeout_s,
                )

    async def _renew(self, queue: _DeadLetterQueue, token: int) -> None:
        lock = groups.QueueLock(topic=queue.topic, queue_id=queue.queue_id, token=token)
        reply = await queue.connection.call(
            LOCK_QUEUES,
            groups.LockQueuesRequest(
                group=DEAD_LETTER_TOOLS, client_id=self._tool_id, queues=[lock]
            ),
            timeout_s=self._timeout_s,
        )
        if not reply.locked:
            raise _is_handled_elsewhere(queue)

    async def _handled(self, queue: _DeadLetterQueue, offset: int, token: int) -> None:
        """Keep up to where the queue is handled."""
        told = groups.QueueOffset(
            topic=queue.topic,
            queue_id=queue.queue_id,
            offset=offset,
            version=queue.version,
            lock_token=token,
        )
        reply = await queue.connection.call(
            COMMIT_OFFSETS,
            groups.CommitOffsetsRequest(
                group=DEAD_LETTER_TOOLS, client_id=self._tool_id, offsets=[told]
            ),
            timeout_s=self._timeout_s,
        )
        if reply.refused:
            raise refusal(reply.refused[0].status.code, reply.refused[0].status.remark)

    async def _behind(self, queue: _DeadLetterQueue, message_id: str) -> int | None:
        """Return the offset behind a letter that waits, None when it is not in this queue."""
        async for letters, _ in _letters(queue, queue.handled, self._timeout_s):
            for letter in letters:
                if letter.is_any_of({message_id}):
                    return letter.message.queue_offset + 1
        return None

    @asynccontextmanager
    async def _found(
        self, group: str
    ) -> AsyncGenerator[tuple[Sequence[_DeadLetterQueue], Sequence[Connection]]]:
        """Give the queues of a group's dead letters, if any, and a connection to each master."""
        topic = DEAD_LETTER_PREFIX + check_stored_group(group)
        async with self._masters(await self._wanted()) as masters:
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
            TopicNotFound: The broker does not have it.
        """
        request = admin.DescribeTopicRequest(topic=topic)
        described = await connection.call(DESCRIBE_TOPIC, request, timeout_s=self._timeout_s)
        found: list[_DeadLetterQueue] = []
        for one in described.queues:
            asked = groups.QueryOffsetRequest(
                group=DEAD_LETTER_TOOLS, topic=topic, queue_id=one.queue_id
            )
            kept = await connection.call(QUERY_OFFSET, asked, timeout_s=self._timeout_s)
            queue = _DeadLetterQueue(
                data,
                connection,
                topic,
                one.queue_id,
                one.min_offset,
                one.max_offset,
                min(max(kept.offset, one.min_offset), one.max_offset),
                kept.version,
                one.last_stored_at_ms,
            )
            found.append(queue)
        return found

    @property
    def _tool_id(self) -> str:
        """Names this client at the brokers."""
        if not self._tool:
            assert self._env is not None, "is open"
            self._tool = f"dead-letters@{self._env.random.getrandbits(64):016x}"
        return self._tool

    _tool: str = ""


async def _letters(
    queue: _DeadLetterQueue, begin: int, timeout_s: float
) -> AsyncGenerator[tuple[list[DeadLetter], int]]:
    """Give the letters of a queue in order, some at a time, with the offset behind them."""
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


def _is_handled_elsewhere(queue: _DeadLetterQueue) -> RefusedError:
    remark = (
        f"{queue.topic} queue {queue.queue_id} on {queue.data.broker_name} is being handled by"
        " another command, or by one that was cut off less than 30 s ago"
    )
    return refusal(ResponseCode.NO_PERMISSION, remark)
