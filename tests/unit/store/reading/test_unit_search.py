"""Messages whose units are damaged: each read mends them from the log, and serves the message."""

from dataclasses import replace

import pytest

from ternmq_model.offsets import QueueOffset
from ternmq_model.record_passes import tag_code_of
from ternmq_store.config import StoreConfig
from ternmq_store.disk.layout import commit_log_folder, file_name, queue_folder
from ternmq_store.message_store import MessageStore
from ternmq_store.queues.units import Mend
from ternmq_store.reading import cold_read, unit_search
from ternmq_store.reading.cold_read import ColdRead
from ternmq_store.reading.reader import Limits, ReadRequest, ReadResult
from tests.support.files import MemoryFileSystem
from tests.support.records import batch_of, record
from tests.support.stores import ROOT, append, checkpoint, drain, open_store, settle, whole

LIMITS = Limits(32, 262_144)
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
    told: list[Mend] = []
    store.reads.mending.on_mended = lambda _queue, mend: told.append(mend)
    served = [whole(data).body for _, data in drain(store, "A", 0)]
    assert served == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert (store.reads.mending.wrong_units, store.reads.mending.mended_units) == (1, 1)
    assert [mend.offset for mend in told] == [2]
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
    assert (store.reads.mending.wrong_units, store.reads.mending.mended_units) == (1, 0)
    assert sum("the log has no good record" in each.message for each in caplog.records) == 1
    assert not store.reads.quarantine
    (place,) = store.reads.bad_places
    store.close()
    for is_first in (True, False):
        again = open_store(files, config=BIG)
        assert again.report.queues_rebuilt is is_first
        assert bodies(cold(again, request(1))) == [b"1", b"3", b"4", b"5"]
        again.close()
    assert place.start == start
    assert place.reason.startswith(f"commitlog/{file_name(0)}: not the record that a unit")


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
