"""Arrow columns of the properties of records that have the same names at the same places.

Records of one program mostly have them: only values of fixed length differ, such as unique keys.
Then the rows are a matrix of bytes, and a column is a part of its columns. A search for separators
and names takes five times as long.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ternmq_model import properties as names
from ternmq_model.arrays import Bytes, is_ascii
from ternmq_model.columns.arrow import arrow
from ternmq_model.columns.slices import repeat_text


class _Place(NamedTuple):
    """Place of a value in each row."""

    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class AlignedProperties:
    """Properties of records with the same names, each with its value at the same place."""

    _rows: Bytes
    """Properties of the records, a row each."""

    _places: Mapping[str, _Place]
    _differ: NDArray[np.bool_]
    """Mask of the bytes that differ between rows."""

    def values(self, name: str) -> Any:
        """Return the property `name` of each row; null = none."""
        place = self._places.get(name)
        if place is None:
            return arrow.nulls(len(self._rows), arrow.string())
        found = self._rows[:, place.begin : place.end]
        if not self._differ[place.begin : place.end].any():
            return repeat_text(found[0].tobytes(), len(found))
        return _texts(found, [place.end - place.begin])

    def pairs(self) -> tuple[Any, Any, NDArray[np.int32]]:
        """Return names and values as `PropertyColumns.pairs`."""
        shown = {name: at for name, at in self._places.items() if name not in names.HIDDEN}
        texts = [name.encode() for name in shown]
        row = np.frombuffer(b"".join(texts), dtype=np.uint8)
        keys = _texts(np.broadcast_to(row, (len(self._rows), len(row))), [len(t) for t in texts])
        parts = [self._rows[:, begin:end] for begin, end in shown.values()]
        joined = np.concatenate([self._rows[:, :0], *parts], axis=1)
        offsets = np.arange(len(self._rows) + 1, dtype=np.int32) * len(shown)
        return keys, _texts(joined, [end - begin for begin, end in shown.values()]), offsets


def align(rows: Bytes) -> AlignedProperties | None:
    """Return the properties if all rows have the same names and lengths of values, else None.

    None also stands for rows with rare properties: a name twice, a pair without name or value, or
    values that differ in bytes beyond ASCII.

    Args:
        rows: Encoded properties, at least one row and one column.
    """
    places = _places_of(rows[0].tobytes())
    if places is None:
        return None
    differ: NDArray[np.bool_] = np.bitwise_or.reduce(rows ^ rows[0], axis=0) != 0
    left = differ.copy()
    for begin, end in places.values():
        left[begin:end] = False
        if differ[begin:end].any():
            values = rows[:, begin:end]
            if int(values.min()) <= names.PAIR_END_CODE or not is_ascii(values):
                return None
    return None if left.any() else AlignedProperties(rows, places, differ)


def _places_of(row: bytes) -> dict[str, _Place] | None:
    """Return the place of each value in encoded properties; None = the properties are rare."""
    found: dict[str, _Place] = {}
    begin = 0
    for pair in row.split(names.PAIR_END_BYTE):
        parts = pair.split(bytes((names.NAME_END_CODE,)))
        end = begin + len(pair)
        if len(parts) == 2 and all(parts) and end < len(row):
            try:
                name, _ = parts[0].decode(), parts[1].decode()
            except UnicodeDecodeError:
                return None
            if name in found:
                return None
            found[name] = _Place(end - len(parts[1]), end)
        elif pair or end < len(row):
            return None
        begin = end + 1
    return found


def _texts(rows: Bytes, widths: Sequence[int]) -> Any:
    """Return the texts that lie back to back in each row, row by row."""
    count, total = rows.shape
    bounds = np.cumsum([0, *widths])[:-1]
    offsets = np.full(count * len(widths) + 1, count * total, dtype=np.int32)
    offsets[:-1].reshape(count, -1)[:] = np.arange(count)[:, None] * total + bounds
    buffers = [None, arrow.py_buffer(offsets), arrow.py_buffer(np.ascontiguousarray(rows))]
    return arrow.Array.from_buffers(arrow.string(), count * len(widths), buffers)
