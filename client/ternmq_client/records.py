"""Single records that a broker answers with, as messages."""

import numpy as np

from ternmq_model.queue import MessageQueue
from ternmq_model.record import decode_record
from ternmq_model.stored_message import StoredMessage, decode_records


def one_message(record: bytes, broker_name: str) -> StoredMessage:
    """Return the message that `record` is, of whatever topic."""
    decoded = decode_record(record)
    assert decoded is not None, "a broker answers with a record, never with a blank"
    queue = MessageQueue(decoded.topic.decode(), broker_name, decoded.header.queue_id)
    return decode_records(record, np.array([len(record)], dtype=np.int32), queue)[0]


def split_messages(records: bytes, sizes: bytes, broker_name: str) -> list[StoredMessage]:
    """Return the messages of records back to back, whose lengths are in `sizes`: int32 each."""
    found: list[StoredMessage] = []
    begin = 0
    for size in np.frombuffer(sizes, dtype="<i4").tolist():
        found.append(one_message(records[begin : begin + size], broker_name))
        begin += size
    return found
