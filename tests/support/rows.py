"""What a message must be as a row, taken from `StoredMessage`."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from ternmq_model.columns.column_names import COLUMNS
from ternmq_model.stored_message import StoredMessage

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def row_of(message: StoredMessage, columns: Sequence[str] = COLUMNS) -> dict[str, Any]:
    """Return what a row must say of `message`."""
    whole = {
        "topic": message.topic,
        "brokerName": message.queue.broker_name,
        "queueId": message.queue.queue_id,
        "queueOffset": message.queue_offset,
        "msgId": message.message_id,
        "keys": list(message.keys),
        "tags": message.tags or None,
        "body": message.body if "body" in columns else b"",
        "properties": list(message.properties.items()),
        "bornTimestamp": time_of(message.born_at_ms),
        "storeTimestamp": time_of(message.stored_at_ms),
        "bornHost": message.born_host,
        "reconsumeTimes": message.reconsume_times,
        "sysFlag": message.sys_flag,
    }
    return {name: whole[name] for name in columns}


def time_of(at_ms: int) -> datetime:
    """Return a time in milliseconds; one that no calendar has as the nearest that it has."""
    try:
        return _EPOCH + timedelta(milliseconds=at_ms)
    except OverflowError:
        shown = datetime.max if at_ms > 0 else datetime.min
        return shown.replace(microsecond=999_000 if at_ms > 0 else 0, tzinfo=UTC)
