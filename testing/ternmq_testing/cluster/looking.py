"""Content of a cluster's stores, for a test to look at."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from ternmq_broker.environment import BrokerEnvironment
from ternmq_model.arguments import check_whole, is_kind
from ternmq_model.errors import UsageError
from ternmq_model.message_batch import decode_records
from ternmq_model.names import DEAD_LETTER_PREFIX, RETRY_PREFIX, WHEEL_TOPIC, is_system_topic
from ternmq_model.offsets import QueueOffset
from ternmq_model.properties import (
    BROKERS_OWN,
    NOT_COPIED,
    REAL_TOPIC,
    TIMER_CANCEL,
    TIMER_DUE_MS,
    UNIQUE_KEY,
)
from ternmq_model.queue import MessageQueue
from ternmq_model.sql92.condition import compile_condition
from ternmq_model.stored_message import StoredMessage
from ternmq_model.subscription import SQL92, TAG, parse_subscription

_PREVIEW_CHARS: Final = 60
_LISTED_MAX: Final = 20

Stores = Mapping[str, BrokerEnvironment]
"""Stores and tables of the running brokers, by name."""


def messages_of(stores: Stores, topic: str) -> list[StoredMessage]:
    """Return all messages of a topic, oldest first."""
    found: list[StoredMessage] = []
    for name, env in stores.items():
        for of_topic, queue_id in env.store.queues():
            if of_topic == topic:
                found += _messages_in(env, MessageQueue(topic, name, queue_id))
    return sorted(found, key=lambda message: message.stored_at_ms)


def _messages_in(
    env: BrokerEnvironment, queue: MessageQueue, *, last: int | None = None
) -> Iterable[StoredMessage]:
    store = env.store
    start, end = store.queue_range(queue.topic, queue.queue_id)
    begin = start if last is None else QueueOffset(end - last)
    places = store.searches.places_at(queue.topic, queue.queue_id, begin, end - begin)
    for place in places.tolist():
        record = store.record_at(place)
        if record is not None:
            yield from decode_records(record, np.array([len(record)], dtype=np.int32), queue)


def has_timed(stores: Stores, topic: str, now_ms: int) -> bool:
    """Return whether a message to a topic waits for its time."""
    timed = messages_of(stores, WHEEL_TOPIC)
    cancelled = {each.properties.get(TIMER_CANCEL) for each in timed}
    return any(
        each.properties.get(REAL_TOPIC) == topic
        and int(each.properties.get(TIMER_DUE_MS, 0)) > now_ms
        and TIMER_CANCEL not in each.properties
        and each.properties.get(UNIQUE_KEY) not in cancelled
        for each in timed
    )


def dead_letters_of(stores: Stores, group: str) -> list[StoredMessage]:
    """Return the dead letters of a group, oldest first."""
    return messages_of(stores, DEAD_LETTER_PREFIX + group)


def lag_of(
    stores: Stores, group: str, finished: Mapping[MessageQueue, int]
) -> dict[MessageQueue, int]:
    """Return the number of messages that a group has not consumed, by queue, where there are any.

    `finished` has the offsets below which consumers have finished, committed or not.
    """
    lags: dict[MessageQueue, int] = {}
    for name, env in stores.items():
        offsets = env.tables.offsets.topics_of(group)
        topics = {*offsets, *(queue.topic for queue in finished), RETRY_PREFIX + group}
        for topic, queue_id in env.store.queues():
            if topic not in topics:
                continue
            queue = MessageQueue(topic, name, queue_id)
            start, end = env.store.queue_range(topic, queue_id)
            done = max(
                start,
                offsets.get(topic, {}).get(queue_id, QueueOffset(0)),
                finished.get(queue, 0),
            )
            if done < end:
                lags[queue] = end - done
    return lags


def unanswered_of(
    stores: Stores, taken: Mapping[tuple[str, MessageQueue], int]
) -> list[tuple[str, MessageQueue, int]]:
    """Return group, queue and number of the messages that were taken and are not committed.

    `taken` has the offsets behind the last messages that were taken, by group and queue.
    """
    found: list[tuple[str, MessageQueue, int]] = []
    for (group, queue), behind in taken.items():
        env = stores.get(queue.broker_name)
        offsets = {} if env is None else env.tables.offsets.topics_of(group)
        committed = offsets.get(queue.topic, {}).get(queue.queue_id)
        # Without an offset the group broadcasts, or the broker does not run.
        if committed is not None and committed < behind:
            found.append((group, queue, behind - committed))
    return found


Unanswered = Sequence[tuple[str, MessageQueue, int]]
"""Group, queue and number of the messages that were taken and are not committed."""


def leaks_of(check: str, clients: Iterable[str], unanswered: Callable[[], Unanswered]) -> list[str]:
    """Return what a test has left behind, as sentences. See `Cluster.leaks`.

    Args:
        check: `fail`, `clients` or `ignore`.
        clients: Open clients, as sentences.
        unanswered: Function that finds messages without an answer.

    Raises:
        UsageError: `check` is another word.
    """
    if check not in ("fail", "clients", "ignore"):
        raise UsageError(f"leaks is 'fail', 'clients' or 'ignore', not {check!r}")
    if check == "ignore":
        return []
    found = list(clients)
    if check == "fail":
        for group, queue, count in unanswered():
            found.append(f"group {group} took {count} messages of {queue} and never answered")
    return found


def matching(
    topic: str,
    everything: Sequence[StoredMessage],
    count: int | None,
    where: str,
    hints: Callable[[], Iterable[str]] = tuple,
) -> list[StoredMessage]:
    """Return the messages of a topic that match, and check their number.

    Args:
        topic: Name of the topic, for the error.
        everything: Messages of the topic.
        count: Expected number; None = at least one.
        where: SQL92 condition on their properties; empty = all match.
        hints: Function that returns lines for the error.

    Raises:
        AssertionError: There are more or fewer; it lists what was found.
        UsageError: `count` is no number, or `where` no condition.
    """
    __tracebackhide__ = True  # a failure is shown in the test
    if count is not None:
        check_whole("count", count, 0)
    if not is_kind(where, str):
        raise UsageError(f"where={where!r} must be a text such as 'amount > 5'")
    found = list(everything)
    if where:
        try:
            condition = compile_condition(where)
        except UsageError as error:
            raise UsageError(f"where={where!r} is no condition: {error}") from None
        found = [each for each in everything if condition.matches(each.properties)]
    if len(found) != count if count is not None else not found:
        wanted = "messages" if count is None else f"{count} messages"
        condition_text = f" where {where}" if where else ""
        text = f"expected {wanted} in {topic!r}{condition_text}, found {len(found)}"
        if found:
            text += f":\n{described(found)}"
        if len(everything) > len(found):
            others = [each for each in everything if each not in found]
            text += f"\n{len(others)} do not match:\n{described(others)}"
        raise AssertionError("\n".join([text, *hints()]))
    return found


def report_lines(
    topics: Mapping[str, int], groups: Mapping[str, tuple[int, Sequence[StoredMessage]]]
) -> list[str]:
    """Return topics with their messages, and groups with lag and dead letters, as lines. Pure."""
    lines = [
        f"topic {topic}: {count} messages"
        for topic, count in sorted(topics.items())
        if not is_system_topic(topic)
    ]
    for group, (lag, letters) in sorted(groups.items()):
        lines.append(f"group {group}: lag {lag}, {len(letters)} dead letters")
        if letters:
            lines.append(described(letters))
    return lines


def wants_none_of(
    stores: Stores, group: str, queue: MessageQueue, expression: str, *, last: int
) -> bool:
    """Return whether a group's subscription excludes the last messages of a queue.

    Args:
        stores: Stores and tables of the running brokers.
        group: Name of the group.
        queue: Queue at a running broker.
        expression: Expression of the group's subscription to the topic.
        last: Number of messages.
    """
    env = stores[queue.broker_name]
    condition = env.tables.filters.get(queue.topic, group)
    is_sql = condition is not None and condition.expression == expression
    subscription = parse_subscription(queue.topic, expression, SQL92 if is_sql else TAG)
    messages = _messages_in(env, queue, last=last)
    return not any(subscription.matches(message.properties) for message in messages)


def described(messages: Sequence[StoredMessage]) -> str:
    """Return messages as lines of a text. Pure."""
    lines = [
        f"  {message.queue}, offset {message.queue_offset}: {_preview(message.body)}"
        + (f", tags {message.tags}" if message.tags else "")
        + (f", keys {' '.join(message.keys)}" if message.keys else "")
        + (f", {json.dumps(own)}" if (own := _own_properties(message)) else "")
        for message in messages[:_LISTED_MAX]
    ]
    if len(messages) > _LISTED_MAX:
        lines.append(f"  … and {len(messages) - _LISTED_MAX} more")
    return "\n".join(lines)


def _own_properties(message: StoredMessage) -> dict[str, str]:
    return {
        name: value
        for name, value in message.properties.items()
        if name not in NOT_COPIED | BROKERS_OWN
    }


def _preview(body: bytes) -> str:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = body.hex()
    shown = text if text.isprintable() else repr(text)
    return shown if len(shown) <= _PREVIEW_CHARS else f"{shown[:_PREVIEW_CHARS]}… ({len(body)} B)"
