"""Messages that consumers receive: records as they lie in the log, read on first use."""

from collections.abc import Mapping, Sequence
from typing import Self

from ternmq_model import properties as names
from ternmq_model.compression import decompress
from ternmq_model.errors import CorruptBody, CorruptRecord, MissingPackage
from ternmq_model.message_id import host_text, offset_message_id
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.properties import KEY_SEPARATOR, decode_visible
from ternmq_model.queue import MessageQueue
from ternmq_model.record.format import (
    FLAG_COMPRESSED,
    RecordHeader,
    decode_record,
    header_struct,
    properties_behind,
    read_header,
    read_start,
)


class StoredMessage:
    """Message as its broker stored it. Immutable.

    A message keeps the batch of its reply in memory: copy the needed parts of a message that you
    keep for long. Parts are decoded at their first use.

    Attributes:
        queue: Topic, broker name and queue id.
        queue_offset: Offset in the queue.

    Source: RocketMQ `MessageExt`.
    """

    __slots__ = ("_batch", "_begin", "_body", "_header", "_properties", "queue", "queue_offset")

    _batch: bytes
    _begin: int
    _body: bytes
    _header: RecordHeader
    _properties: Mapping[str, str]
    queue: MessageQueue
    queue_offset: QueueOffset

    @classmethod
    def at(cls, batch: bytes, begin: int, queue: MessageQueue, queue_offset: QueueOffset) -> Self:
        """Return the message of the checked record at `batch[begin:]`."""
        message = cls()
        message._batch = batch
        message._begin = begin
        message.queue = queue
        message.queue_offset = queue_offset
        return message

    @property
    def topic(self) -> str:
        """The topic it was read from."""
        return self.queue.topic

    @property
    def body(self) -> bytes:
        """Body of the sender, copied or decompressed at the first use.

        Raises:
            CorruptBody: The compressed body is corrupt or longer than 4 MiB. Other messages of the
                batch are not affected.
            MissingPackage: The compressed body needs the extra `compression`.
        """
        try:
            return self._body
        except AttributeError:
            header, body = self.header, self.stored_body
            if header.sys_flag & FLAG_COMPRESSED:
                body = decompress(body, header.sys_flag, at=header.physical_offset)
            self._body = body
            return body

    @property
    def stored_body(self) -> bytes:
        """The body as it lies on disk: compressed, when `sys_flag` says so."""
        begin = self._begin + header_struct(self.header.sys_flag).size
        return self._batch[begin : begin + self.header.body_bytes]

    @property
    def readable_body(self) -> bytes:
        """The readable body, else the body as it is on disk; for display only."""
        try:
            return self.body
        except (CorruptBody, MissingPackage):
            return self.stored_body

    @property
    def record_bytes(self) -> int:
        """Length of the whole record."""
        return read_start(self._batch, self._begin)[0]

    @property
    def record(self) -> bytes:
        """Bytes of the whole record: a copy at each use."""
        return self._batch[self._begin : self._begin + self.record_bytes]

    def mentions(self, data: bytes) -> bool:
        """Return whether the record contains `data` anywhere: a search that decodes nothing."""
        return self._batch.find(data, self._begin, self._begin + self.record_bytes) >= 0

    @property
    def header(self) -> RecordHeader:
        """Every field of the record's fixed part."""
        try:
            return self._header
        except AttributeError:
            self._header = read_header(self._batch, self._begin)
            return self._header

    @property
    def properties(self) -> Mapping[str, str]:
        """Every property, those of the system included, but `HIDDEN`.

        Not to be changed.
        """
        try:
            return self._properties
        except AttributeError:
            header, data, at = self.header, self._batch, self._begin
            body_end = at + header_struct(header.sys_flag).size + header.body_bytes
            begin = properties_behind(data, body_end, header.magic)
            self._properties = decode_visible(data[begin : at + header.total_bytes])
            return self._properties

    @property
    def tags(self) -> str:
        """The tag; empty for none."""
        return self.properties.get(names.TAGS, "")

    @property
    def keys(self) -> Sequence[str]:
        """The business keys."""
        return (
            self.properties.get(names.KEYS, "").split(KEY_SEPARATOR)
            if names.KEYS in (self.properties)
            else ()
        )

    @property
    def sharding_key(self) -> str:
        """The key that decided its queue; empty for none."""
        return self.properties.get(names.SHARDING_KEY, "")

    @property
    def message_id(self) -> str:
        """The unique key that its producer gave it; the offset id where it has none."""
        return self.properties.get(names.UNIQUE_KEY, "") or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        """The id that names broker and place."""
        return offset_message_id(self.header.store_host, self.header.physical_offset)

    @property
    def physical_offset(self) -> PhysicalOffset:
        """Position of its record in the broker's log."""
        return self.header.physical_offset

    @property
    def flag(self) -> int:
        """The application's own number."""
        return self.header.flag

    @property
    def sys_flag(self) -> int:
        """Compression, transaction state and the kind of its hosts, as bits."""
        return self.header.sys_flag

    @property
    def born_at_ms(self) -> int:
        """Time of sending by the producer's clock."""
        return self.header.born_at_ms

    @property
    def born_host(self) -> str:
        """Address of its producer, `address:port`."""
        return host_text(self.header.born_host)

    @property
    def stored_at_ms(self) -> int:
        """Time of storing by the broker's clock."""
        return self.header.stored_at_ms

    @property
    def store_host(self) -> str:
        """The broker's address when it stored it."""
        return host_text(self.header.store_host)

    @property
    def reconsume_times(self) -> int:
        """Number of times that its group has taken it again."""
        return self.header.reconsume_times

    def __repr__(self) -> str:
        return f"StoredMessage({self.queue}, offset={self.queue_offset}, id={self.message_id})"


class PlainMessage(StoredMessage):
    """Message whose body is not compressed and was copied when its batch was decoded."""

    __slots__ = ("body",)  # pyright: ignore[reportIncompatibleMethodOverride]

    body: bytes

    @classmethod
    def all_at(
        cls,
        batch: bytes,
        begins: Sequence[int],
        bodies: Sequence[bytes],
        queue: MessageQueue,
        queue_offsets: Sequence[QueueOffset],
    ) -> list[StoredMessage]:
        """Return the messages of the checked records at `begins` of `batch`."""
        new = [cls() for _ in begins]
        # Assignments cost half as much as a constructor with arguments.
        for message, begin, body, offset in zip(new, begins, bodies, queue_offsets, strict=True):
            message._batch = batch
            message._begin = begin
            message.body = body
            message.queue = queue
            message.queue_offset = offset
        return [*new]


def decode_single(record: bytes, broker_name: str, *, check_crc: bool = True) -> StoredMessage:
    """Return the message of a single `record`, with or without a queue.

    Args:
        record: Bytes of the record. The message refers to them.
        broker_name: Name of the broker.
        check_crc: True = the checksum of the body is verified.

    Raises:
        CorruptRecord: The bytes are no record, or more than one.
    """
    decoded = decode_record(record, check_crc=check_crc)
    if decoded is None:
        raise CorruptRecord(PhysicalOffset(0), "a blank record is no message")
    if decoded.header.total_bytes != len(record):
        raise CorruptRecord(PhysicalOffset(0), "bytes follow the record")
    queue = MessageQueue(
        decoded.topic.decode("utf-8", "replace"), broker_name, decoded.header.queue_id
    )
    return StoredMessage.at(record, 0, queue, decoded.header.queue_offset)
