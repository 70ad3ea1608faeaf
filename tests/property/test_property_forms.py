"""Every record of a form has the tag, names and places of values of the first one."""

from dataclasses import replace

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from ternmq_model.index_keys import find_keys
from ternmq_model.record.fields import tag_code_of
from ternmq_model.record.property_forms import find_forms
from ternmq_model.record.property_rules import marks_in
from tests.property.test_index_keys import bare_batch, read_keys

PAIRS = st.sampled_from(
    [
        *(b"UNIQ_KEY\x010A01\x02", b"KEYS\x01a bc\x02", b"KEYS\x01\x02", b"TAGS\x01red\x02"),
        *(b"TAGS\x01\x02", b"xTAGS\x01 a\x01b\x02", b"DELAY\x013\x02", b"size\x0112\x02", b"x\x02"),
        *(b"TRAN_MSG\x01true\x02", b"\x01\x02", b"KEYS\x01d", b"name\x01\xc3\xa4\x02"),
    ]
)
CHANGES = st.lists(
    st.tuples(st.integers(0, 80), st.sampled_from(b"\x01\x02 ae7\xc3\xa4")), max_size=2
)


def changed(properties: bytes, changes: list[tuple[int, int]]) -> bytes:
    """Return `properties` with other bytes at some places."""
    there = bytearray(properties)
    for place, code in changes:
        if place < len(there):
            there[place] = code
    return bytes(there)


@given(
    bases=st.lists(st.lists(PAIRS, max_size=6).map(b"".join), min_size=1, max_size=3),
    changes=st.lists(CHANGES, min_size=9, max_size=20),
)
@example(bases=[b"KEYS\x01a b\x02"], changes=[[], [(5, 0x20), (6, 0x61)], *[[]] * 8])
@example(bases=[b"TAGS\x01ab\x02KEYS\x01k7\x02"], changes=[[], *[[(14, 0x61)]] * 9])
def test_records_of_a_form_agree(bases: list[bytes], changes: list[list[tuple[int, int]]]) -> None:
    parts = [changed(bases[row % len(bases)], each) for row, each in enumerate(changes)]
    ends = np.cumsum([len(part) for part in parts])
    begins = np.append(0, ends[:-1])
    forms = find_forms(b"".join(parts), begins, ends)
    of_rows = forms.spread(np.arange(len(forms.firsts))).tolist()
    for row, (part, form) in enumerate(zip(parts, of_rows, strict=True)):
        first = parts[int(forms.firsts[form])]
        assert tag_code_of(part) == tag_code_of(first)
        assert marks_in(part) == marks_in(first)
        assert names_in(part) == names_in(first)
        assert row in forms.rows_of([form])
    batch = bare_batch([("A", part, 0) for part in parts])
    keys = find_keys(replace(batch, has_one_form=forms.of_rows is None))
    assert list(zip(keys.rows.tolist(), keys.hashes.tolist(), strict=True)) == read_keys(batch)


def names_in(properties: bytes) -> list[tuple[bytes, int]]:
    """Return every name, and the length of what follows it."""
    pairs = [pair.partition(b"\x01") for pair in properties.split(b"\x02")]
    return [(name, len(value)) for name, _, value in pairs]


def test_values_and_lengths_make_no_further_form_but_tags_do() -> None:
    parts = [
        b"TAGS\x01%b\x02UNIQ_KEY\x01%04d\x02" % (b"ab"[row % 2 :][:1], row) for row in range(9)
    ]
    ends = np.cumsum([len(part) for part in parts])
    forms = find_forms(b"".join(parts), ends - len(parts[0]), ends)
    assert forms.firsts.tolist() == [0, 1]
    assert forms.spread(np.array([7, 8])).tolist() == [7, 8] * 4 + [7]
    assert forms.rows_of([1]) == (1, 3, 5, 7)
