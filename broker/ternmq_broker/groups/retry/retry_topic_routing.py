"""Routing of messages that clients send to a retry topic, after a send-back that failed.

Source: RocketMQ `SendMessageProcessor.handleRetryAndDLQ`.
"""

from dataclasses import dataclass, replace
from typing import Final

from ternmq_broker.groups.retry.group_topics import GroupTopics
from ternmq_broker.groups.retry.retry_policy import dead_letter
from ternmq_broker.state.groups import GroupTable
from ternmq_broker.state.lock_table import LockTable
from ternmq_broker.storage.internal_record import InternalRecord
from ternmq_model.clock import Clock
from ternmq_model.errors import refusal
from ternmq_model.group_settings import GroupSettings
from ternmq_model.names import RETRY_PREFIX
from ternmq_model.properties import MAX_RECONSUME_TIMES, RECONSUME_TIME, UNIQUE_KEY
from ternmq_model.response_code import ResponseCode

TRIES_MAX: Final = 1 << 20


def retried(record: InternalRecord, settings: GroupSettings, *, is_orderly: bool) -> InternalRecord:
    """Return the record to store for a record that a client sent to its group's retry topic.

    The properties of the record have its number of tries. Orderly consumers retry by themselves,
    so their records become dead letters.

    Args:
        record: Record as the client sent it. Without a number of tries it is an ordinary message.
        settings: Settings of the group.
        is_orderly: True when a queue is locked for a member of the group.

    Raises:
        MessageRefused: A number of tries is illegal.
    """
    if RECONSUME_TIME not in record.properties:
        return record
    tries = _number(record, RECONSUME_TIME)
    most = settings.retries_max
    if MAX_RECONSUME_TIMES in record.properties:
        most = _number(record, MAX_RECONSUME_TIMES)
    properties = dict(record.properties)
    for name in (RECONSUME_TIME, MAX_RECONSUME_TIMES):
        properties.pop(name, None)
    again = replace(record, properties=properties, reconsume_times=tries)
    if tries <= most and not is_orderly:
        return again
    return dead_letter(again, settings.group, message_id=properties.get(UNIQUE_KEY, ""))


def _number(record: InternalRecord, name: str) -> int:
    text = record.properties[name]
    if not (text.isascii() and text.isdigit() and len(text) <= 7 and int(text) <= TRIES_MAX):
        remark = f"property {name}={text[:40]!r} must be 0 to {TRIES_MAX}"
        raise refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
    return int(text)


@dataclass(frozen=True, slots=True)
class RetryTopicRouting:
    """Routing of records by settings and locks of their group. Owns nothing."""

    groups: GroupTable
    locks: LockTable
    topics: GroupTopics
    clock: Clock

    def __call__(self, record: InternalRecord) -> InternalRecord:
        """Return the record to store for a record in a retry topic, and create its topic.

        Raises:
            RefusedError: A number of tries is illegal, or the dead-letter topic cannot exist.
            IllegalName: The topic belongs to no group.
        """
        group = record.topic.removeprefix(RETRY_PREFIX)
        settings = self.groups.use(group, now_ms=self.clock.wall_ms())
        is_orderly = self.locks.is_orderly(group, now_ms=self.clock.monotonic_ms())
        stored = retried(record, settings, is_orderly=is_orderly)
        if stored.topic != record.topic:
            self.topics.dead_letters(group)
        return stored
