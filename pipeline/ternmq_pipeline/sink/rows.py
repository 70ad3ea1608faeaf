"""Messages from Spark's rows, which come as Arrow record batches. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ternmq_model import properties as names
from ternmq_model.delay import DELAY_MS_MAX
from ternmq_model.errors import (
    Fault,
    IllegalMessage,
    IllegalName,
    PermissionRefused,
    TernError,
    TopicNotFound,
    UsageError,
)
from ternmq_model.message import Message
from ternmq_model.record.format import PROPERTIES_BYTES_MAX
from ternmq_pipeline.options.sink_options import written_topic
from ternmq_pipeline.sink import columns, identity
from ternmq_pipeline.sink.columns import ColumnLayout
from ternmq_pipeline.sink.identity import NOT_COPIED, RESERVED_PROPERTIES, PartitionAttempt
from ternmq_pipeline.strict_json import shown

_US_IN_MS: Final = 1000
_arrow: Any = pa
_compute: Any = pc
"""pyarrow without types: its stubs refuse legal arguments."""

_ENTRY: Final = pa.struct([("key", pa.string()), ("value", pa.string())])
_RESERVED: Final = pa.array(sorted(RESERVED_PROPERTIES))
_PROPERTIES_BYTES_MAX: Final = PROPERTIES_BYTES_MAX - 1024
"""Bytes of a row's properties. The rest is for the properties of producers and brokers."""


class RowColumns(NamedTuple):
    """Arrow arrays of rows of one topic, the arguments of `stage_columns`. None = no column."""

    topic: str
    bodies: Any
    tags: Any
    keys: Any
    properties: Any
    sharding_keys: Any


@dataclass(frozen=True, slots=True)
class RowReader:
    """Reader of rows that builds the messages of one partition."""

    layout: ColumnLayout
    part: PartitionAttempt

    def messages(self, batch: pa.RecordBatch, *, first_row: int, now_ms: int) -> list[Message]:
        """Return a message for each row.

        The checks of `Message` itself are not made; see `name_illegal`.

        Args:
            batch: Rows with the columns of the layout.
            first_row: Position of the first row in the partition.
            now_ms: Wall time, Unix ms.

        Raises:
            IllegalMessage: A value is illegal. The error names row and column.
        """
        layout, count = self.layout, batch.num_rows
        bodies = self._bodies(_column(batch, layout.body), first_row)
        topics = self._topics(batch, first_row)
        tags = _values(batch, layout.tags) or [""] * count
        sharding = _values(batch, layout.sharding_key) or [""] * count
        keys = self._keys(batch, first_row) or [()] * count
        delays = self._delays(batch, first_row, now_ms) or [0] * count
        maps = _values(batch, layout.properties) or [None] * count
        own = self.part.properties()
        messages: list[Message] = []
        delay_name = "deliver_at_ms" if layout.delay_is_time else "deliver_after_ms"
        for row, (body, topic, tag, key, keys_, delay, pairs) in enumerate(
            zip(bodies, topics, tags, sharding, keys, delays, maps, strict=True), first_row
        ):
            properties, kept_key = self._properties(pairs, row) if pairs else ({}, "")
            properties.update(own)
            properties[identity.ROW] = str(row)
            message = Message(topic, body, tag or "", keys_ or (), properties, key or kept_key)
            if delay:
                setattr(message, delay_name, delay)
            messages.append(message)
        return messages

    def columns(self, batch: pa.RecordBatch, *, first_row: int) -> RowColumns | None:
        """Return the columns of the messages, without an object for each row.

        None: `messages` must look at each row, since rows have several topics, a delay, a null, or
        a property that is reserved or read from a message.

        Args:
            batch: Rows with the columns of the layout, at least one.
            first_row: Position of the first row in the partition.
        """
        layout = self.layout
        topics = self._distinct_topics(batch)
        bodies = _column(batch, layout.body)
        delays = None if layout.delay is None else _column(batch, layout.delay).cast(_arrow.int64())
        if (
            len(topics) != 1
            or bodies.null_count
            or (delays is not None and _compute.any(_compute.not_equal(delays, 0)).as_py())
        ):
            return None
        properties = self._property_maps(batch, first_row)
        keys = None if layout.keys is None else _column(batch, layout.keys)
        if keys is not None and layout.keys_are_text:
            keys = _compute.utf8_trim_whitespace(keys)
            keys = _compute.utf8_split_whitespace(
                _compute.if_else(_compute.equal(keys, ""), None, keys)
            )
        if properties is None or (keys is not None and _compute.list_flatten(keys).null_count):
            return None
        tags, sharding_keys = layout.tags, layout.sharding_key
        return RowColumns(
            topics[0],
            bodies,
            None if tags is None else _column(batch, tags),
            keys,
            properties,
            None if sharding_keys is None else _column(batch, sharding_keys),
        )

    def _distinct_topics(self, batch: pa.RecordBatch) -> list[str]:
        """Return the topics of all rows; none if one is null or illegal."""
        if self.layout.topic_for_all is not None:
            return [self.layout.topic_for_all]
        assert self.layout.topic is not None, "the layout has a topic"
        topics: list[str | None] = _compute.unique(_column(batch, self.layout.topic)).to_pylist()
        try:
            return [written_topic(columns.TOPIC, topic or "") for topic in topics]
        except UsageError:
            return []

    def _property_maps(self, batch: pa.RecordBatch, first_row: int) -> Any:
        """Return a map of each row's properties: its own, then those of the attempt and the row.

        None = a property is null, reserved, or read from a message.
        """
        count, own = batch.num_rows, self.part.properties()
        names, values = _arrow.array([*own, identity.ROW]), _arrow.array([*own.values()])
        rows = _compute.cast(_arrow.array(np.arange(first_row, first_row + count)), _arrow.string())
        given = np.zeros(count, dtype=np.int64)
        entries: Any = _arrow.array([], _ENTRY)
        if self.layout.properties is not None:
            lists = _column(batch, self.layout.properties).cast(_arrow.list_(_ENTRY))
            entries = _compute.list_flatten(lists)
            given = _compute.list_value_length(lists).fill_null(0).to_numpy().astype(np.int64)
        key, text = entries.field(0), entries.field(1)
        if text.null_count or _compute.any(_compute.is_in(key, _RESERVED)).as_py():
            return None
        # Taken from the entries of all rows, then those of the attempt, then the row numbers.
        offsets = np.concatenate([[0], np.cumsum(given + len(names))])
        source = np.full(int(offsets[-1]), -1)
        source[offsets[1:, None] - np.arange(len(names), 0, -1)] = len(entries) + np.arange(
            len(names)
        )
        source[source < 0] = np.arange(len(entries))
        taken = _arrow.concat_arrays([key, names]).take(_arrow.array(source))
        source[offsets[1:] - 1] += np.arange(count)
        texts = _arrow.concat_arrays([text, values, rows]).take(_arrow.array(source))
        return _arrow.MapArray.from_arrays(_arrow.array(offsets, _arrow.int32()), taken, texts)

    def illegal(self, row: int, column: str, why: str) -> IllegalMessage:
        """Return the error for a value of this partition."""
        return IllegalMessage(f"row {row} of {self.part}: column {column!r}: {why}")

    def name_illegal(self, messages: Iterable[Message], *, first_row: int) -> UsageError | None:
        """Return the error for the first message that exceeds a limit, with row and column."""
        for row, message in enumerate(messages, first_row):
            try:
                encoded = message.encoded_properties()
            except (IllegalMessage, IllegalName) as error:
                return self._name_column(message, row, error)
            if len(encoded) > _PROPERTIES_BYTES_MAX:
                parts = _parts(message)
                longest = max(parts, key=lambda name: len(parts[name].encoded_properties()))
                why = f"with the row's other columns {len(encoded)} bytes of properties"
                return self.illegal(row, longest, f"{why}; {_PROPERTIES_BYTES_MAX} always fit")
        return None

    def name_refused(self, reason: TernError, *, row: int) -> UsageError | None:
        """Return the error for a row that its broker refused; None = the row is not the reason."""
        if reason.fault is not Fault.CALLER:
            return None
        if not isinstance(reason, PermissionRefused | TopicNotFound):
            return IllegalMessage(f"row {row} of {self.part}: {reason}")
        if self.layout.topic_for_all is not None:
            return UsageError(f"option 'topic': {reason}")
        return self.illegal(row, columns.TOPIC, str(reason))

    def _name_column(self, message: Message, row: int, error: UsageError) -> IllegalMessage:
        """Return the error for an illegal message, with the first column that is illegal alone."""
        for column, part in _parts(message).items():
            try:
                part.encoded_properties()
            except IllegalMessage as found:
                return self.illegal(row, column, _short(str(found), part))
        return IllegalMessage(f"row {row} of {self.part}: {error}")

    def _bodies(self, column: Any, first_row: int) -> list[bytes]:
        null = _first_null(column)
        if null is not None:
            raise self.illegal(first_row + null, columns.BODY, "is null; each row needs a body")
        if pa.types.is_string(column.type):
            column = column.cast(pa.binary())
        elif pa.types.is_large_string(column.type):
            column = column.cast(pa.large_binary())
        return list(column.to_pylist())

    def _topics(self, batch: pa.RecordBatch, first_row: int) -> list[str]:
        layout = self.layout
        if layout.topic_for_all is not None:
            return [layout.topic_for_all] * batch.num_rows
        assert layout.topic is not None, "the layout has a topic"
        column = _column(batch, layout.topic)
        null = _first_null(column)
        if null is not None:
            why = "is null, and there is no option 'topic'"
            raise self.illegal(first_row + null, columns.TOPIC, why)
        topics: list[str] = column.to_pylist()
        for topic in dict.fromkeys(topics):
            try:
                written_topic(columns.TOPIC, topic)
            except UsageError as error:
                row = first_row + topics.index(topic)
                raise self.illegal(row, columns.TOPIC, str(error)) from None
        return topics

    def _keys(self, batch: pa.RecordBatch, first_row: int) -> list[Sequence[str]] | None:
        values = _values(batch, self.layout.keys)
        if values is None:
            return None
        if self.layout.keys_are_text:
            return [text.split() if text else () for text in values]
        for row, keys in enumerate(values, first_row):
            if keys and None in keys:
                why = f"its key number {keys.index(None)} is null; leave it out"
                raise self.illegal(row, columns.KEYS, why)
        return values

    def _delays(self, batch: pa.RecordBatch, first_row: int, now_ms: int) -> list[int] | None:
        """Return the delay or delivery time of each row, ms; 0 = at once."""
        if self.layout.delay is None:
            return None
        column = _column(batch, self.layout.delay)
        values: list[int | None] = column.cast(pa.int64()).to_pylist()
        if self.layout.delay_is_time:
            due = (-(-at_us // _US_IN_MS) if at_us is not None else 0 for at_us in values)
            values = [at_ms if at_ms > now_ms else 0 for at_ms in due]
        ahead_ms = now_ms if self.layout.delay_is_time else 0
        delays: list[int] = []
        for row, value in enumerate(values, first_row):
            delay = value or 0
            if delay < 0:
                raise self.illegal(row, columns.DELAY, f"is {delay}, must not be negative")
            if delay - ahead_ms > DELAY_MS_MAX:
                text = (
                    f"is {delay - ahead_ms} ms ahead, at most {DELAY_MS_MAX} (3 days) are allowed"
                )
                raise self.illegal(row, columns.DELAY, text)
            delays.append(delay)
        return delays

    def _properties(
        self, pairs: Sequence[tuple[str, str | None]], row: int
    ) -> tuple[dict[str, str], str]:
        """Return a row's properties and the sharding key among them.

        Properties of a read message, recognised by its unique key, include those of clients and
        brokers, which are omitted. In any other row such a name is an error.
        """
        given: dict[str, Any] = dict(pairs)
        if names.UNIQUE_KEY in given:
            kept_key = given.get(names.SHARDING_KEY) or ""
            return {name: text for name, text in given.items() if name not in NOT_COPIED}, kept_key
        self._check_names(given, row)
        return given, ""

    def _check_names(self, given: Mapping[str, str | None], row: int) -> None:
        for name, text in given.items():
            if text is None:
                raise self.illegal(row, columns.PROPERTIES, f"property {shown(name)!r} is null")
            if name in RESERVED_PROPERTIES:
                why = f"property {name!r} is reserved; choose another name"
                raise self.illegal(row, columns.PROPERTIES, why)


def _parts(message: Message) -> dict[str, Message]:
    """Return a message for each column, with the value of that column only."""
    topic = message.topic
    own = {name: text for name, text in message.properties.items() if name not in identity.NAMES}
    return {
        columns.BODY: Message(topic, message.body),
        columns.TAGS: Message(topic, b"", message.tags),
        columns.KEYS: Message(topic, b"", keys=message.keys),
        columns.PROPERTIES: Message(topic, b"", properties=own),
        columns.SHARDING_KEY: Message(topic, b"", sharding_key=message.sharding_key),
        columns.DELAY: Message(
            topic,
            b"",
            deliver_at_ms=message.deliver_at_ms,
            deliver_after_ms=message.deliver_after_ms,
        ),
    }


def _short(text: str, part: Message) -> str:
    """Return an error's text with long values cut."""
    for value in (part.tags, *part.keys, part.sharding_key, *part.properties):
        text = text.replace(repr(value), repr(shown(value)))
    text = text.removeprefix(f"message for {part.topic!r}: ")
    return text.removeprefix("property 'tags': ").removeprefix("property 'sharding_key': ")


def _values(batch: pa.RecordBatch, place: int | None) -> list[Any] | None:
    """Return the values of a column; None = no such column."""
    if place is None:
        return None
    values: list[Any] = _column(batch, place).to_pylist()
    return values


def _column(batch: Any, place: int) -> Any:
    """Return a column. Its type is known only at run time."""
    return batch.column(place)


def _first_null(column: Any) -> int | None:
    """Return the position of the first null of a column; None = no null."""
    if not column.null_count:
        return None
    return int(pc.index(column.is_null(), True).as_py())  # pyright: ignore[reportUnknownMemberType]
