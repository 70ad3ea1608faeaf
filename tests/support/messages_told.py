"""Facts about messages, in few words: for tests of their stories."""

from collections.abc import Mapping
from typing import Any, Final

from ternmq_client.admin.descriptions import GroupDescription, GroupMember, QueueProgress
from ternmq_client.admin.explain.facts import MessageFacts, RecordFacts
from ternmq_model.names import DEAD_LETTER_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC
from ternmq_model.queue import MessageQueue

NOW_MS: Final = 1_795_216_147_000
KEY: Final = "KEY"
ORIGIN: Final = "0A" * 16


def record(
    topic: str = "orders",
    *,
    offset: int = 5,
    begin: int = 1000,
    queue_id: int = 0,
    at_ms: int = NOW_MS - 60_000,
    offset_message_id: str = "",
    properties: Mapping[str, str] | None = None,
    **fields: Any,
) -> RecordFacts:
    """Return a record; by default that of the message in its topic."""
    return RecordFacts(
        queue=MessageQueue(topic, "a", queue_id),
        queue_offset=offset,
        begin=begin,
        end=begin + 100,
        stored_at_ms=at_ms,
        born_at_ms=at_ms - 1,
        born_host="10.0.0.1:50000",
        offset_message_id=offset_message_id or (ORIGIN if topic == "orders" else f"{begin:032X}"),
        properties={"UNIQ_KEY": KEY, **(properties or {})},
        **fields,
    )


def retry(number: int, *, group: str = "G", is_waiting: bool, begin: int) -> RecordFacts:
    """Return the copy of a message for one retry, before its delivery time or after."""
    topic = RETRY_PREFIX + group
    properties = {"RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": ORIGIN}
    if is_waiting:
        properties["REAL_TOPIC"] = topic
    return record(
        SCHEDULE_TOPIC if is_waiting else topic,
        offset=number,
        begin=begin,
        queue_id=2 if is_waiting else 0,
        at_ms=NOW_MS - 1000,
        reconsume_times=number,
        properties=properties,
    )


def letter(number: int = 3, *, group: str = "G", begin: int = 9000) -> RecordFacts:
    """Return the dead letter of a message."""
    return record(
        DEAD_LETTER_PREFIX + group,
        offset=0,
        begin=begin,
        at_ms=NOW_MS,
        reconsume_times=number,
        properties={"DLQ_ORIGIN_TOPIC": "orders", "ORIGIN_MESSAGE_ID": ORIGIN},
    )


def group(
    name: str = "G",
    *,
    committed: int | None = None,
    retried: int | None = None,
    version: int = 0,
    least: int = 0,
    wants: tuple[str, ...] = (),
    is_sql: bool = False,
    is_broadcasting: bool = False,
) -> GroupDescription:
    """Return a group with a member for each filter, and its offsets in the two topics."""
    members = tuple(
        GroupMember(
            f"{name}@{number}",
            "10.0.0.2:1",
            (("orders", expression),),
            0,
            frozenset({"orders"}) if is_sql else frozenset(),
            is_broadcasting,
        )
        for number, expression in enumerate(wants)
    )
    offsets = {"orders": committed, RETRY_PREFIX + name: retried}
    progress = tuple(
        QueueProgress(MessageQueue(topic, "a", 0), offset, least, 99, version)
        for topic, offset in offsets.items()
        if offset is not None
    )
    return GroupDescription(name, members, progress)


def facts(*records: RecordFacts, **fields: Any) -> MessageFacts:
    """Return facts about a message with these records."""
    return MessageFacts(message_id=KEY, asked_at_ms=NOW_MS, records=records, **fields)
