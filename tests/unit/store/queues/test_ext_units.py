import numpy as np
import pytest

from ternmq_model.arrays import Ints
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.queues.consume_queue_ext import ConsumeQueueExt, ExtRows
from ternmq_store.queues.ext_units import BitMapFilter
from ternmq_store.queues.units import Units, make_units
from ternmq_testing.memory.memory_files import MemoryFileSystem
from tests.support.stores import ROOT

TEST = BitMapFilter(b"\x01\x80", begin=101)


def units(tag_codes: Ints, offsets: Ints | None = None) -> Units:
    zeros = np.zeros(len(tag_codes), dtype=np.int64)
    return make_units(zeros if offsets is None else offsets, zeros, tag_codes)


def filled(files: FileSystem, *rows: tuple[int, bytes]) -> tuple[ConsumeQueueExt, Units]:
    files.make_folder(ROOT)
    ext = ConsumeQueueExt(files, ROOT, "A", 0, 100)
    offsets = np.array([offset for offset, _ in rows], dtype=np.int64)
    codes = np.arange(len(rows), dtype=np.int64)
    addresses = ext.append(codes, ExtRows(300 - offsets, [bit_map for _, bit_map in rows]))
    return ext, units(addresses, offsets)


@pytest.mark.parametrize("is_cold", [False, True])
def test_bit_map_without_a_wanted_bit_does_not_match_unless_unknown(is_cold: bool) -> None:
    rows = [
        (200, b"\x01\x80"),
        (200, b"\xff\xff"),
        (200, b"\x01\x00"),
        (200, b"\x00\x00"),
        (100, b"\x00\x00"),
        (200, b""),
        (200, b"\x00"),
        (200, b"\x00\x00\x00"),
        (101, b"\x00\x80"),
    ]
    ext, found = filled(MemoryFileSystem(), *rows)
    source = ext.source() if is_cold else ext
    assert source.may_match(found, TEST).tolist() == [
        *(True, True, False, False, True, True, True, True, False)
    ]


@pytest.mark.parametrize("is_cold", [False, True])
def test_unit_without_an_extension_matches(is_cold: bool) -> None:
    ext, found = filled(MemoryFileSystem(), (200, bytes(2)), (200, bytes(2)))
    source = ext.source() if is_cold else ext
    plain = units(np.array([5, -7], dtype=np.int64))
    assert source.may_match(plain, TEST).tolist() == [True, True]
    mixed = np.concatenate([plain, found])
    assert source.may_match(mixed, TEST).tolist() == [True, True, False, False]
    lost = units(np.array([-(1 << 63) + 5_000], dtype=np.int64))
    assert source.may_match(lost, TEST).tolist() == [True]
