"""One checked record in scalars: the form of most requests of a producer with little to send.

A pass of numpy over an array of one costs more than the same work on numbers. A record that is
refused, routed to another queue or changed in length is left to `record.batch`.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Final

import numpy as np

from ternmq_model.arrays import Ints
from ternmq_model.names import TOPIC_BYTES_MAX, is_send_forbidden
from ternmq_model.properties import PAIR_END_CODE
from ternmq_model.record.checksum import CHECKSUM_BYTES, ends_with_reserved, put_checksum
from ternmq_model.record.fields import QueueRows, tag_code_of, topic_name
from ternmq_model.record.format import (
    BODY_BYTES_MAX,
    FLAG_COMPRESSION_MASK,
    MAGIC_V1,
    complete_header,
    crc31,
    header_struct,
    read_header,
    read_length,
    read_sys_flag,
)
from ternmq_model.record.property_rules import is_plain

FIRST_ROW: Final[Ints] = np.zeros(1, dtype=np.int64)
"""Rows of a single record, read-only."""
FIRST_ROW.setflags(write=False)


@dataclass(slots=True, eq=False)
class SingleRecord:
    """A checked record without offsets, hosts and store time. See `RecordBatch`."""

    data: bytes
    sys_flag: int
    properties_at: int
    """Begin of the properties in `data`. They reach to its end."""

    tag_code: int
    queues: tuple[QueueRows]
    is_checksummed: bool
    """True = the record ends with space for its checksum."""

    starts: ClassVar[Ints] = FIRST_ROW
    routed: ClassVar[tuple[int, ...]] = ()

    def __len__(self) -> int:
        return 1

    @property
    def sizes(self) -> Ints:
        """Length of the record, as in a batch."""
        return np.array((len(self.data),), dtype=np.int64)

    @property
    def queue(self) -> QueueRows:
        """Queue of the record."""
        return self.queues[0]

    def complete(
        self,
        target: memoryview,
        *,
        queue_offsets: Ints,
        physical_offsets: Ints,
        stored_at_ms: int,
        born_host: bytes | None,
        store_host: bytes,
    ) -> None:
        """Write the fields that the log sets, and the checksum, into `target`, a copy of `data`.

        `born_host` None = the record has it already.
        """
        complete_header(
            target,
            self.sys_flag,
            queue_offset=int(queue_offsets[0]),
            physical_offset=int(physical_offsets[0]),
            born_host=born_host,
            stored_at_ms=stored_at_ms,
            store_host=store_host,
        )
        if self.is_checksummed:
            put_checksum(target)


def read_single(record: bytes, flags: int, *, is_checksummed: bool) -> SingleRecord | None:
    """Return a record that may be stored as it is; None = `check_records` decides.

    Args:
        record: Bytes of a client.
        flags: Bits of the sys flag that announce the hosts' lengths.
        is_checksummed: True = stored records have a checksum.
    """
    size, body_at = len(record), header_struct(flags).size
    if size < body_at or read_sys_flag(record) & ~FLAG_COMPRESSION_MASK != flags:
        return None
    header = read_header(record)
    topic_at = body_at + header.body_bytes + 1
    if (
        header.total_bytes != size
        or header.magic != MAGIC_V1
        or not 0 <= header.body_bytes <= BODY_BYTES_MAX
        or topic_at + 2 > size
        or header.queue_id < 0
        or header.reconsume_times
        or header.prepared_offset
    ):
        return None
    topic_bytes = record[topic_at - 1]
    at = topic_at + topic_bytes + 2
    if not (
        0 < topic_bytes <= TOPIC_BYTES_MAX
        and at <= size
        and read_length(record, at) == size - at
        and crc31(memoryview(record)[body_at : topic_at - 1]) == header.body_crc
    ):
        return None
    queues = _queues_of(record[topic_at : topic_at + topic_bytes], header.queue_id)
    properties = record[at:]
    if queues is None or ends_with_reserved(properties) is not is_checksummed:
        return None
    if is_checksummed:
        properties = properties[:-CHECKSUM_BYTES]
    if not is_plain(properties) or (properties and properties[-1] != PAIR_END_CODE):
        return None
    code = tag_code_of(properties)
    return SingleRecord(record, header.sys_flag, at, code, queues, is_checksummed)


@lru_cache(maxsize=16_384)
def _queues_of(topic: bytes, queue_id: int) -> tuple[QueueRows] | None:
    """Return a queue with the row of a single record; None = no client may send to the topic."""
    name = topic_name(topic)
    return (
        None if name is None or is_send_forbidden(name) else (QueueRows(name, queue_id, FIRST_ROW),)
    )
