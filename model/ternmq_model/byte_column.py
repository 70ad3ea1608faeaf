"""Columns of byte strings, which numpy copies without an object for each row. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Final, Self

import numpy as np

from ternmq_model.arrays import Bytes, Ints, windows

VARYING: Final = -1
"""Width of a column whose rows differ in length, and step of rows at irregular distances."""

_NO_BYTES: Final = np.zeros(0, dtype=np.uint8)


@dataclass(frozen=True, slots=True)
class ByteColumn:
    """Byte strings of many rows: their common buffer and the place of each. Immutable.

    `width` and `step` make copies of equal rows fast; a column with `VARYING` may have equal rows
    too.
    """

    data: Bytes
    """Buffer with all rows."""

    starts: Ints
    """Begin of each row in `data`."""

    sizes: Ints
    """Length of each row."""

    width: int = VARYING
    """Length of all rows, or `VARYING`."""

    step: int = VARYING
    """Distance between the begins of two rows, or `VARYING`."""

    values: list[bytes] | None = None
    """Rows of a column that was made from objects, which has no buffer."""

    @classmethod
    def of(cls, values: Sequence[bytes]) -> Self:
        """Return a column with copies of `values`."""
        sizes = np.fromiter(map(len, values), dtype=np.int64, count=len(values))
        return cls.packed(np.frombuffer(b"".join(values), dtype=np.uint8), sizes)

    @classmethod
    def listed(cls, values: list[bytes]) -> Self:
        """Return a column that refers to `values`, for readers of all rows."""
        sizes = np.fromiter(map(len, values), dtype=np.int64, count=len(values))
        return cls(_NO_BYTES, sizes, sizes, values=values)

    @classmethod
    def packed(cls, data: Bytes, sizes: Ints, first: int = 0) -> Self:
        """Return a column of rows that lie back to back in `data` from `first` on."""
        starts = np.cumsum(sizes)
        starts += first - sizes
        width = int(sizes[0]) if len(sizes) and (sizes == sizes[0]).all() else VARYING
        return cls(data, starts, sizes, width, width)

    @classmethod
    def between(cls, data: Bytes, offsets: Ints) -> Self:
        """Return a column of rows back to back, each between two of the ascending `offsets`."""
        return cls.packed(data, np.diff(offsets), int(offsets[0]))

    @classmethod
    def repeated(cls, value: bytes, count: int) -> Self:
        """Return a column with `value` in each of `count` rows, which is in memory once."""
        sizes = np.full(count, len(value), dtype=np.int64)
        starts = np.zeros(count, dtype=np.int64)
        return cls(np.frombuffer(value, dtype=np.uint8), starts, sizes, len(value), 0)

    def __len__(self) -> int:
        return len(self.sizes)

    def take(self, rows: Ints | slice) -> "ByteColumn":
        """Return the rows at indices, or those of a slice without a step."""
        step = self.step if isinstance(rows, slice) or not self.step else VARYING
        values = self.values
        if values is not None:
            if isinstance(rows, slice):
                values = values[rows]
            else:
                indices: list[int] = rows.tolist()
                values = [values[index] for index in indices]
        return ByteColumn(self.data, self.starts[rows], self.sizes[rows], self.width, step, values)

    def row(self, index: int) -> bytes:
        """Return one row."""
        if self.values is not None:
            return self.values[index]
        start = int(self.starts[index])
        return self.data[start : start + int(self.sizes[index])].tobytes()

    def copies(self) -> list[bytes]:
        """Return each row."""
        return [bytes(piece) for piece in self.pieces()]

    def pieces(self) -> Sequence[bytes | memoryview]:
        """Return each row, as a copy or as a view of the buffer."""
        if self.values is not None:
            return self.values
        if self.step == 0 and len(self):
            return list(repeat(self.row(0), len(self)))
        if self.step != VARYING and self.width > 0 and len(self):
            # One call of numpy makes the copies in a third of the time of as many slices.
            rows = np.ndarray(
                len(self), f"V{self.width}", self.data, int(self.starts[0]), (self.step,)
            )
            copies: list[bytes] = rows.tolist()
            return copies
        view = self.data.data
        begins, ends = self.starts.tolist(), (self.starts + self.sizes).tolist()
        return [view[begin:end] for begin, end in zip(begins, ends, strict=True)]

    def put(self, target: Bytes, at: Ints, step: int = VARYING) -> None:
        """Copy each row to its place in `target`.

        Args:
            target: Writable buffer.
            at: Place of each row.
            step: Distance between two places, if it is always the same one.
        """
        if not len(self) or not self.width:
            return
        if self.width != VARYING and self.step != VARYING:
            shape, first = (len(self), self.width), int(self.starts[0])
            _put_rows(
                target, at, np.ndarray(shape, np.uint8, self.data, first, (self.step, 1)), step
            )
        elif self.width != VARYING:
            _copy(self.data, self.starts, target, at, self.width)
        else:
            self._put_varying(target, at)

    def _put_varying(self, target: Bytes, at: Ints) -> None:
        """Copy rows by their lengths' powers of two: the first so many bytes, and the last."""
        powers = np.frexp(self.sizes)[1]
        for power in np.flatnonzero(np.bincount(powers)).tolist():
            if not power:
                continue
            width = 1 << (power - 1)
            rows = np.flatnonzero(powers == power)
            starts, places = self.starts[rows], at[rows]
            _copy(self.data, starts, target, places, width)
            rest = self.sizes[rows] - width
            _copy(self.data, starts + rest, target, places + rest, width)


def _put_rows(target: Bytes, at: Ints, rows: Bytes, step: int = VARYING) -> None:
    """Copy equal rows to their places in `target`.

    Args:
        target: Writable buffer.
        at: Place of each row, at least one.
        rows: Array with a row of bytes for each place.
        step: Distance between two places, if it is always the same one.
    """
    count, width = rows.shape
    if step != VARYING:
        np.ndarray((count, width), np.uint8, target, int(at[0]), (step, 1))[:] = rows
    elif width:
        windows(target, width)[at] = np.ascontiguousarray(rows).view(f"V{width}").reshape(count)


def join_rows(columns: Sequence[ByteColumn]) -> ByteColumn:
    """Return the column whose rows are those of `columns` behind each other.

    Args:
        columns: Columns of the same length, at least one.
    """
    sizes = columns[0].sizes.copy()
    for column in columns[1:]:
        sizes += column.sizes
    joined = ByteColumn.packed(np.empty(int(sizes.sum()), dtype=np.uint8), sizes)
    at, step = joined.starts, joined.step
    for column in columns:
        column.put(joined.data, at, step)
        at = at + column.sizes
        if column.width == VARYING:
            step = VARYING  # rows of one length need not have parts of one length
    return joined


def _copy(source: Bytes, starts: Ints, target: Bytes, at: Ints, width: int) -> None:
    windows(target, width)[at] = windows(source, width)[starts]
