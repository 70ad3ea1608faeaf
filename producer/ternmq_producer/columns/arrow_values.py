"""Values of Arrow arrays as numpy arrays, without copies of the values.

pyarrow is optional: a caller with an Arrow array has installed it, so it is imported here at the
first such array.
"""

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ternmq_model.arrays import Bytes, Ints
from ternmq_model.byte_column import ByteColumn
from ternmq_model.errors import UsageError

_PROTOCOLS: Final = ("__arrow_c_array__", "__arrow_c_stream__")


class ArrowTexts(NamedTuple):
    """Texts or byte strings of an Arrow array."""

    column: ByteColumn
    """Values, empty where they are null."""

    is_null: NDArray[np.bool_] | None
    """Mask of the null values. None = no value is null."""


def is_arrow(value: object) -> bool:
    """Return whether `value` has Arrow's C interface: an array, chunked array, batch or table."""
    return any(hasattr(value, name) for name in _PROTOCOLS)


def columns_of(value: object) -> Mapping[str, Any] | None:
    """Return the columns of a batch or table by name; None = `value` is no such thing."""
    if not is_arrow(value) or not hasattr(value, "schema"):
        return None
    batch: Any = value
    return dict(zip(batch.schema.names, batch.columns, strict=True))


def as_array(name: str, value: Any) -> Any:
    """Return an array or chunked array as one array of plain values.

    Raises:
        UsageError: `value` cannot be read as an array.
    """
    arrow = _arrow()
    try:
        if not isinstance(value, arrow.Array | arrow.ChunkedArray):
            is_chunked = hasattr(value, "__arrow_c_stream__")
            value = arrow.chunked_array(value) if is_chunked else arrow.array(value)
        if isinstance(value, arrow.ChunkedArray):
            value = value.chunk(0) if value.num_chunks == 1 else value.combine_chunks()
        if arrow.types.is_dictionary(value.type):
            value = value.cast(value.type.value_type)
    except (arrow.ArrowException, TypeError, ValueError) as error:
        raise UsageError(f"{name}: {error}") from None
    return value


def texts(name: str, array: Any, *, is_body: bool = False) -> ArrowTexts:
    """Return the strings of an array.

    Args:
        name: Name of the column, for errors.
        array: Array of `as_array`.
        is_body: True where byte strings are allowed.

    Raises:
        UsageError: The array has another type.
    """
    arrow = _arrow()
    types, kind = arrow.types, array.type
    if types.is_null(kind):
        array = array.cast(arrow.large_string())
    elif is_body and types.is_fixed_size_binary(kind):
        return _fixed(array)
    elif not (types.is_string(kind) or types.is_large_string(kind)) and not (
        is_body and (types.is_binary(kind) or types.is_large_binary(kind))
    ):
        wanted = "strings or binary values" if is_body else "strings"
        raise UsageError(f"{name} is an Arrow array of {kind}, must be one of {wanted}")
    _, offsets_buffer, data = array.buffers()
    offsets = _offsets(array, offsets_buffer, len(array))
    column, nulls = ByteColumn.between(_bytes(data), offsets), _nulls(array)
    if nulls is not None:
        column = ByteColumn(column.data, column.starts, np.where(nulls, 0, column.sizes))
    return ArrowTexts(column, nulls)


def distinct_texts(name: str, array: Any) -> tuple[Ints, list[str | None]]:
    """Return the index of each row's value among the distinct ones, and these.

    Raises:
        UsageError: The array has another type.
    """
    texts(name, array)
    encoded = array.dictionary_encode(null_encoding="encode")
    return _whole(encoded.indices), encoded.dictionary.to_pylist()


def flattened(array: Any) -> tuple[Sequence[Any], Ints]:
    """Return the values of all lists, or the names and values of all maps, without a null's.

    Then the index of the first value of each list or map, and behind them the number of values.
    """
    offsets = _offsets(array, array.buffers()[1], len(array))
    counts, nulls = np.diff(offsets), _nulls(array)
    if nulls is not None:
        counts[nulls] = 0
    bounds = np.zeros(len(array) + 1, dtype=np.int64)
    np.cumsum(counts, out=bounds[1:])
    first, count = int(offsets[0]), int(bounds[-1])
    children = (array.keys, array.items) if is_map(array) else (array.values,)
    if count == int(offsets[-1]) - first:
        return [child.slice(first, count) for child in children], bounds
    indices = _arrow().array(np.arange(count) + np.repeat(offsets[:-1] - bounds[:-1], counts))
    return [child.take(indices) for child in children], bounds


def is_list(array: Any) -> bool:
    """Return whether the values of an array are lists."""
    types = _arrow().types
    return bool(types.is_list(array.type) or types.is_large_list(array.type))


def is_map(array: Any) -> bool:
    """Return whether the values of an array are maps."""
    return bool(_arrow().types.is_map(array.type))


def numbers(name: str, array: Any, null: int) -> Ints:
    """Return the whole numbers of an array, with `null` for null values.

    Raises:
        UsageError: The array has another type.
    """
    arrow = _arrow()
    if not (arrow.types.is_integer(array.type) or arrow.types.is_null(array.type)):
        raise UsageError(f"{name} is an Arrow array of {array.type}, must be one of whole numbers")
    return _whole(array.cast(arrow.int64()).fill_null(null))


def _whole(array: Any) -> Ints:
    values: Ints = array.to_numpy(zero_copy_only=False).astype(np.int64)
    return values


def _arrow() -> Any:
    return importlib.import_module("pyarrow")


def _bytes(buffer: Any) -> Bytes:
    return np.frombuffer(b"" if buffer is None else buffer, dtype=np.uint8)


def _nulls(array: Any) -> NDArray[np.bool_] | None:
    if not array.null_count:
        return None
    mask: NDArray[np.bool_] = array.is_null().to_numpy(zero_copy_only=False)
    return mask


def _offsets(array: Any, buffer: Any, count: int) -> Ints:
    """Return the `count` + 1 offsets of an array's values."""
    arrow = _arrow()
    if buffer is None or not count:
        return np.zeros(count + 1, dtype=np.int64)
    types = arrow.types
    is_large = any(
        check(array.type)
        for check in (types.is_large_string, types.is_large_binary, types.is_large_list)
    )
    kind = arrow.int64() if is_large else arrow.int32()
    offsets = arrow.Array.from_buffers(kind, count + 1, [None, buffer], offset=array.offset)
    return _whole(offsets)


def _fixed(array: Any) -> ArrowTexts:
    width, count = array.type.byte_width, len(array)
    data = _bytes(array.buffers()[1])
    first = array.offset * width
    column = ByteColumn.packed(data, np.full(count, width, dtype=np.int64), first)
    return ArrowTexts(column, _nulls(array))
