"""Values of Arrow arrays as numpy arrays, without copies of the values.

pyarrow is optional: a caller with an Arrow array has installed it, so it is imported here at the
first such array.
"""

import importlib
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ternmq_model.arrays import Bytes, Ints, is_ascii
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


def columns_of(value: Any) -> Sequence[tuple[str, Any]] | None:
    """Return names and columns of a batch, table or data frame; None = `value` is no such thing.

    Raises:
        UsageError: A column cannot be read.
    """
    if not is_arrow(value) or not hasattr(value, "columns"):
        return None
    arrow = _arrow()
    if not isinstance(value, arrow.RecordBatch | arrow.Table):
        try:
            value = arrow.table(value)
        except (arrow.ArrowException, TypeError, ValueError) as error:
            raise UsageError(f"{type(value).__name__}: {error}") from None
    return list(zip(value.schema.names, value.columns, strict=True))


def as_array(name: str, value: Any) -> Any:
    """Return an array or chunked array as one array of values, lists or maps with offsets.

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
        types = arrow.types
        if types.is_dictionary(value.type):
            return as_array(name, value.dictionary).take(value.indices)
        if types.is_list_view(value.type) or types.is_large_list_view(value.type):
            return _listed(name, value)
    except (arrow.ArrowException, TypeError, ValueError) as error:
        raise UsageError(f"{name}: {error}") from None
    return _cast(name, value, _plain_type(value.type))


def _listed(name: str, array: Any) -> Any:
    """Return list views as lists, with empty ones for nulls."""
    # pyarrow 26 casts views whose last one is null to an array with an offset too few.
    arrow = _arrow()
    counts = _whole(
        importlib.import_module("pyarrow.compute").list_value_length(array).fill_null(0)
    )
    offsets = arrow.array(np.concatenate(([0], np.cumsum(counts))))
    return arrow.LargeListArray.from_arrays(offsets, as_array(name, array.flatten()))


def _plain_type(kind: Any) -> Any:
    """Return the type with offsets for dictionaries, views of bytes and lists of one size."""
    arrow = _arrow()
    types = arrow.types
    if types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if types.is_string_view(kind):
        return arrow.large_string()
    if types.is_binary_view(kind):
        return arrow.large_binary()
    if types.is_map(kind):
        return arrow.map_(_plain_type(kind.key_type), _plain_type(kind.item_type))
    if types.is_large_list(kind):
        return arrow.large_list(_plain_type(kind.value_type))
    if types.is_list(kind) or types.is_fixed_size_list(kind):
        return arrow.list_(_plain_type(kind.value_type))
    return kind


def _cast(name: str, array: Any, kind: Any) -> Any:
    """Return an array with another type.

    Raises:
        UsageError: pyarrow cannot convert it.
    """
    if array.type == kind:
        return array
    try:
        return array.cast(kind)
    except _arrow().ArrowException as error:
        raise UsageError(
            f"{name} is an Arrow array of {array.type}, which pyarrow cannot convert to {kind}: "
            f"{error}"
        ) from None


def texts(name: str, array: Any, *, is_body: bool = False) -> ArrowTexts:
    """Return the strings of an array.

    Args:
        name: Name of the column, for errors.
        array: Array of `as_array`.
        is_body: True where byte strings are allowed.

    Raises:
        UsageError: The array has another type, or a string that is no UTF-8.
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
    data = _bytes(array.buffers()[2])
    offsets = _offsets(name, array, len(data))
    if not is_body:
        _check_text(name, array, data[offsets[0] : offsets[-1]])
    column, nulls = ByteColumn.between(data, offsets), _nulls(array)
    if nulls is not None:
        column = ByteColumn(column.data, column.starts, np.where(nulls, 0, column.sizes))
    return ArrowTexts(column, nulls)


def _check_text(name: str, array: Any, data: Bytes) -> None:
    """Check that strings are UTF-8, which `pyarrow.Array.from_buffers` does not.

    Args:
        name: Name of the column, for errors.
        array: Array of strings.
        data: Bytes of the strings.

    Raises:
        UsageError: A string is no UTF-8.
    """
    # 10 ns for each short text, and nothing for ASCII, which most are.
    if not is_ascii(data):
        try:
            array.validate(full=True)
        except _arrow().ArrowException as error:
            raise UsageError(f"{name}: {error}") from None


def distinct_texts(name: str, array: Any) -> tuple[Ints, list[str | None]]:
    """Return the index of each row's value among the distinct ones, and these.

    Raises:
        UsageError: The array has another type, or a string that is no UTF-8.
    """
    texts(name, array)
    encoded = array.dictionary_encode(null_encoding="encode")
    return _whole(encoded.indices), encoded.dictionary.to_pylist()


def flattened(name: str, array: Any) -> tuple[Sequence[Any], Ints]:
    """Return the values of all lists, or the names and values of all maps, without a null's.

    Then the index of the first value of each list or map, and behind them the number of values.
    """
    children = (array.keys, array.items) if is_map(array) else (array.values,)
    offsets = _offsets(name, array, len(children[0]))
    counts, nulls = np.diff(offsets), _nulls(array)
    if nulls is not None:
        counts[nulls] = 0
    bounds = np.zeros(len(array) + 1, dtype=np.int64)
    np.cumsum(counts, out=bounds[1:])
    first, count = int(offsets[0]), int(bounds[-1])
    if count == int(offsets[-1]) - first:
        return [child.slice(first, count) for child in children], bounds
    indices = np.arange(count) + np.repeat(offsets[:-1] - bounds[:-1], counts)
    return [taken(child, indices) for child in children], bounds


def taken(array: Any, indices: Ints) -> Any:
    """Return the values at indices, and null for each one below 0."""
    missing = indices < 0
    return array.take(_arrow().array(indices, mask=missing if missing.any() else None))


def is_null(array: Any) -> bool:
    """Return whether an array has the type of nulls."""
    return bool(_arrow().types.is_null(array.type))


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
    return _whole(_cast(name, array, arrow.int64()).fill_null(null))


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


def _offsets(name: str, array: Any, limit: int) -> Ints:
    """Return the offsets of an array's values, one more than values.

    Raises:
        UsageError: They do not ascend from 0 to at most `limit`.
    """
    arrow = _arrow()
    buffer, count = array.buffers()[1], len(array)
    if buffer is None or not count:
        return np.zeros(count + 1, dtype=np.int64)
    types = arrow.types
    is_large = any(
        check(array.type)
        for check in (types.is_large_string, types.is_large_binary, types.is_large_list)
    )
    kind = arrow.int64() if is_large else arrow.int32()
    offsets = _whole(arrow.Array.from_buffers(kind, count + 1, [None, buffer], offset=array.offset))
    check_offsets(name, offsets, limit)
    return offsets


def check_offsets(name: str, offsets: Ints, limit: int) -> None:
    """Check that offsets, at least one, ascend from 0 to at most `limit`.

    Raises:
        UsageError: They do not.
    """
    if offsets[0] < 0 or offsets[-1] > limit or (offsets[1:] < offsets[:-1]).any():
        raise UsageError(f"{name}: the offsets must ascend from 0 to at most {limit}")


def _fixed(array: Any) -> ArrowTexts:
    width, count = array.type.byte_width, len(array)
    data = _bytes(array.buffers()[1])
    first = array.offset * width
    column = ByteColumn.packed(data, np.full(count, width, dtype=np.int64), first)
    return ArrowTexts(column, _nulls(array))
