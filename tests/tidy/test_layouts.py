import pytest

from tests.tidy.layout_rules import HOMES, layouts_stay_home
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
        ("a = record[20:28]\nb = record[:8]\nc = names[1:3]\nd = record[x : x + 8]\n", [1, 2, 3]),
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
