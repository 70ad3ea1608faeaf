"""What a consume queue's units have no room for."""

from dataclasses import replace

import numpy as np

from ternmq_model.arrays import Ints
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.properties import tag_code
from ternmq_store.config import FlushMode
from ternmq_store.disk.mapped_file_queue import find_files
from ternmq_store.queues.consume_queue import ConsumeQueue
from ternmq_store.queues.consume_queue_ext import ConsumeQueueExt, ExtRows, is_address
from ternmq_store.queues.units import Units, make_units
from ternmq_testing.memory.memory_files import MemoryFileSystem
from tests.support.records import batch_of, record
from tests.support.stores import ROOT, SMALL, append, flush, open_store, settle

FIRST = -(1 << 63)
FOLDER = ROOT / "consumequeue_ext" / "A" / "0"


def ints(*values: int) -> Ints:
    return np.array(values, dtype=np.int64)


def new_ext(files: MemoryFileSystem, file_bytes: int = 100) -> ConsumeQueueExt:
    files.make_folder(ROOT)
    return ConsumeQueueExt(files, ROOT, "A", 0, file_bytes)


def content(files: MemoryFileSystem, base: int) -> bytes:
    return files.nodes[FOLDER / f"{base:020d}"].data.tobytes()


def test_unit_has_rocketmqs_layout() -> None:
    files = MemoryFileSystem()
    ext = new_ext(files)
    addresses = ext.append(ints(-5, 7), ExtRows(ints(1000, 2000), [b"\x01\x80", b""]))
    assert addresses.tolist() == [FIRST, FIRST + 22]
    assert is_address(addresses).all()
    assert not is_address(ints(-(1 << 31), 0, (1 << 31) - 1)).any()
    assert content(files, 0)[:42] == bytes.fromhex(
        "0016 fffffffffffffffb 00000000000003e8 0002 0180"
        "0014 0000000000000007 00000000000007d0 0000"
    )
    assert ext.unit(FIRST) == (-5, 1000, b"\x01\x80")
    assert ext.unit(FIRST + 22) == (7, 2000, b"")
    assert ext.unit(FIRST + 42) is None
    assert ext.unit(FIRST + 1_000) is None


def units_of(addresses: Ints) -> Units:
    return make_units(addresses * 0, addresses * 0, addresses)


def test_file_keeps_four_bytes_and_an_end_mark() -> None:
    files = MemoryFileSystem()
    ext = new_ext(files)
    addresses = ext.append(ints(*range(6)), ExtRows(ints(*[9] * 6), [b""] * 4 + [b"xy", b""]))
    assert (addresses - FIRST).tolist() == [0, 20, 40, 60, 100, 122]
    assert content(files, 0)[80:82] == b"\xff\xff"
    assert ext.tag_codes(units_of(addresses[::-1])).codes.tolist() == [5, 4, 3, 2, 1, 0]
    found = ext.tag_codes(units_of(ints(FIRST + 20, FIRST + 30, FIRST + 5_000)))
    assert found.codes[0] == 1
    assert found.is_known is not None
    assert found.is_known.tolist() == [True, False, False]


def test_overlong_bit_map_is_left_out() -> None:
    ext = new_ext(MemoryFileSystem(), 1 << 20)
    ext.append(ints(1, 2), ExtRows(ints(9, 9), [bytes(32_747), bytes(32_748)]))
    first = ext.unit(FIRST)
    assert first is not None
    assert len(first.bit_map) == 32_747
    assert ext.unit(FIRST + 32_767) == (2, 9, b"")


def test_entries_behind_the_last_address_are_wiped() -> None:
    files = MemoryFileSystem()
    ext = new_ext(files)
    addresses = ext.append(ints(*range(9)), ExtRows(ints(*[9] * 9), [b""] * 9))
    ext.cut_behind(int(addresses[1]))
    assert ext.end == 40
    assert [path.name for path in files.nodes if path.parent == FOLDER] == [f"{0:020d}"]
    assert not any(content(files, 0)[40:])
    again = ext.append(ints(77), ExtRows(ints(9), [b""]))
    assert again.tolist() == [FIRST + 40]
    ext.cut_behind(None)
    assert ext.end == 0
    assert not find_files(files, FOLDER)


def test_files_before_the_first_address_are_deleted() -> None:
    ext = new_ext(MemoryFileSystem())
    addresses = ext.append(ints(*range(9)), ExtRows(ints(*[9] * 9), [b""] * 9))
    gone = ext.delete_before(int(addresses[5]))
    assert [file.base for file in gone] == [0]
    assert ext.unit(int(addresses[0])) is None
    assert ext.unit(int(addresses[5])) == (5, 9, b"")


def queue_with_ext(files: MemoryFileSystem) -> ConsumeQueue:
    files.make_folder(ROOT)
    queue = ConsumeQueue(files, ROOT, "A", 0, 200)
    queue.ext = new_ext(files)
    queue.ext_unit_bytes = 20
    return queue


def units_at(*offsets: int) -> Units:
    return make_units(ints(*offsets), ints(*[10] * len(offsets)), ints(*offsets) * 3)


def rows(count: int) -> ExtRows:
    return ExtRows(ints(*[9] * count), [b""] * count)


def test_existing_entries_are_not_written_twice() -> None:
    queue = queue_with_ext(MemoryFileSystem())
    assert queue.ext is not None
    queue.append(units_at(0, 10, 20), rows(3))
    end = queue.ext.end
    assert queue.put(ints(0, 1, 2), units_at(0, 10, 20), rows(3))
    assert queue.ext.end == end
    assert queue.put(ints(2, 3), units_at(20, 30), rows(2))
    assert queue.ext.end == end + 20
    assert queue.tag_codes(queue.units(QueueOffset(0), 9)).codes.tolist() == [0, 30, 60, 90]


def test_cut_of_a_queue_cuts_its_extension() -> None:
    queue = queue_with_ext(MemoryFileSystem())
    assert queue.ext is not None
    queue.append(units_at(*range(0, 150, 10)), rows(15))
    queue.cut_from(PhysicalOffset(30))
    assert (queue.end, queue.ext.end) == (3, 60)


def test_extended_entries_go_with_the_oldest_messages() -> None:
    queue = queue_with_ext(MemoryFileSystem())
    queue.append(units_at(*range(0, 150, 10)), rows(15))
    queue.correct_min_offset(PhysicalOffset(90))
    assert [file.base for file in queue.delete_read_ext()] == [0, 100]
    left = queue.tag_codes(queue.units(QueueOffset(9), 1))
    assert (left.codes.tolist(), left.is_known) == ([270], None)
    gone = queue.tag_codes(queue.units(QueueOffset(0), 1))
    assert gone.is_known is not None
    assert not gone.is_known.any()


def test_extended_tag_codes_are_filtered_by_after_restart_and_when_disabled() -> None:
    files = MemoryFileSystem()
    config = replace(SMALL, consume_queue_ext_enabled=True, consume_queue_ext_file_bytes=1 << 16)
    store = open_store(files, config=config)
    for number in range(30):
        append(store, batch_of(record("A", properties={"TAGS": "xy"[number % 2]})))
    settle(store)
    wanted = frozenset({tag_code("y")})

    def check(count: int) -> None:
        found = offset = 0
        while offset < store.queue_range("A", 0)[1]:
            result = store.reads.read("A", 0, QueueOffset(offset), tag_codes=wanted)
            found, offset = found + len(result.record_sizes), result.next_offset
        assert found == count

    check(15)
    store.close()
    units = b"".join(
        node.data.tobytes() for path, node in files.nodes.items() if "consumequeue" in path.parts
    )
    assert units.count(b"\x80\0\0\0\0\0") >= 30
    store = open_store(files, config=SMALL)
    append(store, batch_of(record("A", properties={"TAGS": "y"})))
    settle(store)
    check(16)
    assert find_files(files, FOLDER)
    store.delete_topic("A")
    assert not find_files(files, FOLDER)
    flush(store)
    store.close()


def test_extended_entries_are_rebuilt_with_their_queue() -> None:
    files = MemoryFileSystem()
    config = replace(SMALL, consume_queue_ext_enabled=True, consume_queue_ext_file_bytes=1 << 16)
    store = open_store(files, config=config, flush_mode=FlushMode.ASYNC)
    append(store, batch_of(*[record("A", properties={"TAGS": "x"})] * 5))
    settle(store)
    store.close()
    before = content(files, 0)
    assert any(before)
    for path in [path for path in files.nodes if "consumequeue" in path.parts]:
        files.remove(path)
    store = open_store(files, config=config)
    assert store.queue_range("A", 0) == (0, 5)
    assert content(files, 0) == before
