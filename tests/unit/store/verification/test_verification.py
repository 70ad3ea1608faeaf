"""Rounds of the verification through stores with damaged units, records and queues."""

import logging
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ternmq_model.names import SCHEDULE_TOPIC, WHEEL_TOPIC
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.record.fields import tag_code_of
from ternmq_model.record.scanner import Verify, scan_records
from ternmq_store.config import StoreConfig
from ternmq_store.disk.layout import commit_log_folder, file_name, index_folder, queue_folder
from ternmq_store.dispatch.dispatch_request import no_bit_maps
from ternmq_store.index.index_format import ENTRY, IndexSizes
from ternmq_store.inspection.audit import StoreAudit
from ternmq_store.message_store import MessageStore
from ternmq_store.query.key_search import KeyQuery
from ternmq_store.verification.verification import ROUND_PAUSE_MS, VerifiedChunk
from ternmq_testing.memory.memory_files import Bytes, MemoryFileSystem
from tests.support.damage import readable
from tests.support.records import batch_of, record
from tests.support.stores import (
    ROOT,
    SMALL,
    HandClock,
    append,
    drain,
    open_store,
    settle,
    units_in,
    whole,
)

SOME = replace(SMALL, record_checksum=True)
COUNT = 90
NOW_MS = 1_700_000_000_000


def filled(files: MemoryFileSystem, clock: HandClock | None = None) -> MessageStore:
    """Return a store with messages in three queues, in several files of log and queues."""
    store = open_store(files, config=SOME, clock=clock)
    for number in range(COUNT):
        tag = {"TAGS": "odd" if number % 2 else "even", "UNIQ_KEY": f"{number:032x}"}
        tag["KEYS"] = "all one two"[: 3 + 4 * (number % 3)]
        append(store, batch_of(record("AB"[number % 2], number % 3, b"%03d" % number, tag)))
    settle(store)
    return store


def go_round(store: MessageStore, bytes_max: int = 1000) -> int:
    """Verify to the end of the log; return in how many pieces."""
    rounds, pieces = store.verification.rounds, 0
    while store.verification.rounds == rounds:
        step(store, bytes_max)
        pieces += 1
    return pieces


def step(store: MessageStore, bytes_max: int = 1000) -> bool:
    piece = store.verification.chunk_due(bytes_max)
    if piece is None:
        return False
    piece.run()
    check = store.verification.chunk_done(piece)
    if check is not None:
        check.run()
        store.verification.units_done(check)
    return True


def units_of(files: MemoryFileSystem, topic: str, queue_id: int) -> Bytes:
    return files.nodes[queue_folder(ROOT, topic, queue_id) / file_name(0)].data


def bodies(store: MessageStore) -> list[bytes]:
    return sorted(
        whole(data).body
        for topic, queue_id in store.queues()
        for _, data in drain(store, topic, queue_id)
    )


@pytest.mark.parametrize("position", range(20))
def test_damaged_unit_is_found_and_mended_without_a_read(position: int) -> None:
    files = MemoryFileSystem()
    store = filled(files)
    units = units_of(files, "A", 0)
    before = units.tobytes()
    units[3 * 20 + position] ^= 1 << (position % 8)
    go_round(store)
    assert units.tobytes() == before
    assert (store.verification.units_mended, store.verification.records_damaged) == (1, 0)
    assert bodies(store) == [b"%03d" % number for number in range(COUNT)]


@pytest.mark.parametrize("are_records_good", [True, False])
@pytest.mark.parametrize("count", [1, 3, 15])
def test_units_in_the_other_byte_order_are_named_and_mended(
    count: int, *, are_records_good: bool
) -> None:
    files = MemoryFileSystem()
    store = filled(files)
    units = units_of(files, "A", 0)
    before = units.copy()
    first = units_in(before.tobytes())[2:][:count]
    for number, (place, size, code) in enumerate(first, 2):
        base = place - place % SOME.commit_log_file_bytes
        files.nodes[commit_log_folder(ROOT) / file_name(base)].data[
            place - base + 90
        ] ^= not are_records_good
        turned = struct.pack("<qiq", place, size, code)
        units[20 * number :][:20] = np.frombuffer(turned, dtype=np.uint8)
    problems = [each.text for each in StoreAudit(files, ROOT).findings() if each.area == "queue"]
    named = [text.split(" ha")[0].split() for text in problems if "wrong order" in text]
    assert len(named) == len(problems)
    assert sum(int(words[-2]) if words[-1] == "units" else 1 for words in named) == len(first)
    go_round(store)
    assert (units == before).all()
    assert not [each for each in StoreAudit(files, ROOT).findings() if each.area == "queue"]
    assert store.verification.units_mended == len(first)


def test_sound_store_is_left_as_it_is() -> None:
    files, clock = MemoryFileSystem(), HandClock()
    store = filled(files, clock)
    before = {path: node.data.tobytes() for path, node in files.nodes.items()}
    for bytes_max in (1, 300, 1 << 20):
        go_round(store, bytes_max)
        clock.now_ms += ROUND_PAUSE_MS
    assert {path: node.data.tobytes() for path, node in files.nodes.items()} == before
    assert (store.verification.units_mended, store.verification.records_damaged) == (0, 0)


def test_consumer_with_a_tag_gets_a_message_whose_code_was_mended() -> None:
    files = MemoryFileSystem()
    store = filled(files)
    wanted = frozenset({tag_code_of(b"TAGS\x01even\x02")})
    units_of(files, "A", 0)[2 * 20 + 18] ^= 4
    result = store.reads.read("A", 0, QueueOffset(0), tag_codes=wanted, messages_max=5)
    assert [whole(each).header.queue_offset for each in split(result.records)] == [0, 1, 3, 4, 5]
    go_round(store)
    result = store.reads.read("A", 0, QueueOffset(0), tag_codes=wanted, messages_max=5)
    assert [whole(each).header.queue_offset for each in split(result.records)] == [0, 1, 2, 3, 4]


def split(records: bytes) -> list[bytes]:
    found: list[bytes] = []
    while records:
        size = int.from_bytes(records[:4], "big")
        found.append(records[:size])
        records = records[size:]
    return found


def test_units_that_stand_for_nothing_are_mended() -> None:
    files = MemoryFileSystem()
    store = filled(files)
    expected = bodies(store)
    units = units_of(files, "B", 1)
    units[40:60] = [0] * 8 + [0x7F, 255, 255, 255] + [0] * 8
    assert len(bodies(store)) == COUNT - 1
    go_round(store)
    assert bodies(store) == expected


@pytest.mark.parametrize("position", [0, 3, 7, 40, 91])
def test_damaged_record_is_quarantined_and_the_round_goes_on(
    position: int, caplog: pytest.LogCaptureFixture
) -> None:
    files = MemoryFileSystem()
    store = filled(files)
    second = store.reads.read("A", 0, QueueOffset(1), messages_max=1).records
    start = whole(second).header.physical_offset
    log = files.nodes[commit_log_folder(ROOT) / file_name(0)].data
    log[start + position] ^= 0x10
    units = units_of(files, "B", 2)
    units[4 * 20 + 7] ^= 1
    with caplog.at_level(logging.ERROR):
        go_round(store)
    assert [(each.start, each.end) for each in store.reads.quarantine.ranges] == [
        (start, start + len(second))
    ]
    assert (store.verification.units_mended, store.verification.records_damaged) == (1, 1)
    assert sum("damaged record found" in each.message for each in caplog.records) == 1
    assert len(bodies(store)) == COUNT - 1


def test_round_begins_anew_after_a_pause_and_follows_the_log() -> None:
    clock = HandClock()
    store = filled(MemoryFileSystem(), clock)
    assert go_round(store) > 10
    assert not step(store)
    clock.now_ms += ROUND_PAUSE_MS - 1
    assert not step(store)
    clock.now_ms += 1
    assert step(store)
    assert 0 < store.verification.offset < store.dispatched_offset


def test_record_longer_than_a_piece_is_verified_by_itself() -> None:
    files = MemoryFileSystem()
    store = open_store(files, config=SOME)
    for number in range(4):
        append(store, batch_of(record("A", 0, b"%d" % number * 3000)))
    settle(store)
    units = units_of(files, "A", 0)
    before = units.tobytes()
    units[20 + 11] ^= 1
    assert go_round(store, 100) >= 4
    assert units.tobytes() == before


def test_message_that_is_not_dispatched_is_not_looked_at() -> None:
    files = MemoryFileSystem()
    store = filled(files)
    end = store.dispatched_offset
    append(store, batch_of(record("A", 0, b"late")))
    files.nodes[commit_log_folder(ROOT) / file_name(end - end % 8192)].data[end % 8192] ^= 1
    go_round(store)
    assert not store.reads.quarantine


def test_records_of_a_deleted_topic_are_passed_over() -> None:
    files = MemoryFileSystem()
    store = filled(files)
    store.delete_topic("A")
    append(store, batch_of(record("A", 0, b"new")))
    settle(store)
    before = units_of(files, "A", 0).tobytes()
    go_round(store)
    assert units_of(files, "A", 0).tobytes() == before
    assert store.verification.units_mended == 0


def test_piece_holds_its_file_and_lets_it_go() -> None:
    store = filled(MemoryFileSystem())
    piece = store.verification.chunk_due(1000)
    assert piece is not None
    assert isinstance(piece, VerifiedChunk)
    assert [file.holds for file in piece.held] == [1]
    held = tuple(piece.held)
    store.verification.chunk_done(piece, OSError("the disk failed"))
    assert [file.holds for file in held] == [0]
    assert store.verification.offset == 8192


def index_files(files: MemoryFileSystem) -> list[Path]:
    return sorted(path for path in files.nodes if path.parent == index_folder(ROOT))


@pytest.mark.parametrize("number", [1, 2, 17, 39])
@pytest.mark.parametrize("position", range(20))
def test_damaged_index_entry_is_mended_in_place(position: int, number: int) -> None:
    files = MemoryFileSystem()
    store = filled(files)
    data = files.nodes[index_files(files)[1]].data
    before = data.tobytes()
    at = IndexSizes(SOME.index_slots, SOME.index_entries).entry_at(number) + position
    data[at] ^= 1 << (position % 8)
    go_round(store)
    first_second = number == 1 and 12 <= position < 16  # nobody reads those
    assert (data.tobytes() == before) is not first_second
    assert store.verification.entries_mended == (0 if first_second else 1)
    assert (store.verification.units_mended, store.verification.records_damaged) == (0, 0)


@pytest.mark.parametrize(("position", "bits"), [(3, 3), (0, 0x80)])
def test_damaged_slot_of_a_full_index_file_is_mended(position: int, bits: int) -> None:
    files = MemoryFileSystem()
    store = filled(files)
    data = files.nodes[index_files(files)[1]].data
    before = data.tobytes()
    for slot in range(SOME.index_slots):
        number = data[40 + 4 * slot : 44 + 4 * slot]
        if bits < 0x80 or number.any():  # a negative number in an empty slot stands for none, too
            number[position] ^= bits
    go_round(store)
    assert data.tobytes() == before
    assert store.verification.entries_mended


def test_damaged_entries_in_a_row_are_mended_and_keys_found_again() -> None:
    files = MemoryFileSystem()
    store = filled(files)
    data = files.nodes[index_files(files)[2]].data
    before = data.tobytes()
    sizes = IndexSizes(SOME.index_slots, SOME.index_entries)
    data[sizes.entry_at(5) : sizes.entry_at(30)] = 0
    go_round(store)
    assert data.tobytes() == before


def test_index_entries_in_another_order_than_the_log_stay() -> None:
    files = MemoryFileSystem()
    store = filled(files)
    data = files.nodes[index_files(files)[1]].data
    sizes = IndexSizes(SOME.index_slots, SOME.index_entries)
    begin, end = sizes.entry_at(3), sizes.entry_at(8)
    entries = np.frombuffer(data[begin:end].tobytes(), dtype=ENTRY).copy()
    entries = entries[::-1].copy()
    data[begin:end] = np.frombuffer(entries.tobytes(), dtype=np.uint8)
    go_round(store)
    there = np.frombuffer(data[begin:end].tobytes(), dtype=ENTRY)
    assert there["offset"].tolist() == entries["offset"].tolist()


def append_waiting(store: MessageStore, topic: str, properties: dict[str, str]) -> None:
    """Store five messages that no client may send."""
    data = memoryview(record(topic, 0, b"waits", properties) + bytes(8))
    for _ in range(5):
        at = PhysicalOffset(0)
        found = scan_records(data, 0, len(data), at=at, records_max=1, verify=Verify.NOTHING)
        assert found.batch is not None
        append(store, found.batch)
    settle(store)


@pytest.mark.parametrize(
    ("topic", "properties"),
    [(SCHEDULE_TOPIC, {"DELAY": "3"}), (WHEEL_TOPIC, {"TIMER_OUT_MS": "1700000005000"})],
)
def test_wrong_delivery_time_is_mended(topic: str, properties: dict[str, str]) -> None:
    files = MemoryFileSystem()
    store = open_store(files, config=SOME)
    append_waiting(store, topic, properties)
    units = units_of(files, topic, 0)
    before = units.tobytes()
    units[2 * 20 + 14] ^= 2  # years later
    codes = store.searches.codes_at(topic, 0, QueueOffset(0), 5).tolist()
    assert codes[2] > codes[1] + 365 * 86_400_000
    go_round(store)
    assert units.tobytes() == before


@pytest.mark.parametrize(
    ("properties", "code"),
    [
        ({"TIMER_OUT_MS": str(NOW_MS - 2900), "TIMER_DELAY_MS": "100"}, NOW_MS - 2900),
        (
            {"TIMER_OUT_MS": str(NOW_MS), "TIMER_DELAY_SEC": "9", "TIMER_DEL_UNIQKEY": "k"},
            NOW_MS + 1001,
        ),
        (
            {"TIMER_OUT_MS": str(NOW_MS), "TIMER_DELAY_SEC": "9", "TIMER_ROLL_TIMES": "1"},
            NOW_MS + 1000,
        ),
    ],
)
def test_delivery_time_of_earlier_versions_is_not_mended(
    properties: dict[str, str], code: int
) -> None:
    files = MemoryFileSystem()
    store = open_store(files, config=SOME, clock=HandClock(NOW_MS))
    append_waiting(store, WHEEL_TOPIC, properties)
    assert store.searches.codes_at(WHEEL_TOPIC, 0, QueueOffset(0), 1).tolist() != [code]
    units = units_of(files, WHEEL_TOPIC, 0)
    units[2 * 20 + 12 : 3 * 20] = np.frombuffer(code.to_bytes(8, "big"), dtype=np.uint8)
    before = units.tobytes()
    go_round(store)
    assert units.tobytes() == before
    assert store.verification.units_mended == 0
    store.close()
    assert not [one for one in StoreAudit(files, ROOT).findings() if one.is_problem]
    units[2 * 20 + 12 : 3 * 20] = np.frombuffer((code + 10).to_bytes(8, "big"), dtype=np.uint8)
    assert [one for one in StoreAudit(files, ROOT).findings() if one.is_problem]


@pytest.mark.parametrize("position", range(20))
def test_damaged_unit_with_a_code_kept_elsewhere_is_mended(position: int) -> None:
    files = MemoryFileSystem()
    config = replace(SOME, consume_queue_ext_enabled=True, consume_queue_ext_file_bytes=1 << 16)
    store = open_store(files, config=config)
    store.keep_bit_maps(no_bit_maps)
    for _ in range(5):
        append(store, batch_of(record("A", 0, b"kept", {"TAGS": "t"})))
    settle(store)
    units = units_of(files, "A", 0)
    before = units.tobytes()
    units[2 * 20 + position] ^= 0x40
    go_round(store)
    assert store.verification.units_mended == 1
    kept = 20 if position < 12 else 12
    assert units[: 2 * 20 + kept].tobytes() == before[: 2 * 20 + kept]
    code = tag_code_of(b"TAGS\x01t\x02")
    assert store.searches.codes_at("A", 0, QueueOffset(0), 5).tolist() == [code] * 5


def missing_keys(store: MessageStore) -> list[bytes]:
    """Return which of the messages that are served are not found by their key."""
    found = [whole(data).body for data in readable(store).values()]
    assert found
    searches = store.searches
    return [
        body
        for body in found
        if not searches.by_key(KeyQuery(topics=("A",), key=f"key{int(body)}")).run()
    ]


def of_keys(config: StoreConfig) -> MemoryFileSystem:
    """Return the files of a store that was closed, with 300 messages that have two keys each."""
    files = MemoryFileSystem()
    store = open_store(files, config=config)
    for number in range(300):
        keys = {"KEYS": f"key{number}", "UNIQ_KEY": f"{number:032x}"}
        append(store, batch_of(record("A", 0, b"%03d" % number, keys)))
    settle(store)
    store.close()
    return files


@pytest.mark.parametrize("what", ["one bit", "range", "range noted before", "file"])
@pytest.mark.parametrize(("slots", "entries"), [(20, 40), (200, 4000), (1000, 4000)])
def test_index_stays_as_it_is_behind_damage_of_the_log(slots: int, entries: int, what: str) -> None:
    config = replace(SOME, index_slots=slots, index_entries=entries)
    files = of_keys(config)
    path = commit_log_folder(ROOT) / file_name(SOME.commit_log_file_bytes)
    if what == "one bit":
        files.nodes[path].data[2000] ^= 1
    elif what == "file":
        files.remove(path)
    else:
        files.nodes[path].data[2000:4000] = 0
    before = {path: files.nodes[path].data.tobytes() for path in index_files(files)}
    store = open_store(files, config=config)
    if what == "range noted before":
        assert len(readable(store)) < 300
    go_round(store)
    assert {path: files.nodes[path].data.tobytes() for path in index_files(files)} == before
    assert store.verification.entries_mended == 0
    assert missing_keys(store) == []
    store.close()
    assert missing_keys(open_store(files, config=config)) == []


@pytest.mark.parametrize("position", range(20))
def test_damaged_entry_behind_damage_of_the_log_is_mended(position: int) -> None:
    config = replace(SOME, index_slots=200, index_entries=4000)
    files = of_keys(config)
    (path,) = index_files(files)
    data = files.nodes[path].data
    before = data.tobytes()
    files.nodes[commit_log_folder(ROOT) / file_name(0)].data[2000] ^= 1
    data[IndexSizes(200, 4000).entry_at(331) + position] ^= 1 << (position % 8)
    store = open_store(files, config=config)
    go_round(store)
    assert data.tobytes() == before
    assert (store.verification.entries_mended, store.verification.records_damaged) == (1, 1)
    assert missing_keys(store) == []


@pytest.mark.parametrize("position", range(16))
def test_links_of_a_damaged_entry_whose_record_is_lost_stay(position: int) -> None:
    config = replace(SOME, index_slots=50, index_entries=4000)
    files = of_keys(config)
    (path,) = index_files(files)
    data, at = files.nodes[path].data, IndexSizes(50, 4000).entry_at(330)
    place = int(np.frombuffer(data[at : at + 20].tobytes(), dtype=ENTRY)["offset"][0])
    base = place - place % SOME.commit_log_file_bytes
    files.nodes[commit_log_folder(ROOT) / file_name(base)].data[place - base + 91] ^= 1
    data[at + position] ^= 1 << (position % 8)
    damaged = data[at : at + 20].tobytes()
    store = open_store(files, config=config)
    go_round(store)
    assert data[at : at + 20].tobytes() == damaged
    assert missing_keys(store) == []


def test_keys_of_an_index_without_one_entry_stay() -> None:
    config = replace(SOME, index_slots=200, index_entries=4000)
    files, sizes = of_keys(config), IndexSizes(200, 4000)
    (path,) = index_files(files)
    data, begin, end = files.nodes[path].data, sizes.entry_at(331), sizes.entry_at(601)
    data[begin : end - 20] = data[begin + 20 : end].copy()
    before = np.frombuffer(data[begin:end].tobytes(), dtype=ENTRY)
    store = open_store(files, config=config)
    go_round(store, 1 << 18)
    behind = np.frombuffer(data[begin:end].tobytes(), dtype=ENTRY)
    for name in ("hash", "offset", "seconds"):
        assert behind[name].tolist() == before[name].tolist()
