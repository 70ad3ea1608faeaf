"""The policy for messages that were sent back: delay, drop, or dead letter. Pure.

Source: RocketMQ `AbstractSendMessageProcessor.consumerSendMsgBack`.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from ternmq_broker.groups.retry.group_topics import dead_letter_topic, retry_topic
from ternmq_broker.state.offset_versions import VERSION_MAX
from ternmq_broker.storage.internal_record import InternalRecord, internal_record_of, with_source
from ternmq_model.errors import RefusedError, invalid, refusal
from ternmq_model.group_settings import GroupSettings
from ternmq_model.message_id import offset_message_id
from ternmq_model.names import HALF_TOPIC, OP_TOPIC, RETRY_PREFIX, SCHEDULE_TOPIC, WHEEL_TOPIC
from ternmq_model.properties import (
    DELAY,
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    MAX_RECONSUME_TIMES,
    ORIGIN_MESSAGE_ID,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    RECONSUME_TIME,
    RETRY_TOPIC,
    TIMER_PREFIX,
    TRANSACTION_PREPARED,
    UNIQUE_KEY,
    WAIT,
    decode_properties,
)
from ternmq_model.record.format import FLAG_TRANSACTION_MASK, Record
from ternmq_model.response_code import ResponseCode

DEAD_NOW: Final = -1
DELAY_LEVELS: Final = 18
_RECONSUME_TIMES_MAX: Final = 1 << 30
_FIRST_RETRY_LEVEL: Final = 3
_SPENT: Final = frozenset(
    {
        DELAY,
        REAL_TOPIC,
        REAL_QUEUE_ID,
        TRANSACTION_PREPARED,
        RECONSUME_TIME,
        MAX_RECONSUME_TIMES,
        DLQ_ORIGIN_TOPIC,
        DLQ_ORIGIN_MESSAGE_ID,
    }
)
"""Properties of an earlier delivery: they would mislead the reader of the next one."""


_BROKERS_OWN: Final = frozenset({SCHEDULE_TOPIC, HALF_TOPIC, OP_TOPIC, WHEEL_TOPIC})
"""Topics with messages that will be delivered to other topics."""


class SendBackAction(enum.Enum):
    """An action on a message that is sent back."""

    RETRY = enum.auto()
    """Deliver it again, after a delay."""

    DEAD = enum.auto()
    """Store it as a dead letter: it was tried often enough, or its member wants no retry."""

    DROPPED = enum.auto()
    """Drop it: the group has no retries."""


@dataclass(frozen=True, slots=True)
class SendBackDecision:
    """The action on a message that was sent back, with the record to be stored."""

    action: SendBackAction
    record: InternalRecord
    """Record as it is delivered after the delay (`RETRY`), or as it is stored now (`DEAD`)."""

    delay_level: int
    """1 to 18 for `RETRY`, else 0."""

    origin_topic: str
    """The topic to which the message was sent first."""


@dataclass(frozen=True, slots=True)
class FailedMessage:
    """A message that a member could not consume, as the member describes it."""

    message_id: str
    topic: str
    queue_id: int
    queue_offset: int
    delay_level: int = 0
    """0 = by the number of tries, 1 to 18, -1 = a dead letter now."""

    attempts_max: int = 0
    """Retries before the message becomes a dead letter; 0 = the group's setting."""

    reconsume_times: int = 0
    """Retries before this failure, as its member counted them; the record may count more."""

    version: int = 0
    """Version of the group's offset in the queue. After a seek the same message fails again."""


def why_not(record: Record, failure: FailedMessage) -> RefusedError | None:
    """Return the refusal of a send-back whose description does not fit the record; None if it fits.

    A member describes the message beside its offset. Otherwise a mistaken offset would make a dead
    letter of another message.
    """
    header = record.header
    if failure.topic in _BROKERS_OWN:
        # A half message would become visible before its transaction ends.
        remark = f"topic {failure.topic!r} belongs to the broker: nothing of it can be sent back"
        return refusal(ResponseCode.NO_PERMISSION, remark)
    found = (record.topic.decode("ascii", "replace"), header.queue_id, header.queue_offset)
    if found != (failure.topic, failure.queue_id, failure.queue_offset):
        remark = (
            f"at physical offset {header.physical_offset} lies offset {found[2]} of {found[0]!r}"
            f" queue {found[1]}, not {failure.queue_offset} of {failure.topic!r} queue"
            f" {failure.queue_id}"
        )
        return invalid(remark)
    if failure.message_id not in _ids(record):
        remark = (
            f"offset {found[2]} of {found[0]!r} queue {found[1]} is message {_ids(record)[0]},"
            f" not {failure.message_id!r}"
        )
        return invalid(remark)
    if not DEAD_NOW <= failure.delay_level <= DELAY_LEVELS or failure.attempts_max < 0:
        remark = (
            f"delay_level {failure.delay_level} must be {DEAD_NOW} to {DELAY_LEVELS},"
            f" attempts_max {failure.attempts_max} at least 0"
        )
        return invalid(remark)
    if not 0 <= failure.version <= VERSION_MAX:
        return invalid(f"no version is {failure.version}")
    if not 0 <= failure.reconsume_times <= _RECONSUME_TIMES_MAX:
        remark = f"reconsume_times {failure.reconsume_times} must be 0 to {_RECONSUME_TIMES_MAX}"
        return invalid(remark)
    return None


def decide_retry(
    record: Record, failure: FailedMessage, group: GroupSettings, *, queue_id: int
) -> SendBackDecision:
    """Return the action on a message that `group` could not consume.

    Args:
        record: Record of the message.
        failure: Description of the member, accepted by `why_not`.
        group: Settings of the group.
        queue_id: Queue of the retry topic for the copy.
    """
    message = internal_record_of(record)
    tries = max(message.reconsume_times, failure.reconsume_times)
    unique_key, offset_id = _ids(record)[0], _ids(record)[-1]
    is_retried = message.topic.startswith(RETRY_PREFIX)
    origin_topic = message.topic
    if is_retried:
        # The first send-back recorded the origin; the record's own topic is the retry topic.
        origin_topic = message.properties.get(RETRY_TOPIC, origin_topic)
        offset_id = message.properties.get(ORIGIN_MESSAGE_ID, offset_id)
    properties = {
        **clean(message.properties),
        RETRY_TOPIC: origin_topic,
        ORIGIN_MESSAGE_ID: offset_id,
        WAIT: "false",
    }
    again = replace(
        message,
        properties=properties,
        sys_flag=message.sys_flag & ~FLAG_TRANSACTION_MASK,
        prepared_offset=0,
        reconsume_times=tries + 1,
    )
    if group.retry_queues <= 0:
        return SendBackDecision(SendBackAction.DROPPED, again, 0, origin_topic)
    if failure.delay_level < 0 or tries >= (failure.attempts_max or group.retries_max):
        letter = dead_letter(again, group.group, message_id=unique_key)
        return SendBackDecision(
            SendBackAction.DEAD, with_source(letter, record, failure.version), 0, origin_topic
        )
    level = min(failure.delay_level or _FIRST_RETRY_LEVEL + tries, DELAY_LEVELS)
    retry = replace(again, topic=retry_topic(group.group), queue_id=queue_id)
    return SendBackDecision(
        SendBackAction.RETRY, with_source(retry, record, failure.version), level, origin_topic
    )


def dead_letter(message: InternalRecord, group: str, *, message_id: str) -> InternalRecord:
    """Return the dead letter of a message that will not be tried again.

    Properties of the dead letter contain the origin topic and the message id, for tools.

    Args:
        message: The failed message, with `RETRY_TOPIC` after an earlier send-back.
        group: Group of the failed member.
        message_id: Unique key of the message, or its offset id.
    """
    properties = {
        **clean(message.properties),
        DLQ_ORIGIN_TOPIC: message.properties.get(RETRY_TOPIC, message.topic),
        DLQ_ORIGIN_MESSAGE_ID: message_id,
    }
    return replace(message, topic=dead_letter_topic(group), queue_id=0, properties=properties)


def clean(properties: Mapping[str, str]) -> dict[str, str]:
    """Return properties without those of earlier delays, timers and transactions.

    With them, a message that is stored again would wait once more, or count as a half message.
    """
    return {
        name: value
        for name, value in properties.items()
        if name not in _SPENT and not name.startswith(TIMER_PREFIX)
    }


def _ids(record: Record) -> tuple[str, ...]:
    """Return the ids of a record: its unique key, if it has one, and its offset id."""
    offset_id = offset_message_id(record.header.store_host, record.header.physical_offset)
    unique_key = decode_properties(record.properties).get(UNIQUE_KEY)
    return (unique_key, offset_id) if unique_key else (offset_id,)
