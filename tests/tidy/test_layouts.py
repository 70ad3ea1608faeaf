import pytest

from tests.tidy.layout_rules import (
    HOMES,
    SEPARATOR_HOMES,
    layouts_stay_home,
    separators_stay_home,
)
from tests.tidy.source import lines_broken
from tools.project import ROOT

FILE = "store/ternmq_store/x.py"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("import struct\n", [1]),
        ("from struct import Struct\n", [1]),
        ("a = int.from_bytes(b, 'big')\n", [1]),
        ("a = number.to_bytes(8, 'big')\nb = request.to_bytes()\n", [1]),
        ("a = Request.from_bytes(b)\n", []),
        ("a = np.frombuffer(b, np.uint8)\nc = np.frombuffer(b, dtype=KIND)\n", [2]),
        ("a = np.dtype('>i8')\nc = np.dtype('<u2')\nd = '<b>'\n", [1, 2]),
        (
            "a = record[20:28]\nb = record[:8]\nc = names[1:3]\nd = record[x : x + 8]\n",
            [1, 2, 3, 4],
        ),
        ("from array import array\nimport array\nimport arrays\n", [1, 2]),
        ("f = int.from_bytes\ng = Request.from_bytes\n", [1]),
        ("a = number.to_bytes(length=4, byteorder='big')\n", [1]),
        ("a = np.dtype('>q')\nb = np.dtype('=i')\nc = '<>'\nd = '>='\n", [1, 2]),
        ("a = kind.newbyteorder('>')\nb = numbers.byteswap()\n", [1, 2]),
        ("a = view.cast('q')\nb = column.cast(binary())\nc = cast('int', d)\n", [1]),
        ("a = layout(0).unpack_from(b)\nc = layout.unpack\nd = layout.iter_unpack(b)\n", [1, 2, 3]),
        (
            "layout.pack(b, c)\nd = BLOOM.pack(bits)\nlayout.pack_into(b, c)\nlayout.pack(*c)\n",
            [1, 3, 4],
        ),
        ("a = np.fromfile(f, KIND)\n", [1]),
        ("a = d[p + 28 : p + 36]\nb = d[AT : AT + 8]\nc = d[p + 8 : end]\n", [1, 2, 3]),
        ("a = d[p + x + 4 :]\nb = d[: end - 4]\nc = d[row : row + 1]\ne = d[p + 1 :]\n", [1, 2]),
        ("a = d[:20]\nb = d[88:]\nc = d[-8:]\ne = d[:-20]\nf = d[4:n]\n", [1, 2, 3, 4, 5]),
        ("a = d[:3]\nb = d[2:]\nc = d[1:-1]\ne = name[:100]\nf'{text[:40]!r}'\n", []),
        ("a = f'{d[20:28]!r}'\nb = f'{d[88:]!r}'\n", [1, 2]),
        ("a = slice(36, 40)\nb = slice(row, end)\nc = slice(2)\n", [1]),
    ],
)
def test_layout_outside_its_home_is_found(text: str, lines: list[int]) -> None:
    assert lines_broken(layouts_stay_home, FILE, text) == lines
    assert not lines_broken(layouts_stay_home, "tools/x.py", text)
    assert not lines_broken(layouts_stay_home, next(iter(HOMES)), text)


def test_homes_of_layouts_exist_and_are_needed() -> None:
    for file in HOMES:
        text = (ROOT / file).read_text()
        assert lines_broken(layouts_stay_home, FILE, text), f"{file} needs no row"


@pytest.mark.parametrize(
    "text", [r"'\x01'", r"b'TAGS\x01'", r"f'{name}\x01{value}'", r"'\1'", r"b'a' b'\x02'"]
)
def test_separator_outside_its_home_is_found(text: str) -> None:
    assert lines_broken(separators_stay_home, FILE, f"a = {text}\n") == [1]
    assert not lines_broken(separators_stay_home, "tools/x.py", text)
    assert not lines_broken(separators_stay_home, "protos/ternmq_protos/v1/x_pb2.py", text)


@pytest.mark.parametrize("text", [r"'\x00\x03'", r"r'\x01'", "PAIR_END", "1", "'0x01'"])
def test_other_text_is_no_separator(text: str) -> None:
    assert not lines_broken(separators_stay_home, FILE, f"a = {text}\n")


def test_homes_of_separators_exist_and_are_needed() -> None:
    for file in SEPARATOR_HOMES:
        text = (ROOT / file).read_text()
        assert lines_broken(separators_stay_home, FILE, text), f"{file} needs no row"
