"""Life of one message in words: where it lies, and what is proven about each group. Pure.

Only what the facts prove is said. An offset of a group above the message proves that the group is
done with it, not that a listener succeeded.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from ternmq_client.admin.explain.facts import MessageFacts, RecordFacts, due_ms
from ternmq_client.admin.explain.group_progress import GroupProgress, group_progress
from ternmq_client.interceptors import ConsumeOutcome
from ternmq_client.tracing.trace_records import ConsumeBegan, ConsumeEnded, MessageSent, TraceRecord
from ternmq_model import properties as names
from ternmq_model.clock import utc_text
from ternmq_model.names import CHECK_MAX_TOPIC, DEAD_LETTER_PREFIX, RETRY_PREFIX
from ternmq_model.transaction import TransactionState


@dataclass(frozen=True, slots=True, order=True)
class StoryEvent:
    """One event in the life of a message."""

    at_ms: int
    """Time by the clock of its broker or client, Unix milliseconds."""

    text: str = field(compare=False)
    """Sentence about the event."""


@dataclass(frozen=True, slots=True)
class MessageStory:
    """Life of one message."""

    message_id: str
    """Unique key of the message, or its offset message id."""

    topics: tuple[str, ...]
    """Topics that it was sent to, as far as they are known: one for almost every message."""

    events: tuple[StoryEvent, ...]
    """Events in the order of their times."""

    storage: tuple[str, ...]
    """Present state of its records: replication, dispatch, delays, transaction."""

    groups: tuple[GroupProgress, ...]
    """Consumer groups, sorted by record and name."""

    unknown: tuple[str, ...]
    """Questions without an answer, and why."""


_FAILURES: Final = {
    ConsumeOutcome.TIME_OUT.value: "not finished in time",
    ConsumeOutcome.EXCEPTION.value: "failed with an exception",
}


def story_of(facts: MessageFacts) -> MessageStory:
    """Return the life of a message."""
    deliveries = [one for one in facts.records if one.is_delivery]
    topics = {one.origin_topic for one in facts.records if one.origin_topic}
    topics |= {one.topic for _, one in facts.traces if isinstance(one, MessageSent)}
    events = [*_stored(facts), *_traced(facts.traces)]
    storage = [
        *(line for one in deliveries or facts.records[-1:] for line in _storage(one, facts)),
        *_waits(facts),
        *_transactions(facts),
    ]
    return MessageStory(
        facts.message_id,
        tuple(sorted(topics)),
        tuple(sorted(events)),
        tuple(storage),
        tuple(group_progress(facts)),
        tuple(_unknown(facts, deliveries)),
    )


def delivery_of(waiting: RecordFacts, records: Iterable[RecordFacts]) -> RecordFacts | None:
    """Return the later record that a waiting copy became; None while it waits."""
    for one in records:
        if (
            one.queue.broker_name == waiting.queue.broker_name
            and one.topic in (waiting.target, DEAD_LETTER_PREFIX + waiting.group)
            and one.begin > waiting.begin
            and one.reconsume_times >= waiting.reconsume_times
        ):
            return one
    return None


def _place(record: RecordFacts) -> str:
    queue = record.queue
    return (
        f"{queue.topic} queue {queue.queue_id} on {queue.broker_name} at offset "
        f"{record.queue_offset} (log offset {record.begin}, {record.end - record.begin} bytes)"
    )


def _stored(facts: MessageFacts) -> Iterator[StoryEvent]:
    """Yield the events that stored records prove."""
    deliveries = [one for one in facts.records if one.is_delivery]
    for one in deliveries[:1] or facts.records[:1]:
        text = f"made by a producer at {one.born_host}, by the producer's clock"
        yield StoryEvent(one.born_at_ms, text)
    for one in facts.records:
        group, place = one.group, _place(one)
        due = due_ms(one) if one.is_waiting else None
        until = "" if due is None else f", to wait until {utc_text(due / 1000)}"
        if one.topic == CHECK_MAX_TOPIC:
            text = f"set aside undecided, after too many questions to its producers: {place}"
        elif one.is_waiting and group:
            text = f"group {group} failed to consume it: retry {one.reconsume_times} stored{until}"
        elif one.is_waiting:
            text = f"stored for {one.target}{until}"
        elif one.is_to_group:
            text = f"dead letter of group {group} sent again to it alone: {place}"
        elif one.topic.startswith(RETRY_PREFIX):
            text = f"retry {one.reconsume_times} ready for group {group}: {place}"
        elif group:
            tries = one.reconsume_times
            text = f"dead letter of group {group} after {tries} failed deliveries: {place}"
        elif one.transaction is not None:
            sender = one.properties.get(names.PRODUCER_GROUP, "")
            text = (
                f"committed by producer group {sender}: stored in {place}; "
                f"its half message was at log offset {one.transaction}"
            )
        else:
            text = f"stored in {place}"
        yield StoryEvent(one.stored_at_ms, text)
    for new in facts.redriven.values():
        topic = new.topic if new.is_to_group else new.origin_topic
        text = f"dead letter sent again to {topic} as message {_key_of(new)}"
        yield StoryEvent(new.stored_at_ms, text)


def _key_of(record: RecordFacts) -> str:
    return record.properties.get(names.UNIQUE_KEY, "") or record.offset_message_id


def _traced(traces: Sequence[tuple[str, TraceRecord]]) -> Iterator[StoryEvent]:
    """Yield the events that clients have traced."""
    ended = {one.request_id for _, one in traces if isinstance(one, ConsumeEnded)}
    for client, one in traces:
        match one:
            case MessageSent():
                outcome = "confirmed" if one.is_success else "not confirmed"
                text = f"sent to {one.topic} by producer group {one.group} at {client}, {outcome}"
            case ConsumeBegan():
                if one.request_id in ended:
                    continue
                text = f"given to a listener of group {one.group} at {client}; no end is traced"
            case ConsumeEnded():
                outcome = "finished" if one.is_success else _FAILURES.get(one.code, "failed")
                text = f"{outcome} by a listener of group {one.group} at {client}"
            case _:
                text = f"transaction ended by producer group {one.group} at {client}: {one.state}"
        yield StoryEvent(one.at_ms, f"trace: {text}")


def _storage(record: RecordFacts, facts: MessageFacts) -> Iterator[str]:
    """Yield the present state of a record in its broker and the slaves."""
    name = record.queue.broker_name
    first = facts.first_read.get((name, record.begin), -1)
    if first == record.queue_offset:
        yield f"consumers can read it: its consume queue on {name} leads to it"
    elif first is None:
        yield f"consumers cannot read it at present: its consume queue on {name} lacks it"
    elif first >= 0:
        yield f"no consumer can read it any more: it has expired, its queue begins at {first}"
    status = facts.replication.get(name)
    if status is not None:
        is_confirmed = record.end <= status.confirm_offset
        text = "confirmed" if is_confirmed else "not confirmed, so no consumer gets it"
        yield f"{text}: {name} confirms its log up to {status.confirm_offset}"
        flushed = "is" if record.end <= status.safe_offset else "is not yet"
        yield f"it {flushed} safe on the disk of {name}, which flushes {status.flush_mode}"
        if not status.followers:
            yield f"not replicated: {name} has no connected slave"
        for one in status.followers:
            if record.end <= one.safe_offset:
                text = "has it safely"
            elif record.end <= one.appended_offset:
                text = "has it, not yet safely"
            else:
                text = f"lacks it, {one.lag_bytes} bytes behind"
            yield f"slave {one.broker_id} of {name} {text}"
    correlation = record.properties.get(names.CORRELATION_ID)
    if correlation and record.properties.get(names.MESSAGE_TYPE) == names.REPLY:
        yield f"a reply, with the correlation id {correlation}"
    elif correlation:
        asker = record.properties.get(names.REPLY_TO_CLIENT, "")
        yield f"a request of client {asker}, with the correlation id {correlation}"


def _waits(facts: MessageFacts) -> Iterator[str]:
    """Yield a sentence for each copy that waits for its delivery time."""
    for one in facts.records:
        if not one.is_waiting or delivery_of(one, facts.records) is not None:
            continue
        due = due_ms(one)
        if due is None:
            yield f"a copy for {one.target} waits in {one.topic}, without a readable time"
        elif due > facts.asked_at_ms:
            seconds = (due - facts.asked_at_ms) / 1000
            yield f"waits for {one.target} until {utc_text(due / 1000)}, {seconds:.0f} s from now"
        elif not any(other.is_waiting and other.begin > one.begin for other in facts.records):
            yield (
                f"was due for {one.target} at {utc_text(due / 1000)} and is not there: late, "
                "cancelled, or deleted there since"
            )


def _transactions(facts: MessageFacts) -> Iterator[str]:
    for one in facts.transactions:
        where = f"on {one.broker_name}, of producer group {one.group}"
        match one.state:
            case TransactionState.OPEN:
                asked = f"its producers were asked {one.checks} times so far"
                yield f"a half message {where}: neither committed nor rolled back; {asked}"
            case TransactionState.ROLLED_BACK:
                yield f"rolled back {where}: no consumer ever gets it"
            case _:
                yield f"committed {where}"


def _unknown(facts: MessageFacts, deliveries: Sequence[RecordFacts]) -> Iterator[str]:
    yield from facts.gaps
    rolled_back = any(one.state is not TransactionState.COMMITTED for one in facts.transactions)
    later = [one for one in facts.records if not one.is_waiting and not one.is_delivery]
    was_in_topic = not deliveries and not any(one.is_to_group for one in facts.records)
    if was_in_topic and not rolled_back and (later or facts.traces):
        yield (
            "the record that its topic had is gone, by retention or with its topic: its queue "
            "offset is not known, so no group's offset proves anything"
        )
    was_traced = any(isinstance(one, ConsumeBegan | ConsumeEnded) for _, one in facts.traces)
    if deliveries and not was_traced:
        yield "without a trace of them, the clients that got it, and when, are not known"
    if any(one.group and one.reconsume_times for one in facts.records):
        yield "the errors of failed deliveries are in the logs of the group's clients alone"
    for one in deliveries:
        if names.CORRELATION_ID in one.properties:
            yield "a reply has an id of its own, and goes past the log to its client by default"
            break
