"""Progress of consumer groups with one message: a state each, and what proves it. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from ternmq_client.admin.descriptions import NEVER_CONSUMED, GroupDescription, QueueProgress
from ternmq_client.admin.explain.facts import MessageFacts, RecordFacts, due_ms
from ternmq_client.tracing.trace_records import ConsumeEnded
from ternmq_model import properties as names
from ternmq_model.errors import TernError
from ternmq_model.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from ternmq_model.queue import MessageQueue
from ternmq_model.subscription import SQL92, TAG, parse_subscription


class GroupState(StrEnum):
    """State of a message for one consumer group.

    Attributes:
        UNSUBSCRIBED: The group neither subscribes to the topic nor has an offset in it.
        NOT_BEGUN: The group has no offset in the message's queue.
        WAITING: The group's offset is at or before the message.
        EXPIRED: The message has expired before the group came to it.
        FILTERED: The filter of the group's live members does not match the message.
        RETRYING: The group failed to consume it; a retry waits.
        DEAD: The message is a dead letter of the group.
        DONE: The group's offset is behind the message, or behind its last retry.
        CONSUMED: A trace proves that a listener finished it.
        UNKNOWN: The facts prove nothing.
    """

    UNSUBSCRIBED = "not subscribed"
    NOT_BEGUN = "not begun"
    WAITING = "waiting"
    EXPIRED = "expired"
    FILTERED = "filtered out"
    RETRYING = "retrying"
    DEAD = "dead letter"
    DONE = "done"
    CONSUMED = "consumed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """State of a message for one consumer group, with its evidence."""

    group: str
    """Name of the consumer group."""

    queue: MessageQueue | None
    """Queue of the record that the state is about; None = the record is gone."""

    state: GroupState
    """State of the message."""

    evidence: tuple[str, ...]
    """Sentences that prove the state, and bound it."""


def group_progress(facts: MessageFacts) -> list[GroupProgress]:
    """Return the state of each group for each record that groups may consume."""
    described = {one.group: one for one in facts.groups}
    of_groups = {one.group for one in facts.records if one.group}
    deliveries: Sequence[RecordFacts | None] = [one for one in facts.records if one.is_delivery]
    found: list[GroupProgress] = []
    for record in deliveries or (None,):
        for name in sorted(facts.only or described.keys() | of_groups):
            copies = _copies(facts, name, record, is_only=len(deliveries) < 2)
            group = described.get(name, GroupDescription(name, (), ()))
            progress = _progress(facts, group, record, copies)
            is_proven = progress.state is GroupState.DEAD or (copies and copies[-1].is_waiting)
            if name not in described and not is_proven:
                lines = ("no broker describes the group: its members and offsets are not known",)
                progress = replace(progress, state=GroupState.UNKNOWN, evidence=lines)
            # A trace names no record, and none that failed since.
            since_ms = max((one.stored_at_ms for one in copies), default=0)
            found.append(_with_traces(progress, facts, since_ms, is_only=len(deliveries) < 2))
    return found


def is_subscribed(group: GroupDescription, topic: str) -> bool:
    """Return whether a group subscribes to a topic or has a committed offset in it."""
    return any(sub[0] == topic for one in group.members for sub in one.subscriptions) or any(
        one.queue.topic == topic and one.committed_offset != NEVER_CONSUMED
        for one in group.progress
    )


def row_of(group: GroupDescription, record: RecordFacts) -> QueueProgress | None:
    """Return a group's progress in the queue of a record; None = the broker reports none."""
    return next((one for one in group.progress if one.queue == record.queue), None)


def _copies(
    facts: MessageFacts, group: str, record: RecordFacts | None, *, is_only: bool
) -> list[RecordFacts]:
    """Return retries and dead letters of a group, in the order of their store times."""
    targets = (RETRY_PREFIX + group, DEAD_LETTER_PREFIX + group)
    return [
        one
        for one in facts.records
        if one.target in targets
        and (
            is_only
            or record is None
            or one.properties.get(names.ORIGIN_MESSAGE_ID) == record.offset_message_id
        )
    ]


def _progress(
    facts: MessageFacts,
    group: GroupDescription,
    record: RecordFacts | None,
    copies: Sequence[RecordFacts],
) -> GroupProgress:
    queue = None if record is None else record.queue
    letters = [one for one in copies if one.topic.startswith(DEAD_LETTER_PREFIX)]
    if letters:
        lines = tuple(_letter_lines(facts, letters[-1]))
        return GroupProgress(group.group, queue, GroupState.DEAD, lines)
    if copies:
        state, evidence = _retried(group, copies, facts.asked_at_ms)
        row = None if record is None else row_of(group, record)
        if record and row and NEVER_CONSUMED != row.committed_offset <= record.queue_offset:
            at = f"its offset in the queue is {row.committed_offset}"
            evidence.append(f"{at}, the message is at {record.queue_offset}: it may come again")
        return GroupProgress(group.group, queue, state, tuple(evidence))
    if record is None:
        text = "its topic does not have it, nor has the group a retry; so no offset proves anything"
        return GroupProgress(group.group, None, GroupState.UNKNOWN, (text,))
    if not is_subscribed(group, record.topic):
        text = f"no live member subscribes to {record.topic}, and no offset is committed in it"
        return GroupProgress(group.group, queue, GroupState.UNSUBSCRIBED, (text,))
    state, evidence = _read(facts, group, record)
    return GroupProgress(group.group, queue, state, tuple(evidence))


def _letter_lines(facts: MessageFacts, letter: RecordFacts) -> Iterator[str]:
    queue = letter.queue
    yield f"{_failures(letter.reconsume_times)}; the letter is in {queue.topic}"
    new = facts.redriven.get(letter.offset_message_id)
    handled = facts.handled.get(queue)
    if new is not None:
        key = new.properties.get(names.UNIQUE_KEY, "")
        yield f"the letter was sent again, as message {key}"
    elif handled is None:
        yield "whether somebody has handled the letter is not known"
    elif letter.queue_offset < handled:
        yield "the letter counts as handled: dropped, or sent again by an older version"
    else:
        yield "the letter waits for a redrive"


def _retried(
    group: GroupDescription, copies: Sequence[RecordFacts], now_ms: int
) -> tuple[GroupState, list[str]]:
    last = copies[-1]
    number = last.reconsume_times
    failed = _failures(number)
    if last.is_waiting:
        due = due_ms(last)
        is_late = due is not None and due <= now_ms
        text = "was due, and is not there" if is_late else "waits for its time"
        return GroupState.RETRYING, [failed, f"retry {number} {text}"]
    row = row_of(group, last)
    if row is None or row.committed_offset == NEVER_CONSUMED:
        text = f"retry {number} is in {last.topic}, where the group has no offset"
        return GroupState.RETRYING, [failed, text]
    place = f"its offset in {last.topic} is {row.committed_offset}, retry {number} is at"
    text = f"{place} {last.queue_offset}"
    if row.committed_offset > last.queue_offset:
        return GroupState.DONE, [
            failed,
            text,
            "the group is done with the last retry: finished, dropped or skipped",
        ]
    return GroupState.RETRYING, [failed, text]


def _read(
    facts: MessageFacts, group: GroupDescription, record: RecordFacts
) -> tuple[GroupState, list[str]]:
    """Return the state of a message that was never sent back, by the group's offset."""
    row = row_of(group, record)
    matching, filters = _filtered(group, record)
    evidence: list[str] = []
    if row is None or row.committed_offset == NEVER_CONSUMED:
        state = GroupState.NOT_BEGUN
        evidence.append("the group has no offset in its queue")
        if any(one.is_broadcasting for one in group.members):
            state = GroupState.UNKNOWN
            evidence.append("broadcasting members keep their offsets, which no broker knows")
    else:
        committed, at = row.committed_offset, record.queue_offset
        evidence.append(f"its offset in the queue is {committed}, the message is at {at}")
        state = GroupState.DONE if committed > at else GroupState.WAITING
        if state is GroupState.WAITING and at < row.min_offset:
            evidence.append(f"the queue begins at {row.min_offset}: the message has expired")
            return GroupState.EXPIRED, evidence
        if state is GroupState.WAITING and at > committed:
            before = at - max(committed, row.min_offset)
            evidence.append(f"{before} {'message is' if before == 1 else 'messages are'} before it")
        if row.version:
            times = "once" if row.version == 1 else f"{row.version} times"
            evidence.append(f"the offset was reset {times}, which may have passed the message")
        if facts.first_read.get((record.queue.broker_name, record.begin), -1) is None:
            evidence.append("the queue does not have the message, so its offsets prove nothing")
            return GroupState.UNKNOWN, evidence
    evidence += filters
    if matching is False:
        return GroupState.FILTERED, evidence
    if state is GroupState.DONE:
        evidence.append(
            "the group is done with it, which proves no success: finished, given up, not wanted by "
            "its filter then, or before the group began"
        )
    else:
        evidence += _in_hand(facts, group, record)
    return state, evidence


def _filtered(group: GroupDescription, record: RecordFacts) -> tuple[bool | None, list[str]]:
    """Return whether live members want a message, and the filters; None = it is not known."""
    topic = record.topic
    wanted: dict[tuple[str, str], bool | None] = {}
    for member in group.members:
        kind = SQL92 if topic in member.sql_topics else TAG
        for subscribed, expression in member.subscriptions:
            if subscribed == topic:
                wanted[kind, expression] = _matches(topic, expression, kind, record)
    if not wanted:
        return None, ["no live member subscribes, so its filter is not known"]
    lines = [
        f"the present filter {kind} {expression!r} {_VERDICTS[matches]}"
        for (kind, expression), matches in sorted(wanted.items())
        if expression != "*"
    ]
    if len(wanted) > 1:
        lines.append("live members subscribe differently, so the reader of the queue decides")
    verdicts = set(wanted.values())
    return (verdicts.pop() if len(verdicts) == 1 else None), lines


_VERDICTS = {True: "lets it through", False: "excludes it", None: "cannot be evaluated here"}


def _matches(topic: str, expression: str, kind: str, record: RecordFacts) -> bool | None:
    try:
        return parse_subscription(topic, expression, kind).matches(record.properties)
    except TernError:
        return None


def _in_hand(facts: MessageFacts, group: GroupDescription, record: RecordFacts) -> Iterator[str]:
    for member in group.members:
        running = facts.running.get((group.group, member.client_id))
        for queue in () if running is None else running.queues:
            place = MessageQueue(queue.topic, queue.broker_name, queue.queue_id)
            if place == record.queue and queue.commit_offset <= record.queue_offset:
                is_read = queue.read_offset > record.queue_offset
                text = "has fetched it, and has it or one before it unfinished"
                text = text if is_read else "reads the queue, and has not come to it"
                yield f"member {member.client_id} at {member.address} {text}"


def _with_traces(
    progress: GroupProgress, facts: MessageFacts, since_ms: int, *, is_only: bool
) -> GroupProgress:
    ends = [
        (client, one)
        for client, one in facts.traces
        if isinstance(one, ConsumeEnded) and one.group == progress.group
    ]
    if not ends:
        return progress
    client, last = ends[-1]
    outcome = "finished" if last.is_success else "failed"
    text = f"trace: a listener at {client} {outcome} it, call {len(ends)} that is traced"
    is_proven = last.is_success and is_only and progress.state is not GroupState.DEAD
    is_proven &= last.at_ms >= since_ms
    state = GroupState.CONSUMED if is_proven else progress.state
    return replace(progress, state=state, evidence=(*progress.evidence, text))


def _failures(number: int) -> str:
    return f"{number} {'delivery' if number == 1 else 'deliveries'} failed"
