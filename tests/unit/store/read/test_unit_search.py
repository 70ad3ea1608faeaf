"""Messages whose units are damaged: each read mends them from the log, and serves the message."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq_model.names import SCHEDULE_TOPIC
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.record.fields import tag_code_of
from ternmq_store.config import StoreConfig
from ternmq_store.disk.layout import commit_log_folder, file_name, queue_folder
from ternmq_store.message_store import MessageStore
from ternmq_store.queues.read_request import ReadLimits, ReadRequest, ReadResult
from ternmq_store.queues.units import UNIT, Unit, UnitRepair
from ternmq_store.read import cold_read, unit_search
from ternmq_store.read.cold_read import ColdRead
from ternmq_store.read.unit_search import (
    IN_VAIN,
    UnitSearch,
    UnitSearchResult,
    searched_at,
    with_searched,
)
from ternmq_testing.memory.memory_files import MemoryFileSystem
from tests.support.damage import readable
from tests.support.records import batch_of, record
from tests.support.stores import ROOT, append, checkpoint, drain, open_store, settle, whole

LIMITS = ReadLimits(32, 262_144)
BIG = StoreConfig(
    commit_log_file_bytes=1 << 20, consume_queue_file_units=1000, index_slots=20, index_entries=40
)


def request(offset: int) -> ReadRequest:
    return ReadRequest(topic="A", queue_id=0, offset=QueueOffset(offset), hot=LIMITS, cold=LIMITS)


def fill(store: MessageStore, count: int) -> None:
    for number in range(count):
        tag = {"TAGS": "odd" if number % 2 else "even"}
        append(store, batch_of(record("A", 0, b"%d" % number, tag)))
    settle(store)


def restarted(count: int) -> tuple[MessageStore, MemoryFileSystem]:
    """Return a store that was closed and opened again, with messages in queue 0 of topic A."""
    files = MemoryFileSystem()
    store = open_store(files, config=BIG)
    fill(store, count)
    store.close()
    return open_store(files, config=BIG), files


def cold(store: MessageStore, wanted: ReadRequest) -> ReadResult:
    """Read from the disk, which must be necessary."""
    plan = store.reads.plan_read(wanted)
    assert isinstance(plan, ColdRead)
    plan.run()
    return store.reads.finish(plan)


def bodies(result: ReadResult) -> list[bytes]:
    data, found = result.records, list[bytes]()
    for size in result.record_sizes.tolist():
        found.append(whole(data[:size]).body)
        data = data[size:]
    return found


@pytest.mark.parametrize("where", ["appended", "on disk", "in memory"])
@pytest.mark.parametrize("position", range(12))
def test_damaged_unit_is_mended_and_its_message_served(
    position: int, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    store, files = restarted(6)
    if where == "appended":
        files = MemoryFileSystem()
        store = open_store(files, config=BIG)
        fill(store, 6)
    elif where == "in memory":
        cold(store, request(0))
    units = files.nodes[queue_folder(ROOT, "A", 0) / file_name(0)].data
    before = units.tobytes()
    checkpoint(store)
    units[2 * 20 + position] ^= 1 << (position % 8)
    told: list[UnitRepair] = []
    store.reads.repair.on_repair = lambda _queue, repair: told.append(repair)
    served = [whole(data).body for _, data in drain(store, "A", 0)]
    assert served == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert (store.reads.repair.wrong_units, store.reads.repair.mended_units) == (1, 1)
    assert [repair.offset for repair in told] == [2]
    assert units.tobytes() == before
    assert sum("consume queue unit was wrong" in each.message for each in caplog.records) == 1
    assert not store.reads.quarantine
    task = store.checkpoint_due(1 << 61)
    assert task is not None
    path = queue_folder(ROOT, "A", 0) / file_name(0)
    assert path in task.files


def test_damaged_units_in_a_row_are_all_mended() -> None:
    store, files = restarted(6)
    units = files.nodes[queue_folder(ROOT, "A", 0) / file_name(0)].data
    before = units.tobytes()
    units[: 6 * 20] = 0
    assert bodies(store.read("A", 0, QueueOffset(0))) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert units.tobytes() == before


def test_wrong_tag_code_is_mended_by_a_read_that_has_the_record() -> None:
    store, files = restarted(6)
    units = files.nodes[queue_folder(ROOT, "A", 0) / file_name(0)].data
    before = units.tobytes()
    units[2 * 20 + 19] ^= 1
    tags = frozenset({tag_code_of(b"TAGS\x01even\x02")})
    assert bodies(cold(store, replace(request(0), tag_codes=tags))) == [b"0", b"2", b"4"]
    assert units.tobytes() == before


def test_unit_of_a_record_that_the_log_has_lost_is_passed_over_and_sought_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, files = restarted(6)
    log = files.nodes[commit_log_folder(ROOT) / file_name(0)].data
    start = int(cold(store, request(0)).record_sizes[:2].sum())
    store.close()
    log[start + 3] ^= 1
    store = open_store(files, config=BIG)
    store.reads.memory_bytes = 0
    for _ in range(2):
        result = cold(store, request(1))
        assert bodies(result) == [b"1", b"3", b"4", b"5"]
        assert result.skipped == 1
    assert (store.reads.repair.wrong_units, store.reads.repair.mended_units) == (1, 0)
    assert sum("the log has no valid record" in each.message for each in caplog.records) == 1
    assert not store.reads.quarantine
    (place,) = store.reads.dangling_units
    store.close()
    for _ in range(2):
        again = open_store(files, config=BIG)
        assert not again.report.queues_rebuilt
        assert bodies(cold(again, request(1))) == [b"1", b"3", b"4", b"5"]
        again.close()
    assert place.start == start
    assert place.reason.startswith(f"commitlog/{file_name(0)}: not the record that a unit")


def lost_stretch() -> tuple[MessageStore, MemoryFileSystem, list[int]]:
    """Return a store of 8 messages that knows that 2 to 4 are lost, and where each began."""
    store, files = restarted(8)
    data = files.nodes[queue_folder(ROOT, "A", 0) / file_name(0)].data
    places: list[int] = data[: 8 * 20].view(UNIT)["offset"].tolist()
    store.reads.quarantine.add(PhysicalOffset(places[2]), PhysicalOffset(places[5]), "damaged")
    return store, files, places


@pytest.mark.parametrize("how", ["from memory", "cold", "by number"])
@pytest.mark.parametrize(("number", "lost"), [(1, 3), (5, 2), (5, 4), (7, 4)])
def test_unit_that_wrongly_points_into_damage_is_mended(number: int, lost: int, how: str) -> None:
    store, files, places = lost_stretch()
    data = files.nodes[queue_folder(ROOT, "A", 0) / file_name(0)].data
    before = data.tobytes()
    if how == "from memory":
        cold(store, request(0))
    unit = data[number * 20 : number * 20 + 8]
    unit[:] = np.frombuffer(places[lost].to_bytes(8, "big"), dtype=np.uint8)
    if how == "by number":
        plan = store.searches.records_at("A", 0, [number], bytes_max=1 << 20)
        plan.run()
        store.searches.records_done(plan)
        assert [whole(found).body for found in plan.records if found] == [b"%d" % number]
    else:
        result = store.read("A", 0, QueueOffset(number), messages_max=1)
        assert bodies(result) == [b"%d" % number]
    assert data.tobytes() == before


def test_lost_messages_are_passed_over_without_a_search() -> None:
    store, _, _ = lost_stretch()
    result = cold(store, request(0))
    assert bodies(result) == [b"0", b"1", b"5", b"6", b"7"]
    assert (result.skipped, store.reads.repair.wrong_units) == (3, 0)
    assert bodies(store.read("A", 0, QueueOffset(3))) == [b"5", b"6", b"7"]
    assert store.reads.repair.wrong_units == 0


def test_long_search_goes_on_with_the_next_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit_search, "SEARCH_BYTES", 300)
    monkeypatch.setattr(cold_read, "_DENSE", 0)  # no other record is read beside the wanted ones
    store, files = restarted(2)
    units = files.nodes[queue_folder(ROOT, "A", 0) / file_name(0)].data
    for number in range(12):
        append(store, batch_of(record("B", 0, b"%d" % number)))
    append(store, batch_of(record("A", 0, b"last")))
    settle(store)
    units[2 * 20 : 2 * 20 + 8] = 255
    seen: list[bytes] = []
    reads, offset = 0, QueueOffset(0)
    while offset < 3:
        result = store.read("A", 0, offset)
        seen += bodies(result)
        offset, reads = result.next_offset, reads + 1
    assert seen == [b"0", b"1", b"last"]
    assert reads > 3


def test_start_after_a_mended_unit_builds_nothing_anew() -> None:
    store, files = restarted(6)
    units = files.nodes[queue_folder(ROOT, "A", 0) / file_name(0)].data
    units[2 * 20 + 3] ^= 1
    cold(store, request(0))
    store.close()
    assert not open_store(files, config=BIG).report.queues_rebuilt


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the number of each message that is looked for in the log."""
    searched, find = list[int](), UnitSearch.find

    def noted(search: UnitSearch, number: int, was: Unit) -> Sequence[UnitRepair]:
        searched.append(number)
        return find(search, number, was)

    monkeypatch.setattr(UnitSearch, "find", noted)
    return searched


def drained(store: MessageStore) -> list[int]:
    """Return the messages of queue 0 of topic A that are served from the disk."""
    store.reads.memory_bytes = 0
    return [offset for topic, _, offset in readable(store) if topic == "A"]


@pytest.mark.parametrize("are_units_lost", [False, True])
def test_lost_range_is_searched_once_for_all_its_messages(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, are_units_lost: bool
) -> None:
    store, files = restarted(400)
    store.close()
    log = files.nodes[commit_log_folder(ROOT) / file_name(0)].data
    units = files.nodes[queue_folder(ROOT, "A", 0) / file_name(0)].data
    places = np.frombuffer(units.tobytes(), dtype=UNIT)["offset"]
    log[places[100] : places[300]] = 0
    store = open_store(files, config=BIG)
    if are_units_lost:
        units[100 * 20 : 300 * 20] = 255
    searched = counted(monkeypatch)
    for _ in range(2):
        assert drained(store) == [*range(100), *range(300, 400)]
    assert len(searched) == 1
    assert store.reads.repair.wrong_units == 200
    lines = [each.message for each in caplog.records if "no valid record" in each.message]
    assert len(lines) == 1
    assert "from=100 to=299" in lines[0]
    plan = store.searches.records_at("A", 0, range(90, 310), bytes_max=1 << 20)
    plan.run()
    assert [data is None for data in plan.records] == [100 <= each < 300 for each in range(90, 310)]
    assert len(searched) == 1


@pytest.mark.parametrize("how", ["noted", "file"])
def test_message_of_a_range_known_to_be_lost_is_not_looked_for(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(BIG, commit_log_file_bytes=8192)
    files = MemoryFileSystem()
    store = open_store(files, config=config)
    fill(store, 400)
    store.close()
    path = commit_log_folder(ROOT) / file_name(8192)
    if how == "file":
        files.remove(path)
    else:
        files.nodes[path].data[:] = 0
    store = open_store(files, config=config)
    if how == "noted":
        assert store.reads.quarantine.add(PhysicalOffset(8192), PhysicalOffset(16384), "zeros")
    units = files.nodes[queue_folder(ROOT, "A", 0) / file_name(0)].data
    places = np.frombuffer(units.tobytes(), dtype=UNIT)["offset"][:400]
    lost = {row for row, place in enumerate(places.tolist()) if 8192 <= place < 16384}
    assert len(lost) > 50
    searched = counted(monkeypatch)
    assert drained(store) == [each for each in range(400) if each not in lost]
    plan = store.searches.records_at("A", 0, sorted(lost), bytes_max=1 << 20)
    plan.run()
    assert not any(plan.records)
    assert not searched
    assert store.reads.repair.wrong_units == 0


def test_damaged_units_and_lost_records_beside_each_other_are_told_apart() -> None:
    store, files = restarted(400)
    store.close()
    log = files.nodes[commit_log_folder(ROOT) / file_name(0)].data
    units = files.nodes[queue_folder(ROOT, "A", 0) / file_name(0)].data
    before = units.tobytes()
    places = np.frombuffer(before, dtype=UNIT)["offset"]
    lost = [*range(150, 200), 230]
    log[places[150] : places[200]] = 0
    log[places[230] : places[231]] = 0
    store = open_store(files, config=BIG)
    units[100 * 20 : 300 * 20] = 0
    assert drained(store) == [each for each in range(400) if each not in lost]
    behind = units.tobytes()
    assert [row for row in range(400) if behind[20 * row :][:20] != before[20 * row :][:20]] == lost


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9), st.sampled_from((5, IN_VAIN)))))
def test_ranges_that_were_sought_never_overlap_and_keep_what_was_in_vain(
    searches: list[tuple[int, int, int]],
) -> None:
    known: Sequence[UnitSearchResult] = ()
    newest: dict[int, int] = {}
    for first, count, place in searches:
        known = with_searched(known, UnitSearchResult(first, first + count, place))
        newest.update(dict.fromkeys(range(first, first + count), place))
        for before, behind in pairwise(known):
            assert before.end <= behind.first
        for number in range(first, first + count):
            assert searched_at(known, number) is not None
        for number in range(50):
            found = searched_at(known, number)
            assert found is None or found.place != IN_VAIN or newest[number] == IN_VAIN


@pytest.mark.parametrize("topic", ["A", SCHEDULE_TOPIC])
def test_wrong_code_is_mended_by_a_read_of_records_far_from_each_other(topic: str) -> None:
    files, config = MemoryFileSystem(), replace(BIG, commit_log_file_bytes=1 << 22)
    store = open_store(files, config=config)
    for number in range(20):
        properties = {"TAGS": "even"} if topic == "A" else {"TAGS": "even", "DELAY": "4"}
        append(store, batch_of(record(topic, 0, b"%d" % number, properties)))
        append(store, batch_of(record("B", 0, bytes(60_000))))
    settle(store)
    units = files.nodes[queue_folder(ROOT, topic, 0) / file_name(0)].data
    before = units.tobytes()
    for number in range(20):
        units[number * 20 + 12 + number % 8] ^= 1
    store.reads.memory_bytes = 0
    assert [whole(data).body for _, data in drain(store, topic, 0)] == [
        b"%d" % number for number in range(20)
    ]
    assert units.tobytes() == before
    assert store.reads.repair.mended_units == 20
