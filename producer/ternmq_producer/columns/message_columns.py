"""Columns of messages: checks and encoding of what `send_columns` takes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from ternmq_model import properties as names
from ternmq_model.arguments import is_kind, is_whole
from ternmq_model.arrays import Ints
from ternmq_model.byte_column import ByteColumn, join_rows
from ternmq_model.errors import IllegalMessage, UsageError
from ternmq_model.message import NO_KEYS, Message, SystemMessage
from ternmq_model.names import check_topic
from ternmq_model.properties import decode_properties
from ternmq_model.record.format import BODY_BYTES_MAX
from ternmq_producer.columns import arrow_values
from ternmq_producer.columns.property_columns import (
    DistinctColumn,
    PropertyColumn,
    check_length,
    key_column,
    mapping_column,
)
from ternmq_producer.queue_selection.topic_publish_info import TopicPublishInfo

NO_QUEUE: Final = -1
"""Number of the queue of a row whose queue is not chosen yet."""

_CHUNK_ROWS: Final = 16_384
"""Rows whose properties are encoded at once."""


@dataclass(frozen=True, slots=True, eq=False)
class EncodedColumns:
    """Messages of one topic, ready to be sent but for their queues."""

    topic: str
    """Name of the topic."""

    positions: Ints
    """Position of each message in its call."""

    bodies: ByteColumn
    """Body of each message."""

    properties: ByteColumn
    """Properties of each message, encoded."""

    suffix: bytes = b""
    """Properties of a client at the end of all messages' properties, encoded."""

    flags: Ints | int = 0
    """Number of the application of all messages, or of each one."""

    sharding: "tuple[Ints, Sequence[str | None]] | None" = None
    """Index of each message's sharding key, and the distinct keys. None = no message has one."""

    queue_ids: Ints | None = None
    """Queue id that the caller chose for each message, or `NO_QUEUE`. None = no message has one."""

    errors: Mapping[int, IllegalMessage] = field(default_factory=dict[int, IllegalMessage])
    """Errors of messages that are in no column, by position."""

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def is_ordered(self) -> bool:
        """True when messages may have a sharding key or a chosen queue."""
        return self.sharding is not None or self.queue_ids is not None

    @property
    def have_queues(self) -> Sequence[bool]:
        """For each message, whether the caller chose its queue."""
        if self.queue_ids is None:
            return [False] * len(self)
        have_queues: list[bool] = (self.queue_ids != NO_QUEUE).tolist()
        return have_queues

    def rows(self, rows: Ints | slice) -> "EncodedColumns":
        """Return some of the messages."""
        return replace(
            self,
            positions=self.positions[rows],
            bodies=self.bodies.take(rows),
            properties=self.properties.take(rows),
            flags=self.flags if isinstance(self.flags, int) else self.flags[rows],
            sharding=None if self.sharding is None else (self.sharding[0][rows], self.sharding[1]),
            queue_ids=None if self.queue_ids is None else self.queue_ids[rows],
            errors={},
        )

    def message(self, row: int) -> Message:
        """Return one message as an object, a `SystemMessage` if there is a suffix."""
        encoded = self.properties.row(row)
        properties = decode_properties(encoded[: len(encoded) - len(self.suffix)])
        tags = properties.pop(names.TAGS, "")
        keys = properties.pop(names.KEYS, "")
        sharding_key = ""
        if self.sharding is not None:
            codes, sharding_keys = self.sharding
            sharding_key = sharding_keys[int(codes[row])] or ""
        if sharding_key and properties[names.SHARDING_KEY] == sharding_key:
            del properties[names.SHARDING_KEY]  # else it is one of the application, written behind
        fields = (
            self.topic,
            self.bodies.row(row),
            tags,
            keys.split(names.KEY_SEPARATOR) if keys else NO_KEYS,
            properties,
            sharding_key,
        )
        if not self.suffix:
            return Message(*fields)
        return SystemMessage(*fields, system_properties=decode_properties(self.suffix))

    def queue_errors(self, publish_info: TopicPublishInfo) -> dict[int, IllegalMessage]:
        """Return the errors of messages whose chosen queue does not exist, by position."""
        if self.queue_ids is None:
            return {}
        errors: dict[int, IllegalMessage] = {}
        for queue_id in np.unique(self.queue_ids).tolist():
            found = sum(queue.queue_id == queue_id for queue in publish_info.queues)
            if queue_id == NO_QUEUE or found == 1:
                continue
            some = f"{found} brokers have" if found else "no broker has"
            error = IllegalMessage(
                f"message for {self.topic!r}: queue id {queue_id}: {some} this queue"
            )
            errors |= dict.fromkeys(self.positions[self.queue_ids == queue_id].tolist(), error)
        return errors

    def chosen_queues(self, publish_info: TopicPublishInfo) -> Ints:
        """Return the index of each message's queue in the publish info, or `NO_QUEUE`."""
        chosen = np.full(len(self), NO_QUEUE)
        if self.sharding is not None:
            codes, keys = self.sharding
            present: list[int] = np.unique(codes).tolist()
            # Not filled: there may be far more keys than messages, which use those present.
            indices = np.empty(len(keys), dtype=np.int64)
            indices[present] = [
                publish_info.index_of_key(key) if (key := keys[code]) else NO_QUEUE
                for code in present
            ]
            chosen = indices[codes]
        if self.queue_ids is not None:
            for index, queue in enumerate(publish_info.queues):
                chosen[self.queue_ids == queue.queue_id] = index
        return chosen


class MessageColumns:
    """Messages of one `send_columns`. The columns are checked, the rows not yet.

    Args:
        topic: Topic of all messages.
        bodies: See `Producer.send_columns`, as for the others.
        tags: Tag of each message, or of all.
        keys: Keys of each message.
        properties: Properties of each message, or of all.
        sharding_keys: Sharding key of each message, or of all.
        queue_ids: Queue id of each message, or of all.
        suffix: Encoded properties behind all others of each message.

    Raises:
        UsageError: A column has another type or another length, or a string that is no UTF-8.
        IllegalName: The topic's name is illegal.
    """

    def __init__(
        self,
        topic: str,
        bodies: Any,
        *,
        tags: Any = None,
        keys: Any = None,
        properties: Any = None,
        sharding_keys: Any = None,
        queue_ids: Any = None,
        suffix: bytes = b"",
    ) -> None:
        check_topic(topic)
        self._topic = topic
        self._suffix = suffix
        given = {
            "tags": tags, "keys": keys, "properties": properties, "sharding_keys": sharding_keys,
            "queue_ids": queue_ids,
        }  # fmt: skip
        batch = arrow_values.columns_of(bodies)
        if batch is not None:
            bodies = _take_columns(batch, given)
        self._bodies, self._errors = _bodies(topic, bodies)
        count = len(self._bodies)
        self._queue_ids = _queue_ids(given["queue_ids"], count)
        properties, read_keys = mapping_column(topic, given["properties"], count)
        sharding_keys = given["sharding_keys"]
        if sharding_keys is None:
            sharding_keys = read_keys
        self._sharding = DistinctColumn.of("sharding_key", topic, sharding_keys, count)
        columns: list[PropertyColumn | None] = [
            DistinctColumn.of("tags", topic, given["tags"], count),
            key_column(topic, given["keys"], count),
            self._sharding,
            properties,
        ]
        self._columns = [column for column in columns if column is not None]

    def __len__(self) -> int:
        return len(self._bodies)

    def encoded(self) -> Iterator[EncodedColumns]:
        """Yield the messages in their order, many at a time."""
        for begin in range(0, len(self), _CHUNK_ROWS):
            yield self._chunk(begin, min(begin + _CHUNK_ROWS, len(self)))

    def _chunk(self, begin: int, end: int) -> EncodedColumns:
        errors = {row: error for row, error in self._errors.items() if begin <= row < end}
        pieces: list[ByteColumn] = []
        for column in self._columns:
            piece, illegal = column.encoded(begin, end)
            pieces.append(piece)
            errors = illegal | errors
        if self._suffix:
            pieces.append(ByteColumn.repeated(self._suffix, end - begin))
        if not pieces:
            properties = ByteColumn.repeated(b"", end - begin)
        else:
            properties = pieces[0] if len(pieces) == 1 else join_rows(pieces)
        sharding = self._sharding
        rows = slice(begin, end)
        chunk = EncodedColumns(
            self._topic,
            np.arange(begin, end),
            self._bodies.take(rows),
            properties,
            self._suffix,
            sharding=None if sharding is None else (sharding.codes[rows], sharding.texts),
            queue_ids=None if self._queue_ids is None else self._queue_ids[rows],
        )
        if not errors:
            return chunk
        kept = np.ones(end - begin, dtype=np.bool_)
        kept[np.fromiter(errors, dtype=np.int64, count=len(errors)) - begin] = False
        return replace(chunk.rows(np.flatnonzero(kept)), errors=errors)


_NAMES: Final = {
    "tags": "tags",
    "keys": "keys",
    "properties": "properties",
    "sharding_keys": "shardingKey",
    "queue_ids": "queueId",
}
"""Columns of a batch by the argument that they stand for: the names of Spark's columns."""

_PLACE: Final = "queueOffset"
"""Column of a batch of read messages, as of `poll_columns` and of the Spark source."""


def _take_columns(batch: Sequence[tuple[str, Any]], given: dict[str, Any]) -> Any:
    """Put the columns of a batch into `given`, and return the bodies."""
    wanted = {"body", *_NAMES.values()}
    if any(name == _PLACE for name, _ in batch):
        wanted.remove(_NAMES["queue_ids"])  # the queue that the message was read from
    columns: dict[str, Any] = {}
    for name, column in batch:
        if name in columns:
            raise UsageError(f"the batch has several columns {name!r}")
        if name in wanted:
            columns[name] = column
    if "body" not in columns:
        found = ", ".join(name for name, _ in batch)
        raise UsageError(f"the batch has no column 'body', only {found or 'none'}")
    for argument, name in _NAMES.items():
        if name in columns:
            if given[argument] is not None:
                raise UsageError(f"{argument}: the batch has a column {name!r} too; give one")
            given[argument] = columns[name]
    return columns["body"]


def _bodies(topic: str, bodies: Any) -> tuple[ByteColumn, dict[int, IllegalMessage]]:
    """Return the column of bodies, and the errors of illegal ones."""
    errors: dict[int, IllegalMessage] = {}
    if arrow_values.is_arrow(bodies):
        column, is_null = arrow_values.texts(
            "bodies", arrow_values.as_array("bodies", bodies), is_body=True
        )
        for row in () if is_null is None else np.flatnonzero(is_null).tolist():
            errors[row] = IllegalMessage(f"message for {topic!r}: body is null, must be bytes")
    elif is_kind(bodies, tuple) and len(bodies) == 2 and _are_offsets(bodies[1]):
        column = _between(*bodies)
    elif is_kind(bodies, list, tuple):
        values: list[Any] = list(bodies)
        if set(map(type, values)) - {bytes}:
            for row, body in enumerate(values):
                if not isinstance(body, bytes):
                    errors[row] = _error_of(Message(topic, body))
                    values[row] = b""
        column = ByteColumn.listed(values)
    else:
        raise UsageError(
            f"bodies is {type(bodies).__name__}, must be an Arrow array, a RecordBatch, a list of"
            " bytes, or a buffer with its offsets"
        )
    for row in np.flatnonzero(column.sizes > BODY_BYTES_MAX).tolist():
        errors[row] = _error_of(Message(topic, column.row(row)))
    return column, errors


def _are_offsets(value: object) -> bool:
    """Return whether the second value of two has offsets, and is no body."""
    return value is not None and not is_kind(value, bytes, bytearray, memoryview, str)


def _between(buffer: Any, given: Any) -> ByteColumn:
    """Return the bodies between each two offsets in a buffer."""
    try:
        data = np.frombuffer(buffer, dtype=np.uint8)
    except (TypeError, ValueError, BufferError):
        raise UsageError(f"bodies: {type(buffer).__name__} is no buffer of bytes") from None
    offsets = _numbers("bodies: the offsets", given)
    if not len(offsets):
        raise UsageError("bodies: the offsets are empty, must be one more than the messages")
    arrow_values.check_offsets("bodies", offsets, len(data))
    return ByteColumn.between(data, offsets)


def _numbers(name: str, given: Any) -> Ints:
    if arrow_values.is_arrow(given):
        return arrow_values.numbers(name, arrow_values.as_array(name, given), NO_QUEUE)
    try:
        values = np.asarray(given)
    except ValueError:
        values = np.empty(0, dtype=np.object_)
    if values.ndim != 1 or (len(values) and values.dtype.kind not in "iu"):
        raise UsageError(f"{name} must be whole numbers, as a list or an array")
    is_null: Any = given.mask if is_kind(given, np.ma.MaskedArray) else np.False_
    if (~is_null & (values > np.iinfo(np.int64).max)).any():
        raise UsageError(f"{name}: {values.max()} does not fit into 64 bits")
    return np.where(is_null, NO_QUEUE, values.astype(np.int64))


def _queue_ids(given: Any, count: int) -> Ints | None:
    """Return the column of queue ids; None = no message has one."""
    if given is None:
        return None
    if is_whole(given):
        ids = np.full(count, int(given))
    elif is_kind(given, list, tuple):
        ids = _numbers("queue_ids", [NO_QUEUE if each is None else each for each in given])
    else:
        ids = _numbers("queue_ids", given)
    check_length("queue_ids", len(ids), count)
    if (ids < NO_QUEUE).any():
        raise UsageError(f"queue_ids: {int(ids.min())} is no queue id")
    return ids


def _error_of(message: Message) -> IllegalMessage:
    """Return the error of an illegal message."""
    try:
        message.encoded_properties()
    except IllegalMessage as error:
        return error
    raise AssertionError("the message is illegal")
