from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

from ternmq_model.columns.aligned_properties import AlignedProperties, align
from ternmq_model.columns.property_columns import (
    PropertyColumns,
    key_lists,
    property_maps,
    read_properties,
)
from tests.support.examples import examples

SEEN = ("TAGS", "KEYS", "UNIQ_KEY", "Straße", "none")


def rows_of(*values: bytes) -> Any:
    return np.frombuffer(b"".join(values), dtype=np.uint8).reshape(len(values), -1)


def columns_of(read: AlignedProperties | PropertyColumns) -> list[Any]:
    found = [read.values(name) for name in SEEN]
    found += [key_lists(found[1]), property_maps(read)]
    for each in found:
        each.validate(full=True)
    return [each.to_pylist() for each in found]


@st.composite
def aligned(draw: st.DrawFn) -> list[bytes]:
    """Draw properties of records, in which the bytes of few values differ."""
    drawn = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "__CRC32#", "Straße"])
    names = draw(st.lists(drawn, max_size=4))
    lengths = [draw(st.integers(1, 5)) for _ in names]
    letters = draw(st.sampled_from(["ab 0", "ab 0", "ab\x01\x02é"]))
    fixed = [draw(st.text(letters, min_size=length, max_size=length)) for length in lengths]
    made: list[bytes] = []
    for _ in range(draw(st.integers(1, 4))):
        pairs: list[str] = []
        for name, length, same in zip(names, lengths, fixed, strict=True):
            other = draw(st.none() | st.text(letters, min_size=length, max_size=length))
            pairs.append(f"{name}\x01{same if other is None else other}\x02")
        made.append("".join(pairs).encode())
    return made


@given(aligned())
@settings(max_examples=examples(300))
def test_aligned_properties_have_the_columns_of_any_properties(made: list[bytes]) -> None:
    data, sizes = b"".join(made), np.array([len(each) for each in made], dtype=np.int64)
    ends = np.cumsum(sizes)
    begins = ends - sizes
    found = read_properties(data, begins, ends)
    assert columns_of(found) == columns_of(PropertyColumns(data, begins, ends))


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([b"a\x011\x02", b"a\x012\x02"], id="another value"),
        pytest.param(["ä\x01é\x02".encode()] * 2, id="equal values beyond ASCII"),
    ],
)
def test_equal_names_at_equal_places_are_aligned(rows: list[bytes]) -> None:
    assert align(rows_of(*rows)) is not None


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([b"a\x011\x02", b"b\x011\x02"], id="another name"),
        pytest.param([b"ab\x011\x02", b"a\x0111\x02"], id="another length"),
        pytest.param([b"a\x01xyz\x02", b"a\x01x\x02z\x02"], id="a pair's end in a value"),
        pytest.param([b"a\x01xyz\x02", b"a\x01x\x01z\x02"], id="a name's end in a value"),
        pytest.param(["a\x01é\x02".encode(), "a\x01è\x02".encode()], id="others beyond ASCII"),
        pytest.param([b"a\x011\x02a\x012\x02"], id="a name twice"),
        pytest.param([b"a\x01\xff\x02"], id="no UTF-8"),
        pytest.param([b"a\x01\x02"], id="no value"),
        pytest.param([b"\x02"], id="no pair"),
        pytest.param([b"a\x011\x02b\x012"], id="no end"),
    ],
)
def test_rare_properties_are_not_aligned(rows: list[bytes]) -> None:
    assert align(rows_of(*rows)) is None
