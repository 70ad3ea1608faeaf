"""Records that a broker answers with, as messages."""

import struct

from ternmq_model.stored_message import StoredMessage, decode_single


def split_messages(records: bytes, sizes: bytes, broker_name: str) -> list[StoredMessage]:
    """Return the messages of records back to back, whose lengths are in `sizes`: int32 each."""
    found: list[StoredMessage] = []
    begin = 0
    for (size,) in struct.iter_unpack("<i", sizes):
        found.append(decode_single(records[begin : begin + size], broker_name))
        begin += size
    return found
