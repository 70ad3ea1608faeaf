"""Routing of delayed, timed and half messages to the system topics they wait in. Pure.

A delayed record waits in the queue of its level, a timed record in the queue of the wheel timer, a
half message in the half topic. The properties of each name its real topic and queue.

Source: RocketMQ `HookUtils.handleScheduleMessage`, `TransactionalMessageBridge`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from ternmq_broker.storage.internal_record import InternalRecord
from ternmq_model.delay import DELAY_LEVEL_MAX, DELAY_MS_MAX, cancel_key, tick_up
from ternmq_model.errors import RefusedError, refusal
from ternmq_model.names import (
    DEAD_LETTER_PREFIX,
    HALF_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    WHEEL_TOPIC,
)
from ternmq_model.permission import Action, of_group
from ternmq_model.properties import (
    CHECK_IMMUNITY_S,
    DELAY,
    IMMUNITY_S_MAX,
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    STAGED_FOR,
    STAGED_FOR_MAX,
    TIMER_CANCEL,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_DUE_MS,
    TRANSACTION_ID,
    TRANSACTION_PREPARED,
    UNIQUE_KEY,
    is_staged_for,
)
from ternmq_model.record.format import FLAG_TRANSACTION_MASK
from ternmq_model.response_code import ResponseCode
from ternmq_remoting.rpc import EVERYTHING, Permits

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}")
_SECONDS: Final = re.compile(r"[0-9]{1,10}")
_TIMES: Final = (TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS)
"""Properties with a delivery time; the first one of a record counts."""

SPARE_BYTES: Final = {HALF_TOPIC: 128, WHEEL_TOPIC: 32}
"""Bytes that properties may gain while a record waits: copies of half messages name their original,
its time and the number of checks; rescheduled timed messages name their original.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class RoutingRules:
    """The state and settings of a broker on which routing depends."""

    now_ms: int
    """Wall clock."""

    timer_enabled: bool = True
    """The setting."""

    timer_is_full: bool = False
    """The limit of waiting timed messages is reached."""

    retried: Callable[[InternalRecord], InternalRecord] | None = None
    """Returns the stored form of a record that was sent to the retry topic of a group."""

    no_transactions: RefusedError | None = None
    """The reason why no transaction may begin; None when it may."""

    permits: Permits = EVERYTHING
    """Permissions of the sender."""


def route(record: InternalRecord, rules: RoutingRules) -> InternalRecord:
    """Return the stored form of a record that a client sent; often the record itself.

    Half messages are not delayed; a staged one keeps its delay for the commit. A level counts
    before a time.

    Raises:
        RefusedError: A property is illegal; names the property.
    """
    if rules.retried is not None and record.topic.startswith(RETRY_PREFIX):
        record = rules.retried(record)
    properties = record.properties
    is_half = properties.get(TRANSACTION_PREPARED, "").lower() == "true"
    # A committed message keeps its properties, also when it is tried again or a dead letter.
    if is_half and not record.topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
        if PRODUCER_GROUP not in properties:
            raise _illegal(f"property {TRANSACTION_PREPARED!r} without {PRODUCER_GROUP!r}")
        check_producer_group(properties[PRODUCER_GROUP], rules)
        if rules.no_transactions is not None:
            raise rules.no_transactions
        if STAGED_FOR in properties:
            check_staged(record, rules)
        return half(record)
    if STAGED_FOR in properties and not record.topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
        raise _illegal(f"property {STAGED_FOR!r} without {TRANSACTION_PREPARED!r}")
    return waiting(record, rules)


def waiting(record: InternalRecord, rules: RoutingRules) -> InternalRecord:
    """Return the form of a record that waits for its time; the record itself if that is now.

    Raises:
        RefusedError: A property is illegal; names the property.
    """
    level = _number(record.properties, DELAY)
    if level is not None and level > 0:
        return delayed(record, level)
    due_ms = _due_ms(record, rules)
    return record if due_ms is None else timed(record, due_ms)


def check_producer_group(group: str, rules: RoutingRules) -> None:
    """Refuse a half message for a producer group of others, whose members would be asked about it.

    Raises:
        PermissionRefused: The sender may not publish in the group.
    """
    if rules.permits is not EVERYTHING:
        rules.permits.check(of_group(group, Action.PUBLISH))


def check_staged(record: InternalRecord, rules: RoutingRules) -> None:
    """Refuse a staged half message with illegal properties.

    Raises:
        RefusedError: Names the property.
    """
    properties = record.properties
    if not is_staged_for(properties[STAGED_FOR]):
        raise _illegal(
            f"property {STAGED_FOR!r}={properties[STAGED_FOR][:40]!r}: 1 to {STAGED_FOR_MAX} "
            "printable ASCII characters without blanks"
        )
    if not properties.get(UNIQUE_KEY):
        raise _illegal(f"property {STAGED_FOR!r} without {UNIQUE_KEY!r}")
    immunity = properties.get(CHECK_IMMUNITY_S)
    if immunity is not None and (
        not _SECONDS.fullmatch(immunity) or int(immunity) > IMMUNITY_S_MAX
    ):
        raise _illegal(f"property {CHECK_IMMUNITY_S!r}={immunity[:40]!r} is no number of seconds")
    if TIMER_CANCEL in properties:
        raise _illegal(f"property {TIMER_CANCEL!r}: a staged message cannot cancel another")
    waiting(record, rules)


def delayed(record: InternalRecord, level: int) -> InternalRecord:
    """Return the form of a record that waits for `level`: 1 to 18, higher levels count as 18."""
    level = min(level, DELAY_LEVEL_MAX)
    return _elsewhere(record, SCHEDULE_TOPIC, level - 1, {DELAY: str(level)}, without=_TIMES)


def timed(record: InternalRecord, due_ms: int) -> InternalRecord:
    """Return the form of a record that waits for a time, rounded up to a whole tick.

    Args:
        record: Record with the requested time in its properties.
        due_ms: Earliest delivery, Unix milliseconds.
    """
    further = {TIMER_DUE_MS: str(tick_up(due_ms))}
    if (cancelled := record.properties.get(TIMER_CANCEL)) is not None:
        further[TIMER_CANCEL] = cancel_key(record.topic, cancelled)
    return _elsewhere(record, WHEEL_TOPIC, 0, further)


def half(record: InternalRecord) -> InternalRecord:
    """Return the half message of a record.

    Source: RocketMQ `TransactionalMessageBridge.parseHalfMessageInner`.
    """
    key = record.properties.get(UNIQUE_KEY)
    further = {} if key is None else {TRANSACTION_ID: key}
    delays = () if STAGED_FOR in record.properties else (DELAY, *_TIMES, TIMER_CANCEL)
    form = _elsewhere(record, HALF_TOPIC, 0, further, without=delays)
    return replace(form, sys_flag=form.sys_flag & ~FLAG_TRANSACTION_MASK)


def _elsewhere(
    record: InternalRecord,
    topic: str,
    queue_id: int,
    further: dict[str, str],
    *,
    without: tuple[str, ...] = (),
) -> InternalRecord:
    properties = {name: value for name, value in record.properties.items() if name not in without}
    properties |= further
    properties |= {REAL_TOPIC: record.topic, REAL_QUEUE_ID: str(record.queue_id)}
    return replace(record, topic=topic, queue_id=queue_id, properties=properties)


def _due_ms(record: InternalRecord, rules: RoutingRules) -> int | None:
    """Return the delivery time of a record, Unix milliseconds; None = at once.

    Raises:
        RefusedError: A timed message is not possible here, or at that time.
    """
    name = next((name for name in _TIMES if name in record.properties), None)
    is_cancel = TIMER_CANCEL in record.properties
    if name is None:
        if is_cancel:
            raise _illegal(f"property {TIMER_CANCEL!r} without the time of the cancelled message")
        return None
    value = _number(record.properties, name)
    assert value is not None
    if not rules.timer_enabled:
        raise refusal(
            ResponseCode.SERVICE_NOT_AVAILABLE,
            f"property {name!r}: timed messages are switched off (broker.timer_enabled)",
        )
    due_ms = {TIMER_DELAY_SEC: rules.now_ms + value * 1000, TIMER_DELAY_MS: rules.now_ms + value}
    at_ms = due_ms.get(name, value)
    if at_ms <= rules.now_ms:
        if is_cancel:
            raise _illegal(f"property {TIMER_CANCEL!r}: that time has passed")
        return None
    if at_ms > rules.now_ms + DELAY_MS_MAX:
        raise _illegal(
            f"property {name!r}={value} is {at_ms - rules.now_ms} ms ahead, at most 3 days "
            f"({DELAY_MS_MAX} ms) are allowed"
        )
    if rules.timer_is_full:
        raise refusal(
            ResponseCode.FLOW_CONTROL,
            "the limit of waiting timed messages is reached (broker.timer_pending_max)",
        )
    return at_ms


def _number(properties: Mapping[str, str], name: str) -> int | None:
    """Return the number in a property; None without the property.

    Raises:
        RefusedError: The value is no number.
    """
    text = properties.get(name)
    if text is None:
        return None
    if not _NUMBER.fullmatch(text):
        raise _illegal(f"property {name!r}={text[:40]!r} is no number")
    return int(text)


def _illegal(remark: str) -> RefusedError:
    return refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
