"""Arrow columns of the properties of many records.

Aligned properties (see `aligned_properties`) are read by their places. All others are copied to one
buffer, in which numpy finds the separators. Records with rare properties (a name twice, bytes that
are no UTF-8) are first normalised one by one by `decode_properties`.
"""

from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ternmq_model import properties as names
from ternmq_model.arrays import Bytes, Ints, cut_equal, rows_with_repeats
from ternmq_model.columns.aligned_properties import AlignedProperties, align
from ternmq_model.columns.arrow import arrow, compute
from ternmq_model.columns.slices import find_broken_text, gather, parts_of, with_nulls
from ternmq_model.properties import (
    NAME_END_CODE,
    PAIR_END_CODE,
    decode_properties,
    encode_properties,
)

LIST_TYPE: Final = arrow.list_(arrow.field("element", arrow.string()))
MAP_TYPE: Final = arrow.map_(arrow.string(), arrow.string())


def read_properties(
    data: bytes | memoryview, begins: Ints, ends: Ints
) -> "AlignedProperties | PropertyColumns":
    """Return the properties of records, at least one. See `PropertyColumns`."""
    width = int(ends[0] - begins[0])
    if width and (ends - begins == width).all():
        aligned = align(cut_equal(data, begins, width))
        if aligned is not None:
            return aligned
    return PropertyColumns(data, begins, ends)


def key_lists(values: Any) -> Any:
    """Return the keys in each value of the property `KEYS`; an empty list = none."""
    found = compute.split_pattern(values, names.KEY_SEPARATOR)
    _, offsets = found.buffers()[:2]
    return arrow.Array.from_buffers(LIST_TYPE, len(found), [None, offsets], children=[found.values])


def property_maps(read: "AlignedProperties | PropertyColumns") -> Any:
    """Return all properties of each row, except hidden ones."""
    keys, values, offsets = read.pairs()
    entries = arrow.StructArray.from_arrays(
        [keys, values], fields=[MAP_TYPE.key_field, MAP_TYPE.item_field]
    )
    buffers = [None, arrow.py_buffer(offsets)]
    return arrow.Array.from_buffers(MAP_TYPE, len(offsets) - 1, buffers, children=[entries])


class PropertyColumns:
    """Properties of records, row by row.

    Args:
        data: Buffer with the records. This object does not refer to it.
        begins: Start of each record's properties in it.
        ends: End of each record's properties.
    """

    def __init__(self, data: bytes | memoryview, begins: Ints, ends: Ints) -> None:
        self._take(gather(data, begins, ends))
        odd = set(find_broken_text(self._data, self._bounds))
        odd |= set(rows_with_repeats(self._row_of, self._codes, len(self._names)))
        if odd:
            whole, bounds = self._data.tobytes(), self._bounds.tolist()
            pieces = [whole[begin:end] for begin, end in pairwise(bounds)]
            for row in odd:
                pieces[row] = encode_properties(decode_properties(pieces[row]))
            self._take(arrow.array(pieces, type=arrow.binary()))

    def _take(self, properties: Any) -> None:
        self._data, self._bounds = parts_of(properties)
        self._rows = len(properties)
        self._find_pairs()
        every = gather(self._data.data, self._begins, self._separators, arrow.string())
        found = every.dictionary_encode()
        self._names = found.dictionary
        self._codes: Ints = found.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        self._code_of = {name: code for code, name in enumerate(_plain(self._names))}

    def _find_pairs(self) -> None:
        """Find the bounds of names and values, and the row of each pair."""
        data, begins, ends = self._data, self._bounds[:-1], self._bounds[1:]
        stops: Ints = np.flatnonzero(data == PAIR_END_CODE)
        lacks_end = ends > begins
        lacks_end[lacks_end] = data[ends[lacks_end] - 1] != PAIR_END_CODE
        counts = np.diff(np.searchsorted(stops, ends), prepend=0) + lacks_end
        if lacks_end.any():
            stops = np.sort(np.concatenate((stops, ends[lacks_end])))
        counted = np.cumsum(counts)
        starts = np.empty(len(stops), dtype=np.int64)
        starts[1:] = stops[:-1] + 1
        has_pairs = counts > 0
        starts[(counted - counts)[has_pairs]] = begins[has_pairs]
        separators: Ints = np.flatnonzero(data == NAME_END_CODE)
        rows = np.repeat(np.arange(len(begins)), counts)
        if len(separators) != len(stops) or not _is_in(separators, starts, stops).all():
            # Values with a separator, and pairs without name or value, are ignored.
            separators = np.append(separators, len(data))
            separators = separators[np.searchsorted(separators[:-1], starts)]
            good = _is_in(separators, starts, stops)
            starts, separators, stops, rows = (
                each[good] for each in (starts, separators, stops, rows)
            )
        self._begins, self._separators, self._ends, self._row_of = starts, separators, stops, rows

    def values(self, name: str) -> Any:
        """Return the property `name` of each row; null = none."""
        code = self._code_of.get(name)
        if code is None:
            return arrow.nulls(self._rows, arrow.string())
        pairs = np.flatnonzero(self._codes == code)
        begins, ends = self._separators[pairs] + 1, self._ends[pairs]
        if len(pairs) == self._rows:
            return gather(self._data.data, begins, ends, arrow.string())
        is_there = np.zeros(self._rows, dtype=np.bool_)
        rows = self._row_of[pairs]
        is_there[rows] = True
        all_begins, all_ends = self._bounds[:-1].copy(), self._bounds[:-1].copy()
        all_begins[rows], all_ends[rows] = begins, ends
        return with_nulls(gather(self._data.data, all_begins, all_ends, arrow.string()), is_there)

    def pairs(self) -> tuple[Any, Any, NDArray[np.int32]]:
        """Return names and values, except hidden ones, and the index of each row's first pair.

        The number of all pairs follows as one more index.
        """
        codes = self._codes
        pairs: slice | NDArray[np.bool_] = slice(None)
        hidden = [self._code_of[name] for name in names.HIDDEN if name in self._code_of]
        rows = self._row_of
        if hidden:
            pairs = ~np.isin(codes, hidden)
            codes, rows = codes[pairs], rows[pairs]
        keys = self._names.take(arrow.array(codes))
        begins, ends = self._separators[pairs] + 1, self._ends[pairs]
        values = gather(self._data.data, begins, ends, arrow.string())
        offsets = np.zeros(self._rows + 1, dtype=np.int32)
        np.cumsum(np.bincount(rows, minlength=self._rows), out=offsets[1:])
        return keys, values, offsets


def _is_in(separators: Ints, starts: Ints, stops: Ints) -> NDArray[np.bool_]:
    """Return for each pair whether it has a name and a value."""
    return (separators > starts) & (separators + 1 < stops)


def _plain(dictionary: Any) -> list[str]:
    """Return names as texts. Names that are no UTF-8 are never requested."""
    data: Bytes
    data, bounds = parts_of(dictionary)
    whole, places = data.tobytes(), bounds.tolist()
    return [whole[begin:end].decode("utf-8", "replace") for begin, end in pairwise(places)]
