"""Forms of properties: what the properties of many records of a batch have in common. Pure.

Records of one producer mostly have properties of equal lengths with the same names, the same tag
and other values. Names, tag and places of all values are then read from one record of each form.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ternmq_model.arrays import Bytes, Ints, cut_equal
from ternmq_model.properties import KEYS, NAME_END_CODE, PAIR_END_CODE, TAGS, encode_name

T = TypeVar("T", bound=np.generic)

_FORMS_MAX: Final = 4
"""Most forms that are sought. Each further record counts as a form of its own."""

_ANY_VALUE: Final = max(NAME_END_CODE, PAIR_END_CODE)
_FIXED: Final = 255
_FLOORS: Final = {encode_name(TAGS): _FIXED, encode_name(KEYS): ord(" ")}


class PropertyForms(NamedTuple):
    """Forms of the properties of a batch."""

    firsts: Ints
    """First record of each form."""

    records: int
    """Count of all records."""

    of_rows: Ints | None
    """Index of each record's form; None = all have the first one."""

    def spread(self, values: NDArray[T]) -> NDArray[T]:
        """Return the value of each record, from one for each form."""
        return np.repeat(values, self.records) if self.of_rows is None else values[self.of_rows]

    def rows_of(self, forms: Sequence[int]) -> tuple[int, ...]:
        """Return the records that have one of `forms`."""
        is_wanted = np.zeros(len(self.firsts), dtype=bool)
        is_wanted[list(forms)] = True
        return tuple(np.flatnonzero(self.spread(is_wanted)).tolist())


def find_forms(records: bytes, begins: Ints, ends: Ints) -> PropertyForms:
    """Return the forms of the properties from each of `begins` to its end.

    Records of one form have the same names, in the same order and places, an equal tag, and values
    of equal lengths, which have the same separators, and blanks between keys at the same places.
    """
    lengths, count = ends - begins, len(begins)
    of_rows, rest = np.zeros(count, dtype=np.int64), np.arange(count)
    firsts: list[int] = []
    while len(rest) and len(firsts) < _FORMS_MAX:
        first = int(rest[0])
        alike = lengths[rest] == lengths[first]
        rows = cut_equal(records, begins[rest[alike]], int(lengths[first]))
        alike[alike] = _have_form_of_first(rows)
        of_rows[rest[alike]] = len(firsts)
        firsts.append(first)
        rest = rest[~alike]
    of_rows[rest] = np.arange(len(firsts), len(firsts) + len(rest))
    firsts += rest.tolist()
    return PropertyForms(np.array(firsts), count, of_rows if len(firsts) > 1 else None)


def _have_form_of_first(rows: Bytes) -> NDArray[np.bool_]:
    first = rows[0]
    floors = _floors(first.tobytes())
    alike = (rows == first) | (rows > np.where(first > floors, floors, _FIXED))
    of_form: NDArray[np.bool_] = np.all(alike, axis=1)
    return of_form


def _floors(properties: bytes) -> Bytes:
    """Return for each byte the limit above which it may be another one: 255 outside of values."""
    floors = np.full(len(properties), _FIXED, dtype=np.uint8)
    begin = 0
    while begin < len(properties):
        end = properties.find(PAIR_END_CODE, begin)
        end = len(properties) if end < 0 else end
        value = properties.find(NAME_END_CODE, begin, end) + 1
        if value:
            floors[value:end] = _FLOORS.get(properties[begin:value], _ANY_VALUE)
        begin = end + 1
    return floors
