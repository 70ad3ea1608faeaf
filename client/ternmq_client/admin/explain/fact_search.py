"""Search for the facts about one message, by the calls that administrators have anyway."""

from collections import Counter
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.admin.descriptions import GroupDescription, UnreachableBroker
from ternmq_client.admin.explain.facts import MessageFacts, RecordFacts, record_facts
from ternmq_client.admin.explain.group_progress import is_subscribed, row_of
from ternmq_client.admin.messages import QUERIED_MAX
from ternmq_client.admin.open_transactions import TransactionView
from ternmq_client.admin.redrive import DeadLetter, redrive_key
from ternmq_client.tracing.trace_records import MessageSent, TraceRecord
from ternmq_model import properties as names
from ternmq_model.errors import (
    MessageNotFound,
    PermissionRefused,
    TernError,
    TopicNotFound,
    Unreachable,
    UsageError,
    refusal,
)
from ternmq_model.message_id import host_text, parse_offset_message_id
from ternmq_model.names import (
    DEAD_LETTER_PREFIX,
    DEAD_LETTER_TOOLS,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TRACE_TOPIC,
    is_system_group,
)
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_model.stored_message import StoredMessage
from ternmq_protos.v1.groups_pb2 import RunningState
from ternmq_protos.v1.replication_pb2 import ReplicationStatusReply

_QUERIES_MAX: Final = 64
_EVERY: Final = 1 << 31
_READ_MAX: Final = 16
"""Records that are read again through their queues, and dead letters whose redrive is looked up."""

_MEMBERS_MAX: Final = 16
"""Members of a group that are asked for their running state."""

_GROUPS_MAX: Final = 256
"""Producer groups whose transactions are searched."""

_NAMED_MAX: Final = 8


async def find_by_key(admin: AdminClient, topic: str, key: str) -> str:
    """Return the id of the one message of a topic with a key.

    Raises:
        MessageNotFound: No broker finds a message.
        TopicNotFound: No broker has the topic.
        UsageError: Several messages have the key; names up to eight.
    """
    found = await admin.query_messages(topic, key)
    ids = list(dict.fromkeys(one.message_id for one in reversed(found)))
    if len(ids) > 1:
        named = ", ".join(ids[:_NAMED_MAX])
        more = f" and {len(ids) - _NAMED_MAX} more" if len(ids) > _NAMED_MAX else ""
        count = f"{len(ids)} or more" if len(found) >= QUERIED_MAX else str(len(ids))
        raise UsageError(
            f"{count} messages of topic {topic!r} have the key {key!r}; name one by its id, the "
            f"newest first: {named}{more}"
        )
    return ids[0]


async def find_facts(
    admin: AdminClient,
    message_id: str,
    *,
    asked_at_ms: int,
    groups: Collection[str] = (),
    producer_groups: Collection[str] = (),
    trace_topic: str = TRACE_TOPIC,
) -> MessageFacts:
    """Return what the brokers of a cluster know of one message.

    Args:
        admin: Open client.
        message_id: Offset message id, which is tried first, or unique key.
        asked_at_ms: Present time, Unix milliseconds.
        groups: Consumer groups to describe; empty = those that know the message's topic.
        producer_groups: Further groups that may have sent it in a transaction.
        trace_topic: Topic that clients send their traces to.

    Raises:
        MessageNotFound: No broker knows the message; the text says what that may mean.
        Unreachable: No broker that answers knows it, and some gave no answer; names them.
    """
    search = _FactSearch(admin, trace_topic)
    records = await search.records_of(message_id)
    key = search.key
    traces = await search.traces_of(key)
    transactions: Sequence[TransactionView] = ()
    if not any(one.is_delivery or one.is_waiting for one in records):
        sent_by = {one.group for _, one in traces}
        transactions = await search.transactions_of(key, {*producer_groups, *sent_by})
    if not records and not traces and not transactions:
        await search.refuse(message_id)
    sent_to = {one.topic for _, one in traces if isinstance(one, MessageSent)}
    described = await search.groups_of(records, groups, sent_to)
    handled, redriven = await search.letters_of()
    return MessageFacts(
        message_id=key,
        asked_at_ms=asked_at_ms,
        records=records,
        first_read=await search.first_read(records),
        replication=await search.replication_of(records),
        groups=described,
        only=groups,
        running=await search.running_in(described, records),
        transactions=transactions,
        redriven=redriven,
        handled=handled,
        traces=traces,
        gaps=tuple(search.gaps),
        unreachable=tuple(search.unreachable),
    )


@dataclass(slots=True)
class _FactSearch:
    """One search. Owns the gaps that its questions left."""

    admin: AdminClient
    trace_topic: str
    key: str = ""
    messages: list[StoredMessage] = field(default_factory=list[StoredMessage])
    gaps: dict[str, None] = field(default_factory=dict[str, None])
    unreachable: dict[UnreachableBroker, None] = field(
        default_factory=dict[UnreachableBroker, None]
    )

    @asynccontextmanager
    async def asking(
        self, what: str, *, but: type[TernError] | tuple[()] = ()
    ) -> AsyncGenerator[None]:
        """Turn the refusal of a question, or a lost broker, into a gap.

        Args:
            what: Subject of the question.
            but: Errors that are raised.
        """
        try:
            yield
        except but:
            raise
        except (MessageNotFound, TopicNotFound):
            pass
        except PermissionRefused as error:
            self.gaps["topics and groups that you may not see are left out"] = None
            self.gaps[f"{what}: you may not see it: {error}"] = None
        except TernError as error:
            self.gaps[f"{what}: {error}"] = None

    async def records_of(self, message_id: str) -> Sequence[RecordFacts]:
        """Return every record of a message that its id leads to."""
        self.key = message_id
        first = await self._by_offset(message_id)
        if first is not None:
            self.key = first.message_id
            self.messages.append(first)
            if names.UNIQUE_KEY not in first.properties:
                self.gaps["it has no unique key, so its retries and dead letters are not found"] = (
                    None
                )
        await self._by_key(self.key)
        origins = {one.properties.get(names.ORIGIN_MESSAGE_ID, "") for one in self.messages}
        origins -= {one.offset_message_id for one in self.messages}
        for origin in sorted(origins - {""}):
            # A broker without an index finds the record by its place.
            found = await self._by_offset(origin)
            if found is not None:
                self.messages.append(found)
        async with self.asking("delayed copies"):
            # A query of all topics leaves out the topics that the caller may not read.
            await self.admin.query_messages(SCHEDULE_TOPIC, self.key, maximum=1)
        by_place = {(one.queue.broker_name, one.physical_offset): one for one in self.messages}
        self.messages = sorted(
            by_place.values(), key=lambda one: (one.stored_at_ms, one.physical_offset)
        )
        return [record_facts(one) for one in self.messages]

    async def _by_offset(self, message_id: str) -> StoredMessage | None:
        # The query by key names the brokers that give no answer, too.
        with suppress(MessageNotFound, UsageError, Unreachable):
            return await self.admin.message(message_id)
        return None

    async def _by_key(self, key: str) -> None:
        end_ms = 0
        seen: set[tuple[str, int]] = set()
        for _ in range(_QUERIES_MAX):
            try:
                found = await self.admin.query_messages(
                    "", key, end_ms=end_ms, maximum=_EVERY, is_unique_key=True
                )
            except (MessageNotFound, TopicNotFound) as error:
                if self.messages and not seen:
                    self.gaps[f"its copies are not found by its id: {error}"] = None
                return
            except Unreachable:
                if not self.messages:
                    raise
                self.gaps["its copies are not found by its id: no broker answers"] = None
                return
            self.unreachable |= dict.fromkeys(found.unreachable)
            new = [one for one in found if (one.queue.broker_name, one.physical_offset) not in seen]
            seen |= {(one.queue.broker_name, one.physical_offset) for one in new}
            self.messages += new
            counts = Counter(one.queue.broker_name for one in found)
            full = [name for name, count in counts.items() if count >= QUERIED_MAX]
            if not new or not full:
                return
            end_ms = max(
                min(one.stored_at_ms for one in found if one.queue.broker_name == name)
                for name in full
            )
        self.gaps["it has more copies than are looked up: the oldest are missing"] = None

    async def traces_of(self, key: str) -> Sequence[tuple[str, TraceRecord]]:
        """Return the trace records of the message with the addresses of their clients."""
        traces: list[tuple[str, TraceRecord]] = []
        async with self.asking(f"traces in {self.trace_topic}"):
            found = await self.admin.trace(key, trace_topic=self.trace_topic)
            self.unreachable |= dict.fromkeys(found.unreachable)
            traces += [(message.born_host, record) for message, record in found]
        return traces

    async def transactions_of(self, key: str, groups: set[str]) -> Sequence[TransactionView]:
        """Return the transactions whose half message has the key, of any group that is known."""
        async with self.asking("open transactions"):
            groups |= {one.group for one in await self.admin.open_transactions()}
        async with self.asking("producer groups"):
            groups |= {one.group for one in await self.admin.producers()}
        found: list[TransactionView] = []
        asked = sorted(groups - {""})
        try:
            async with self.asking("transactions", but=PermissionRefused):
                found += await self.admin.transaction_views(key, asked[:_GROUPS_MAX])
        except PermissionRefused:
            # Users see the transactions of their own groups alone.
            for group in asked[:_GROUPS_MAX]:
                async with self.asking(f"transactions of producer group {group}"):
                    found += await self.admin.transaction_views(key, [group])
        if len(asked) > _GROUPS_MAX:
            self.gaps[f"transactions of {len(asked) - _GROUPS_MAX} more producer groups"] = None
        return found

    async def refuse(self, message_id: str) -> None:
        """Refuse a message that nobody knows.

        Raises:
            MessageNotFound: The text says what that may mean.
            Unreachable: Some brokers gave no answer.
        """
        await self._note_place(message_id)
        text = (
            f"no broker knows message {message_id}: it was never stored, is deleted by retention "
            "or with its topic, belongs to a transaction of an unknown producer group that was not "
            "committed, or is in a topic that you may not read"
        )
        known = "; ".join(self.gaps)
        raise refusal(ResponseCode.QUERY_NOT_FOUND, f"{text}; {known}" if known else text)

    async def _note_place(self, message_id: str) -> None:
        """Note that the logs of today do not have the place in an offset message id."""
        try:
            host, offset = parse_offset_message_id(message_id)
        except UsageError:
            return
        address = host_text(host)
        async with self.asking("logs of the brokers"):
            masters = [one for one in await self.admin.member_views() if one.is_master]
            own = [one for one in masters if address in map(str, one.member.endpoints)]
            logs = [(one.data.broker_name, one.status) for one in own or masters if one.status]
            if logs and all(offset < status.log_start for _, status in logs):
                starts = ", ".join(f"{status.log_start} on {name}" for name, status in logs)
                self.gaps[f"retention has removed log offset {offset}: logs begin at {starts}"] = (
                    None
                )
            elif logs and all(offset >= status.log_end for _, status in logs):
                ends = ", ".join(f"{status.log_end} on {name}" for name, status in logs)
                self.gaps[f"no log has come to offset {offset}: logs end at {ends}"] = None

    async def groups_of(
        self, records: Sequence[RecordFacts], groups: Collection[str], sent_to: set[str]
    ) -> list[GroupDescription]:
        """Return the groups to tell about: the named ones, or all that know a topic of it."""
        topics = sent_to.union(*((one.topic, one.origin_topic) for one in records))
        known: dict[str, GroupDescription] = {}
        every: list[str] = []
        if not groups:
            async with self.asking("consumer groups"):
                every += [one for one in await self.admin.groups() if not is_system_group(one)]
        # One by one, so that the refusal of one hides no other.
        for asked in [[one] for one in groups] or [every]:
            async with self.asking(f"consumer group {asked[0]}" if groups else "consumer groups"):
                found = await self.admin.describe_groups(asked)
                self.unreachable |= dict.fromkeys(found.unreachable)
                known |= {name: GroupDescription(name, (), ()) for name in asked if groups}
                known |= {one.group: one for one in found}
        return [
            known[name]
            for name in sorted(known)
            if name in groups
            or any(is_subscribed(known[name], topic) for topic in topics)
            or not topics.isdisjoint((RETRY_PREFIX + name, DEAD_LETTER_PREFIX + name))
        ]

    async def first_read(self, records: Sequence[RecordFacts]) -> dict[tuple[str, int], int | None]:
        """Return the offset that a read of its queue finds, for each record of a topic."""
        found: dict[tuple[str, int], int | None] = {}
        for one in [each for each in records if each.is_delivery][:_READ_MAX]:
            async with self.asking(f"a read of {one.topic}"):
                (first, *_) = [*await self.admin.messages_at(one.queue, one.queue_offset), None]
                is_other = first is None or (
                    first.queue_offset == one.queue_offset and first.physical_offset != one.begin
                )
                place = one.queue.broker_name, one.begin
                found[place] = None if first is None or is_other else first.queue_offset
        return found

    async def replication_of(
        self, records: Sequence[RecordFacts]
    ) -> dict[str, ReplicationStatusReply]:
        """Return the status of the masters that have the message."""
        found: dict[str, ReplicationStatusReply] = {}
        for name in sorted({one.queue.broker_name for one in records}):
            what = f"replication of broker {name}"
            async with self.asking(what):
                views = await self.admin.member_views(broker=name)
                master = next((one for one in views if one.is_master), None)
                if master is None:
                    self.gaps[f"{what}: it has no master at present"] = None
                elif master.status is None:
                    self.gaps[f"{what}: {master.problem}"] = None
                else:
                    found[name] = master.status
        return found

    async def running_in(
        self, groups: Sequence[GroupDescription], records: Sequence[RecordFacts]
    ) -> dict[tuple[str, str], RunningState]:
        """Return the running states of members of the groups that have not come past a record."""
        found: dict[tuple[str, str], RunningState] = {}
        for group in groups:
            rows = [(row_of(group, one), one) for one in records if one.is_delivery]
            if not any(is_subscribed(group, one.topic) for _, one in rows):
                continue
            if all(row and row.committed_offset > one.queue_offset for row, one in rows):
                continue
            for member in group.members[:_MEMBERS_MAX]:
                what = f"what member {member.client_id} of group {group.group} has in hand"
                async with self.asking(what):
                    state = await self.admin.consumer_state(group.group, member.client_id)
                    found[group.group, member.client_id] = state
        return found

    async def letters_of(self) -> tuple[dict[MessageQueue, int], dict[str, RecordFacts]]:
        """Return how far dead letters are handled, and the messages that redrives sent for them."""
        letters = [one for one in self.messages if one.topic.startswith(DEAD_LETTER_PREFIX)]
        handled: dict[MessageQueue, int] = {}
        redriven: dict[str, RecordFacts] = {}
        if not letters:
            return handled, redriven
        async with self.asking("handled dead letters"):
            tools = await self.admin.describe_groups([DEAD_LETTER_TOOLS])
            rows = chain.from_iterable(one.progress for one in tools)
            handled = {one.queue: one.committed_offset for one in rows}
            for one in letters:
                handled.setdefault(one.queue, 0)
        for one in letters[:_READ_MAX]:
            async with self.asking("redrives"):
                key = redrive_key(DeadLetter(one, is_handled=False))
                # The oldest is the redrive; the others are its own retries.
                first, *_ = await self.admin.query_messages("", key, is_unique_key=True)
                redriven[one.offset_message_id] = record_facts(first)
        return handled, redriven
