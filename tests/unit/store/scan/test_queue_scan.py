"""Reading a range of a queue from outside of its broker."""

import errno
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ternmq_model.compression import compress
from ternmq_model.errors import MessageDamaged, MissingPackage, RangeGone, StoreError, UsageError
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.subscription import parse_subscription
from ternmq_store.config import StoreConfig
from ternmq_store.disk.filesystem import RealFileSystem
from ternmq_store.log.log_notes import load_notes, save_notes
from ternmq_store.log.quarantine import DamagedRange
from ternmq_store.message_store import MessageStore
from ternmq_store.queues.units import Unit, UnitRepair, make_padding, unit_bytes
from ternmq_store.read.unit_search import UnitSearch
from ternmq_store.scan.directory import StoreDirectory
from ternmq_store.scan.scan_spec import ScanRange, ScanSpec, ScanStep
from ternmq_testing.memory.memory_files import MemoryFile, MemoryFileSystem, MemoryRegion, Node
from tests.support.records import batch_of, record
from tests.support.stores import ROOT, SMALL, HandClock, append, open_store, settle

pytest.importorskip("pyarrow")

from ternmq_store.scan import log_rows
from ternmq_store.scan.partition_scan import plan_directory, scan_partition
from ternmq_store.scan.queue_scan import scan_queue
from ternmq_store.scan.raw_scan import plan_raw, scan_raw

LOG_FILE_BYTES = 8192
CONFIG = replace(SMALL, record_checksum=True)
FIRST_MS = 1_700_000_000_000
NUMBERS = ScanSpec(columns=["queueOffset"])


def filled(
    count: int = 40, *, config: StoreConfig = CONFIG, body_bytes: int = 500
) -> MemoryFileSystem:
    """Return a closed store: a message a second in one queue, over several files."""
    files, clock = MemoryFileSystem(), HandClock(FIRST_MS)
    store = open_store(files, config=config, clock=clock)
    add(store, clock, count, body_bytes=body_bytes)
    store.close()
    return files


def add(store: MessageStore, clock: HandClock, count: int, *, body_bytes: int = 500) -> None:
    """Store messages with two tags of one hash, in turn."""
    for number in range(count):
        tag = {"TAGS": "Aa" if number % 2 else "BB"}
        append(store, batch_of(record("A", 0, bytes((number,)) * body_bytes, tag)))
        clock.now_ms += 1000
    settle(store)


def scan(
    files: MemoryFileSystem, begin: int, end: int, wanted: ScanSpec = NUMBERS, **bounds: int
) -> list[ScanStep]:
    """Scan the queue."""
    directory = StoreDirectory(files, ROOT)
    scan_range = ScanRange("A", 0, begin, end)
    return list(scan_queue(directory, scan_range, wanted, **bounds))


def numbers(scanned: Iterable[ScanStep]) -> Sequence[int]:
    """Return the queue offsets of the rows."""
    batches = [each.batch for each in scanned if each.batch is not None]
    return [row["queueOffset"] for batch in batches for row in batch.to_pylist()]


def log_path(number: int) -> Any:
    """Return the path of a file of the log."""
    return ROOT / "commitlog" / f"{number * LOG_FILE_BYTES:020d}"


def test_range_is_read_across_file_borders() -> None:
    files = filled()
    assert numbers(scan(files, 3, 37)) == list(range(3, 37))
    assert scan(files, 3, 37)[-1].next_offset == 37
    assert numbers(scan(files, 5, 5)) == []


def test_two_tags_of_one_hash_are_told_apart() -> None:
    wanted = replace(NUMBERS, subscription=parse_subscription("A", "Aa"))
    assert numbers(scan(filled(), 0, 40, wanted)) == list(range(1, 40, 2))


def test_extended_tag_codes_are_looked_up() -> None:
    config = replace(CONFIG, consume_queue_ext_enabled=True)
    files = filled(config=config)
    assert any("consumequeue_ext" in str(path) for path in files.nodes)
    wanted = replace(NUMBERS, subscription=parse_subscription("A", "BB"))
    assert numbers(scan(files, 0, 40, wanted)) == list(range(0, 40, 2))
    wanted = replace(NUMBERS, subscription=parse_subscription("A", "other"))
    assert numbers(scan(files, 0, 40, wanted)) == []


def test_time_is_found_by_binary_search_and_its_end_is_exclusive() -> None:
    wanted = replace(NUMBERS, stored_from_ms=FIRST_MS + 10_000, stored_before_ms=FIRST_MS + 20_000)
    steps = scan(filled(), 0, 40, wanted)
    assert numbers(steps) == list(range(10, 20))
    assert steps[-1].next_offset == 40
    same = replace(wanted, stored_before_ms=wanted.stored_from_ms)
    assert numbers(scan(filled(), 0, 40, same)) == []
    assert numbers(scan(filled(), 15, 40, replace(wanted, stored_before_ms=0))) == [*range(15, 40)]


def test_records_behind_the_given_end_of_the_log_are_not_read() -> None:
    files = filled()
    directory = StoreDirectory(files, ROOT)
    end = directory.unit_files("A", 0, 0, 40).unit(QueueOffset(10)).offset
    assert numbers(scan(files, 0, 10, log_end=end)) == list(range(10))
    with pytest.raises(MessageDamaged, match="queue 0: message 10 "):
        scan(files, 0, 11, log_end=end)


def test_open_store_is_read_while_it_grows() -> None:
    files, clock = MemoryFileSystem(), HandClock(FIRST_MS)
    store = open_store(files, config=CONFIG, clock=clock)
    add(store, clock, 15)
    directory = StoreDirectory(files, ROOT)
    assert directory.is_in_use
    steps = scan_queue(directory, ScanRange("A", 0, 0, 15), replace(NUMBERS, batch_rows_max=5))
    assert numbers([next(steps)]) == list(range(5))
    add(store, clock, 15)
    assert numbers(steps) == list(range(5, 15))
    later = ScanRange("A", 0, 15, 30)
    end = int(store.confirm_offset)
    found = scan_queue(directory, later, NUMBERS, log_end=end)
    assert numbers(found) == list(range(15, 30))
    store.close()


def test_messages_taken_by_retention_are_named_with_the_queues_beginning() -> None:
    files = filled()
    files.remove(log_path(0))
    with pytest.raises(RangeGone, match="'A' queue 0: messages from 4 ") as raised:
        scan(files, 4, 40)
    first = raised.value.first_offset
    assert 4 < first < 40
    assert numbers(scan(files, first, 40)) == list(range(first, 40))
    directory = StoreDirectory(files, ROOT)
    assert directory.queues() == [ScanRange("A", 0, first, 40)]


def test_retention_in_the_middle_of_a_scan_ends_it() -> None:
    files = filled()
    directory = StoreDirectory(files, ROOT)
    steps = scan_queue(directory, ScanRange("A", 0, 0, 40), replace(NUMBERS, batch_rows_max=3))
    assert numbers([next(steps)]) == [0, 1, 2]
    files.remove(log_path(0))
    files.remove(log_path(1))
    given: list[int] = []
    with pytest.raises(RangeGone) as raised:
        given.extend(number for step in steps for number in numbers([step]))
    assert raised.value.wanted_offset > given[-1]
    assert raised.value.first_offset > raised.value.wanted_offset


def test_file_deleted_while_the_directory_opens_is_absent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = filled()
    files_of = files.files
    names = files_of(log_path(0).parent)
    files.remove(log_path(0))

    def listed_before(folder: Path) -> Sequence[str]:
        return names if folder == log_path(0).parent else files_of(folder)

    monkeypatch.setattr(files, "files", listed_before)
    directory = StoreDirectory(files, ROOT)
    assert directory.log_start == LOG_FILE_BYTES


def test_padding_units_are_neither_messages_nor_damage() -> None:
    files = filled(count=5)
    node = files.nodes[ROOT / "consumequeue" / "A" / "0" / f"{0:020d}"]
    node.data[20:60] = unit_bytes(make_padding(2))
    assert numbers(scan(files, 0, 5)) == [0, 3, 4]
    assert [(each.batch, each.next_offset) for each in scan(files, 1, 3)] == [(None, 3)]


@pytest.mark.parametrize("position", range(12))
def test_message_is_scanned_although_its_unit_is_damaged(position: int) -> None:
    files = filled(count=5)
    units = files.nodes[ROOT / "consumequeue" / "A" / "0" / f"{0:020d}"].data
    units[2 * 20 + position] ^= 1 << (position % 8)
    before = units.tobytes()
    steps = scan(files, 0, 5)
    assert (numbers(steps), steps[-1].damaged) == ([0, 1, 2, 3, 4], 0)
    assert units.tobytes() == before


def test_message_whose_unit_is_not_written_is_scanned() -> None:
    files = filled(count=5)
    files.nodes[ROOT / "consumequeue" / "A" / "0" / f"{0:020d}"].data[40:60] = 0
    assert numbers(scan(files, 0, 5)) == [0, 1, 2, 3, 4]


def test_first_message_with_a_unit_before_any_log_is_scanned_and_not_expired() -> None:
    files = filled(count=5)
    files.nodes[ROOT / "consumequeue" / "A" / "0" / f"{0:020d}"].data[0] = 0x80
    assert numbers(scan(files, 0, 5)) == [0, 1, 2, 3, 4]
    directory = StoreDirectory(files, ROOT)
    assert directory.queues() == [ScanRange("A", 0, 0, 5)]


@pytest.mark.parametrize("unit", [b"\x80" + bytes(7), bytes(8), (5).to_bytes(8, "big")])
@pytest.mark.parametrize("is_cut", [False, True])
def test_unit_pointing_before_the_log_behind_good_ones_hides_no_other_message(
    unit: bytes, is_cut: bool
) -> None:
    files = filled(count=40)
    begin = 0
    if is_cut:
        files.remove(log_path(0))
        directory = StoreDirectory(files, ROOT)
        begin = directory.queues()[0].begin
        assert 0 < begin < 18
    # The search for the first message, by halving, begins with this one.
    files.open(ROOT / "consumequeue" / "A" / "0" / f"{400:020d}").write(0, unit)
    directory = StoreDirectory(files, ROOT)
    assert directory.queues() == [ScanRange("A", 0, begin, 40)]
    assert numbers(scan(files, begin, 40)) == list(range(begin, 40))
    skipping = replace(NUMBERS, skips_damaged=True)
    left = [number for number in range(begin, 40) if number != 20]
    directory = StoreDirectory(files, ROOT)
    parts = plan_directory(directory)
    scans = [list(scan_partition(directory, part, skipping)) for part in parts]
    assert sorted(number for each in scans for number in numbers(each)) == left
    assert sum(each[-1].damaged for each in scans) == 1


def test_known_damage_is_not_served() -> None:
    files = filled(count=5)
    notes = load_notes(files, ROOT, lambda reason: None)
    directory = StoreDirectory(files, ROOT)
    units = directory.unit_files("A", 0, 0, 5)
    places = units.units(units.min_offset, 5)["offset"].tolist()
    damaged = DamagedRange(PhysicalOffset(places[1]), PhysicalOffset(places[3]), "bits")
    save_notes(files, ROOT, replace(notes, quarantined=(damaged,)))
    with pytest.raises(MessageDamaged, match=r"message 1 .*a known damaged range"):
        scan(files, 0, 5)
    steps = scan(files, 0, 5, replace(NUMBERS, skips_damaged=True))
    assert (numbers(steps), steps[-1].damaged) == ([0, 3, 4], 2)


@pytest.mark.parametrize("is_checksummed", [True, False])
def test_changed_property_is_noticed_where_records_have_a_checksum(
    is_checksummed: bool,
) -> None:
    files = filled(count=3, config=replace(CONFIG, record_checksum=is_checksummed))
    node = files.nodes[log_path(0)]
    at = bytes(node.data).index(b"TAGS\x01")
    node.data[at + 5] ^= 2
    if is_checksummed:
        with pytest.raises(MessageDamaged, match=r"message 0 .*checksum"):
            scan(files, 0, 3)
    else:
        assert numbers(scan(files, 0, 3)) == [0, 1, 2]


def test_lost_sector_in_properties_is_noticed_without_a_checksum() -> None:
    files = filled(count=3, config=replace(CONFIG, record_checksum=False))
    node = files.nodes[log_path(0)]
    at = bytes(node.data).index(b"TAGS\x01")
    node.data[at + 5 : at + 8] = 0
    with pytest.raises(MessageDamaged, match=r"message 0 .*properties is lost"):
        scan(files, 0, 3)


def test_message_whose_unit_tells_of_another_message_is_scanned() -> None:
    files = filled(count=3, config=replace(CONFIG, record_checksum=False))
    node = files.nodes[ROOT / "consumequeue" / "A" / "0" / f"{0:020d}"]
    node.data[20:40] = node.data[:20].copy()
    assert numbers(scan(files, 0, 3)) == [0, 1, 2]


def test_distant_records_are_read_without_the_bytes_between_them() -> None:
    files, clock = MemoryFileSystem(), HandClock()
    config = replace(CONFIG, commit_log_file_bytes=4 << 20)
    store = open_store(files, config=config, clock=clock)
    for _ in range(30):
        append(store, batch_of(record("A", 0, b"mine")))
        append(store, batch_of(record("B", 0, bytes(100_000))))
    settle(store)
    store.close()
    assert numbers(scan(files, 0, 30)) == list(range(30))


def test_distant_records_need_no_map(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_rows, "_SLACK_BYTES", 100)
    monkeypatch.setattr(log_rows, "_GAP_BYTES_MAX", 500)
    files, clock = MemoryFileSystem(), HandClock(FIRST_MS)
    store = open_store(files, config=CONFIG, clock=clock)
    for _ in range(10):
        add(store, clock, 1, body_bytes=10)
        append(store, batch_of(record("B", 0, bytes(2_000))))
    settle(store)
    store.close()

    def map_nothing(_file: MemoryFile) -> MemoryRegion:
        raise AssertionError("it is not to be mapped")

    directory = StoreDirectory(files, ROOT)
    scan_range = ScanRange("A", 0, 0, 10)
    assert numbers(scan_queue(directory, scan_range, NUMBERS)) == list(range(10))
    monkeypatch.setattr(MemoryFile, "map", map_nothing)
    with pytest.raises(AssertionError):
        list(scan_queue(directory, scan_range, NUMBERS))
    directory.may_map = False
    assert numbers(scan_queue(directory, scan_range, NUMBERS)) == list(range(10))


def test_failing_disk_is_reported_with_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    files = filled()
    read = MemoryFile.read

    def fail(file: MemoryFile, position: int, length: int) -> bytes:
        if file.path == log_path(1):
            raise OSError(errno.EIO, "Input/output error")
        return read(file, position, length)

    monkeypatch.setattr(MemoryFile, "read", fail)
    with pytest.raises(OSError, match=f"Input/output error: '{log_path(1)}'"):
        scan(files, 3, 37)


def put(files: MemoryFileSystem, path: Path, data: bytes) -> None:
    """Make `data` the content of a file."""
    files.nodes[path] = Node()
    files.open(path).write(0, data)


def lengthen(files: MemoryFileSystem, number: int) -> None:
    put(files, log_path(number), files.nodes[log_path(number)].data.tobytes() + b"odd")


def cut_short(files: MemoryFileSystem, number: int) -> None:
    put(files, log_path(number), files.nodes[log_path(number)].data.tobytes()[:1500])


def misname(files: MemoryFileSystem, number: int) -> None:
    files.nodes[log_path(9)] = files.nodes.pop(log_path(number))


def put_stray(files: MemoryFileSystem, number: int) -> None:
    put(files, log_path(9 + number), b"stray")


def lose(files: MemoryFileSystem, number: int) -> None:
    files.remove(log_path(number))


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize(
    ("damage", "lost_from"),
    [(lengthen, None), (misname, None), (put_stray, None), (cut_short, 1500), (lose, 0)],
)
def test_files_that_do_not_fit_are_read_as_the_next_start_leaves_them(
    damage: Callable[[MemoryFileSystem, int], None], lost_from: int | None, number: int
) -> None:
    files = filled()
    units = StoreDirectory(files, ROOT).unit_files("A", 0, 0, 40)
    spans = {n: units.unit(QueueOffset(n))[:2] for n in range(40)}
    bad = (
        range(number * LOG_FILE_BYTES + lost_from, (number + 1) * LOG_FILE_BYTES)
        if lost_from is not None
        else range(0)
    )
    if damage is lose and number == 0:
        return  # the log begins later then
    sound = [n for n, (at, size) in spans.items() if at >= bad.stop or at + size <= bad.start]
    damage(files, number)
    before = {path: node.data.tobytes() for path, node in files.nodes.items()}
    directory, skipping = StoreDirectory(files, ROOT), replace(NUMBERS, skips_damaged=True)
    assert directory.log_file_bytes == LOG_FILE_BYTES
    scanned = scan(files, 0, 40, skipping)
    assert (numbers(scanned), scanned[-1].damaged) == (sound, 40 - len(sound))
    parts = [scan_partition(directory, part, skipping) for part in plan_directory(directory)]
    assert numbers(each for part in parts for each in part) == sound
    raws = [scan_raw(directory, part, skipping) for part in plan_raw(directory)]
    assert numbers(each for raw in raws for each in raw) == sound
    if len(sound) < 40:
        with pytest.raises(MessageDamaged):
            scan(files, 0, 40)
    assert {path: node.data.tobytes() for path, node in files.nodes.items()} == before


def test_files_of_an_unclear_log_are_refused_by_name() -> None:
    files = filled()
    files.remove(log_path(1))
    for name in ("ternmq.store", "ternmq.store.bak"):
        files.nodes.pop(ROOT / name, None)
    with pytest.raises(StoreError, match=log_path(2).name):
        StoreDirectory(files, ROOT)


def test_missing_column_is_refused() -> None:
    with pytest.raises(UsageError, match="'nobody'"):
        scan(filled(count=1), 0, 1, ScanSpec(columns=["nobody"]))
    with pytest.raises(UsageError, match="at least one"):
        scan(filled(count=1), 0, 1, ScanSpec(batch_rows_max=0))


def test_missing_body_package_is_reported_while_the_log_is_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, flags = compress(bytes(10_000), "lz4", 0)
    config = replace(CONFIG, commit_log_file_bytes=4 << 20)
    store = open_store(RealFileSystem(), config=config, root=tmp_path)
    for _ in range(20):
        append(store, batch_of(record("A", 0, body, sys_flag=flags)))
        append(store, batch_of(record("B", 0, bytes(150_000))))
    settle(store)
    store.close()
    directory = StoreDirectory(RealFileSystem(), tmp_path)
    scan_range = ScanRange("A", 0, 0, 20)
    whole = ScanSpec(columns=["body"])
    batches = [step.batch for step in scan_queue(directory, scan_range, whole)]
    rows = [row for batch in batches if batch is not None for row in batch.to_pylist()]
    assert rows == [{"body": bytes(10_000)}] * 20
    monkeypatch.setitem(sys.modules, "lz4.frame", None)
    with pytest.raises(MissingPackage, match=r"ternmq\[compression\]"):
        list(scan_queue(directory, scan_range, whole))


def test_lost_range_costs_a_scan_one_search(monkeypatch: pytest.MonkeyPatch) -> None:
    files, sought, find = filled(), list[int](), UnitSearch.find

    def noted(search: UnitSearch, number: int, was: Unit) -> Sequence[UnitRepair]:
        sought.append(number)
        return find(search, number, was)

    monkeypatch.setattr(UnitSearch, "find", noted)
    data = files.nodes[log_path(1)].data
    data[:] = 0
    skipping = replace(NUMBERS, skips_damaged=True, batch_rows_max=4)
    steps = list(scan(files, 0, 40, skipping))
    assert steps[-1].damaged > 10
    assert len(numbers(steps)) == 40 - steps[-1].damaged
    assert len(sought) == 1
