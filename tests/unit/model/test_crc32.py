import subprocess
import sys
import zlib

from hypothesis import given
from hypothesis import strategies as st

from ternmq_model.crc32 import crc32

WITHOUT_ISAL = """
import sys, zlib
sys.modules["isal"] = None
from ternmq_model.crc32 import crc32
assert crc32 is zlib.crc32
from ternmq_model.record.format import crc31
print(crc31(b"123456789"))
"""


@given(st.binary(), st.binary())
def test_checksum_is_that_of_zlib_for_bytes_views_and_parts(data: bytes, more: bytes) -> None:
    assert crc32(data) == crc32(memoryview(data)) == zlib.crc32(data)
    assert crc32(more, crc32(data)) == zlib.crc32(data + more)


def test_checksum_is_that_of_isal_where_it_is_installed() -> None:
    assert crc32.__module__ != "zlib"


def test_checksum_comes_from_zlib_without_isal() -> None:
    program = [sys.executable, "-c", WITHOUT_ISAL]
    printed = subprocess.run(program, check=True, capture_output=True, text=True).stdout
    assert int(printed) == zlib.crc32(b"123456789") & 0x7FFFFFFF
