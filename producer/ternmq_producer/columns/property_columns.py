"""Columns of tags, keys and properties, in the form on disk.

The rules for a value are those of `Message`, which decides about each distinct value, and about
each row that a fast look at all bytes finds suspect.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from ternmq_model.arguments import is_kind
from ternmq_model.arrays import Bytes, Ints, rows_with_repeats
from ternmq_model.byte_column import ByteColumn, join_rows
from ternmq_model.errors import IllegalMessage, UsageError
from ternmq_model.expression_text import EXPRESSION_CHARACTERS_MAX
from ternmq_model.message import Message
from ternmq_model.properties import (
    KEY_SEPARATOR,
    KEYS,
    NAME_END,
    NAME_END_CODE,
    NOT_COPIED,
    PAIR_END_BYTE,
    PAIR_END_CODE,
    SHARDING_KEY,
    TAGS,
    UNIQUE_KEY,
    encode_name,
)
from ternmq_producer.columns import arrow_values

Errors = dict[int, IllegalMessage]
"""Errors of illegal rows."""

_KEYS_NAME: Final = encode_name(KEYS)
_SEPARATOR: Final = KEY_SEPARATOR.encode()
_NAME_END: Final = NAME_END.encode()
_BLANK_MAX: Final = ord(" ")


class PropertyColumn(Protocol):
    """Column that adds properties to each message."""

    def encoded(self, begin: int, end: int) -> tuple[ByteColumn, Errors]:
        """Return the properties of the rows from `begin` to `end`, and the illegal rows."""
        ...


class DistinctColumn:
    """Column of texts of which there are few: tags, sharding keys, or a value for all rows.

    Attributes:
        codes: Index of each row's text.
        texts: Distinct values; none or an empty one adds no property.
    """

    def __init__(self, name: str, topic: str, codes: Ints, texts: Sequence[Any]) -> None:
        self.codes = codes
        self.texts = texts
        self._encoded, self._errors = _encoded_texts(name, topic, texts)
        self._is_illegal = np.zeros(len(texts), dtype=np.bool_)
        self._is_illegal[list(self._errors)] = True

    @classmethod
    def of(cls, name: str, topic: str, given: Any, count: int) -> Self | None:
        """Return the column of a given value; None = no row has one.

        Args:
            name: Field of `Message`.
            topic: Topic of the messages.
            given: Text for all rows, or a column of texts.
            count: Number of rows.

        Raises:
            UsageError: The column has another type or another length.
        """
        if given is None or (is_kind(given, str) and not given):
            return None
        if is_kind(given, str):
            return cls(name, topic, np.zeros(count, dtype=np.int64), [given])
        if arrow_values.is_arrow(given):
            codes, texts = arrow_values.distinct_texts(name, arrow_values.as_array(name, given))
        else:
            values = _listed(name, given, "a text for all messages")
            try:
                code_by_text = {text: code for code, text in enumerate(dict.fromkeys(values))}
            except TypeError:  # of a list, for example
                raise UsageError(f"{name}: each value must be a text or None") from None
            codes = np.fromiter(
                map(code_by_text.__getitem__, values), dtype=np.int64, count=len(values)
            )
            texts = list(code_by_text)
        check_length(name, len(codes), count)
        return cls(name, topic, codes, texts)

    def encoded(self, begin: int, end: int) -> tuple[ByteColumn, Errors]:
        """Return the properties of the rows from `begin` to `end`, and the illegal rows."""
        codes = self.codes[begin:end]
        if len(self.texts) == 1:
            column = ByteColumn.repeated(self._encoded.row(0), end - begin)
        else:
            column = self._encoded.take(codes)
        rows = np.flatnonzero(self._is_illegal[codes])
        illegal: list[int] = codes[rows].tolist()
        return column, {
            row: self._errors[code]
            for row, code in zip((rows + begin).tolist(), illegal, strict=True)
        }


class ObjectColumn:
    """Column of Python values, one for each row, such as dicts: encoded one by one."""

    def __init__(self, name: str, topic: str, values: Sequence[Any]) -> None:
        self._name = name
        self._topic = topic
        self._values = values

    def encoded(self, begin: int, end: int) -> tuple[ByteColumn, Errors]:
        """Return the properties of the rows from `begin` to `end`, and the illegal rows."""
        errors: Errors = {}
        encoded: list[bytes] = []
        for row, value in enumerate(self._values[begin:end], begin):
            one, error = _encode(self._topic, **({} if value is None else {self._name: value}))
            encoded.append(one)
            if error is not None:
                errors[row] = error
        return ByteColumn.of(encoded), errors


class KeyListColumn:
    """Column of keys as texts in one buffer, one or several for each row.

    Args:
        topic: Topic of the messages.
        keys: Keys of all rows.
        missing: Mask of keys that are null.
        begins: Index of the first key of each row.
        ends: Index behind the last key of each row.
    """

    def __init__(
        self,
        topic: str,
        keys: ByteColumn,
        missing: NDArray[np.bool_] | None,
        begins: Ints,
        ends: Ints,
    ) -> None:
        self._topic = topic
        self._keys = keys
        self._missing = missing
        self._begins = begins
        self._ends = ends

    def encoded(self, begin: int, end: int) -> tuple[ByteColumn, Errors]:
        """Return the properties of the rows from `begin` to `end`, and the illegal rows."""
        begins, ends = self._begins[begin:end], self._ends[begin:end]
        if begin == end or int(ends[-1]) == int(begins[0]):
            return ByteColumn.repeated(b"", end - begin), {}
        first = int(begins[0])
        keys = self._keys.take(slice(first, int(ends[-1])))
        entries = join_rows([keys, ByteColumn.repeated(_SEPARATOR, len(keys))])
        begins, ends = begins - first, ends - first
        has_keys = ends > begins
        stops = np.append(entries.starts, len(entries.data))
        starts = stops[begins]
        sizes = np.where(has_keys, stops[ends] - starts - len(_SEPARATOR), 0)
        rows = ByteColumn(entries.data, starts, sizes)
        suspect = _separators(entries.data) | (entries.data == ord(KEY_SEPARATOR))
        suspect[stops[1:] - len(_SEPARATOR)] = False
        bad = _rows_of(suspect, entries.starts) | set(np.flatnonzero(keys.sizes == 0).tolist())
        if self._missing is not None:
            bad |= set(np.flatnonzero(self._missing[first : first + len(keys)]).tolist())
        column = join_rows([_where(has_keys, _KEYS_NAME), rows, _where(has_keys, PAIR_END_BYTE)])
        errors: Errors = {}
        for at in _lists_of(bad, begins, ends):
            texts: list[str | None] = []
            for each in range(int(begins[at]), int(ends[at])):
                is_null = self._missing is not None and bool(self._missing[first + each])
                texts.append(None if is_null else _text(keys.row(each)))
            _, error = _encode(self._topic, keys=texts)
            if error is not None:
                errors[at + begin] = error
        return column, errors


class MapEntries(NamedTuple):
    """Names and values of the properties of many rows."""

    names: ByteColumn
    values: ByteColumn
    codes: Ints
    """Index of each name among the distinct ones."""

    is_bad: NDArray[np.bool_]
    """Mask of entries whose name is illegal, or whose value is null or empty."""


class MapColumn:
    """Column of properties as names and values in buffers, none or several for each row.

    Args:
        topic: Topic of the messages.
        entries: Names and values of all rows.
        distinct: Number of distinct names.
        bounds: Index of the first entry of each row, and the number of entries.
    """

    def __init__(self, topic: str, entries: MapEntries, distinct: int, bounds: Ints) -> None:
        self._topic = topic
        self._entries = entries
        self._distinct = distinct
        self._bounds = bounds

    def encoded(self, begin: int, end: int) -> tuple[ByteColumn, Errors]:
        """Return the properties of the rows from `begin` to `end`, and the illegal rows."""
        bounds = self._bounds[begin : end + 1]
        first, count = int(bounds[0]), int(bounds[-1] - bounds[0])
        if not count:
            return ByteColumn.repeated(b"", end - begin), {}
        bounds = bounds - first
        entries = slice(first, first + count)
        names, values = self._entries.names.take(entries), self._entries.values.take(entries)
        joined = join_rows(
            [
                names,
                ByteColumn.repeated(_NAME_END, count),
                values,
                ByteColumn.repeated(PAIR_END_BYTE, count),
            ]
        )
        stops = np.append(joined.starts, len(joined.data))
        starts = stops[bounds]
        column = ByteColumn(joined.data, starts[:-1], np.diff(starts))
        suspect = _separators(joined.data)
        suspect[stops[1:] - 1] = False
        suspect[stops[:-1] + names.sizes] = False
        bad = _rows_of(suspect, joined.starts)
        bad |= set(np.flatnonzero(self._entries.is_bad[entries]).tolist())
        rows = np.repeat(np.arange(end - begin), np.diff(bounds))
        found = set(rows_with_repeats(rows, self._entries.codes[entries], self._distinct))
        errors: Errors = {}
        for at in sorted(found.union(_lists_of(bad, bounds[:-1], bounds[1:]))):
            pairs = slice(int(bounds[at]), int(bounds[at + 1]))
            error = self._error_of(names.take(pairs).copies(), values.take(pairs).copies())
            if error is not None:
                errors[at + begin] = error
        return column, errors

    def _error_of(self, names: Sequence[bytes], values: Sequence[bytes]) -> IllegalMessage | None:
        """Return the error against the properties of one row."""
        pairs: dict[str, str] = {}
        for name, value in zip(map(_text, names), map(_text, values), strict=True):
            if name in pairs:
                return IllegalMessage(f"property {name!r} occurs twice: a message has a name once")
            pairs[name] = value
        return _encode(self._topic, properties=pairs)[1]


def key_column(topic: str, given: Any, count: int) -> PropertyColumn | None:
    """Return the column of keys of a given value; None = no row has one.

    Raises:
        UsageError: The column has another type or another length.
    """
    if given is None:
        return None
    if not arrow_values.is_arrow(given):
        values = _listed("keys", given, "a list with a text, or a list of texts, for each message")
        check_length("keys", len(values), count)
        if set(map(type, values)) <= {str}:
            keys = _texts(values)
            if keys is not None:
                rows = np.arange(count + 1)
                return KeyListColumn(topic, keys, None, rows[:-1], rows[1:])
        lists = [(each,) if isinstance(each, str) else each for each in values]
        return ObjectColumn("keys", topic, lists)
    array = arrow_values.as_array("keys", given)
    check_length("keys", len(array), count)
    if arrow_values.is_list(array):
        (values,), bounds = arrow_values.flattened("keys", array)
        column, missing = arrow_values.texts("keys", values)
        return KeyListColumn(topic, column, missing, bounds[:-1], bounds[1:])
    column, missing = arrow_values.texts("keys", array)
    rows = np.arange(count + 1)
    ends = rows[1:] if missing is None else rows[1:] - missing
    return KeyListColumn(topic, column, None, rows[:-1], ends)


def mapping_column(topic: str, given: Any, count: int) -> tuple[PropertyColumn | None, Any]:
    """Return the column of properties of a given value, and an array of sharding keys in it.

    Rows of read messages, which an Arrow map with a unique key shows, have no column of sharding
    keys beside it; their properties of `NOT_COPIED` are left out. None = no row has one.

    Raises:
        UsageError: The column has another type or another length.
    """
    if given is None:
        return None, None
    if isinstance(given, Mapping):
        zeros = np.zeros(count, dtype=np.int64)
        return DistinctColumn("properties", topic, zeros, [given]), None
    if not arrow_values.is_arrow(given):
        values = _listed("properties", given, "a mapping for all messages")
        check_length("properties", len(values), count)
        return ObjectColumn("properties", topic, values), None
    array = arrow_values.as_array("properties", given)
    check_length("properties", len(array), count)
    if arrow_values.is_null(array):
        return None, None
    if not arrow_values.is_map(array):
        raise UsageError(f"properties is an Arrow array of {array.type}, must be one of maps")
    (keys, items), bounds = arrow_values.flattened("properties", array)
    names, _ = arrow_values.texts("properties", keys)
    texts, missing = arrow_values.texts("properties", items)
    codes, distinct = arrow_values.distinct_texts("properties", keys)
    illegal = [_encode(topic, properties={name: "x"})[1] is not None for name in distinct]
    is_bad = np.array([*illegal, False])[codes] | (texts.sizes == 0)
    if missing is not None:
        is_bad |= missing
    entries = MapEntries(names, texts, codes, is_bad)
    if UNIQUE_KEY not in distinct:
        return MapColumn(topic, entries, len(distinct), bounds), None
    rows = np.repeat(np.arange(count), np.diff(bounds))
    is_read = np.zeros(count, dtype=np.bool_)
    is_read[rows[codes == distinct.index(UNIQUE_KEY)]] = True
    of_read = is_read[rows]
    sharding_keys = None
    if SHARDING_KEY in distinct:
        found = np.flatnonzero(of_read & (codes == distinct.index(SHARDING_KEY)))
        indices = np.full(count, -1)
        indices[rows[found]] = found
        sharding_keys = arrow_values.taken(items, indices)
    kept = np.flatnonzero(~(of_read & np.array([each in NOT_COPIED for each in distinct])[codes]))
    entries = MapEntries(names.take(kept), texts.take(kept), codes[kept], is_bad[kept])
    bounds = np.searchsorted(kept, bounds)
    return MapColumn(topic, entries, len(distinct), bounds), sharding_keys


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _encode(topic: str, **fields: Any) -> tuple[bytes, IllegalMessage | None]:
    """Return the properties of a message with `fields`, or the error against them."""
    try:
        return Message(topic, b"", **fields).encoded_properties(), None
    except IllegalMessage as error:
        return b"", error


def _encoded_texts(name: str, topic: str, texts: Sequence[Any]) -> tuple[ByteColumn, Errors]:
    """Return the property of each tag, sharding key or mapping, and the illegal ones by index."""
    values = ["" if text is None else text for text in texts]
    column = _texts(values) if set(map(type, values)) <= {str} else None
    if column is None:
        return ObjectColumn(name, topic, texts).encoded(0, len(texts))
    suspect = _separators(column.data)
    if name == "tags":
        suspect |= (column.data <= _BLANK_MAX) | (column.data == ord("|"))
    too_long = np.flatnonzero(column.sizes > EXPRESSION_CHARACTERS_MAX)
    errors: Errors = {}
    for code in sorted(_rows_of(suspect, column.starts).union(too_long.tolist())):
        _, error = _encode(topic, **{name: values[code]})
        if error is not None:
            errors[code] = error
    has_text = column.sizes > 0
    prefix = encode_name(TAGS if name == "tags" else SHARDING_KEY)
    pieces = [_where(has_text, prefix), column, _where(has_text, PAIR_END_BYTE)]
    return join_rows(pieces), errors


def _listed(name: str, given: Any, or_else: str) -> list[Any]:
    """Return the values of a list, a tuple or a numpy array."""
    if is_kind(given, np.ndarray) and given.ndim == 1:
        return list(given.tolist())
    if not is_kind(given, list, tuple):
        raise UsageError(
            f"{name} is {type(given).__name__}, must be an Arrow array, a list, or {or_else}"
        )
    return list(given)


def check_length(name: str, length: int, count: int) -> None:
    """Check that a column has a value for each message.

    Raises:
        UsageError: The column has another length.
    """
    if length != count:
        raise UsageError(f"{name} has {length} values for {count} messages")


def _texts(values: list[str]) -> ByteColumn | None:
    """Return texts in one buffer; None = one of them cannot be written as UTF-8."""
    joined = "".join(values)
    try:
        data = joined.encode()
        lengths = map(len, values) if len(data) == len(joined) else _lengths(values)
        sizes = np.fromiter(lengths, dtype=np.int64, count=len(values))
    except UnicodeEncodeError:
        return None
    return ByteColumn.packed(np.frombuffer(data, dtype=np.uint8), sizes)


def _lengths(values: list[str]) -> Iterable[int]:
    return (len(value.encode()) for value in values)


def _where(mask: NDArray[np.bool_], value: bytes) -> ByteColumn:
    """Return a column with `value` in the rows of a mask, else nothing."""
    if mask.all():
        return ByteColumn.repeated(value, len(mask))
    data: Bytes = np.frombuffer(value, dtype=np.uint8)
    return ByteColumn(data, np.zeros(len(mask), dtype=np.int64), mask * len(value))


def _separators(data: Bytes) -> NDArray[np.bool_]:
    """Return the mask of the bytes that no name, value or key may have."""
    mask: NDArray[np.bool_] = (data == NAME_END_CODE) | (data == PAIR_END_CODE)
    return mask


def _rows_of(mask: NDArray[np.bool_], starts: Ints) -> set[int]:
    """Return the rows with a byte of a mask."""
    found = np.flatnonzero(mask)
    return set((np.searchsorted(starts, found, side="right") - 1).tolist())


def _lists_of(entries: Iterable[int], begins: Ints, ends: Ints) -> list[int]:
    """Return the lists with an entry of `entries`."""
    found = np.array(sorted(entries), dtype=np.int64)
    lists = np.searchsorted(begins, found, side="right") - 1
    rows: list[int] = np.unique(lists[found < ends[lists]]).tolist()
    return rows
