"""Finding what was delivered before, in the log."""

import pytest

from ternmq_broker.scheduled.delivery_recovery import NO_COPIES, copies_of, delivered_sources
from ternmq_broker.storage.internal_record import InternalRecord, batches_of
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.fields import tag_code_of
from ternmq_store.disk.layout import commit_log_folder, file_name
from ternmq_store.message_store import MessageStore
from ternmq_testing.memory.memory_files import MemoryFileSystem
from tests.support.records import BORN_HOST, STORE_HOST
from tests.support.stores import ROOT, SMALL, append, open_store, settle

START = PhysicalOffset(0)


def told(body: bytes = b"body", **properties: str) -> InternalRecord:
    return InternalRecord(
        topic="A", queue_id=0, body=body, properties=properties, born_at_ms=1, born_host=BORN_HOST
    )


def delivered(number: int) -> InternalRecord:
    return told(TERNMQ_SOURCE=str(number), TAGS="t")


def stored(files: MemoryFileSystem, *records: InternalRecord) -> tuple[MessageStore, list[int]]:
    """Return a store with these records, and where they begin."""
    store = open_store(files)
    starts: list[int] = []
    for each in records:
        (batch,) = batches_of([each], store_host=STORE_HOST, is_checksummed=True)
        starts += append(store, batch).physical_offsets.tolist()
    settle(store)
    return store, starts


def test_sources_are_found_in_every_file_from_a_place_on() -> None:
    filler = told(bytes(SMALL.commit_log_file_bytes // 3))
    records = (delivered(1), filler, filler, delivered(2), filler, filler, delivered(3))
    store, starts = stored(MemoryFileSystem(), *records)
    assert starts[-1] > SMALL.commit_log_file_bytes
    source = store.reads.source()
    places = {1: starts[0], 2: starts[3], 3: starts[-1]}
    assert delivered_sources(source, START) == places
    del places[1]
    assert delivered_sources(source, PhysicalOffset(starts[1])) == places
    del places[2]
    assert delivered_sources(source, PhysicalOffset(starts[-1])) == places
    assert not delivered_sources(source, source.end)
    assert not delivered_sources(source, PhysicalOffset(source.end + 1000))


@pytest.mark.parametrize(
    "record",
    [
        told(b"TERNMQ_SOURCE\x017\x02"),
        told(MY_TERNMQ_SOURCE="7"),
        told(TERNMQ_SOURCE="x"),
    ],
)
def test_source_counts_as_a_property_of_its_own_alone(record: InternalRecord) -> None:
    store, starts = stored(MemoryFileSystem(), record, delivered(1))
    assert delivered_sources(store.reads.source(), START) == {1: starts[1]}


def test_damaged_record_hides_the_rest_of_its_file() -> None:
    files = MemoryFileSystem()
    store, starts = stored(files, delivered(1), delivered(2), delivered(3))
    files.nodes[commit_log_folder(ROOT) / file_name(0)].data[starts[1] + 4] ^= 1
    assert delivered_sources(store.reads.source(), START) == {1: 0}


def test_source_with_several_copies_has_the_place_of_the_last() -> None:
    store, starts = stored(MemoryFileSystem(), *[delivered(1)] * 3)
    assert delivered_sources(store.reads.source(), START) == {1: starts[2]}


def test_copies_are_those_of_messages_of_the_queue_from_an_offset_on() -> None:
    count = 2 * SMALL.consume_queue_file_units + 3  # so units are in three files
    store, starts = stored(MemoryFileSystem(), *[told(TAGS="t")] * count)
    found = {starts[n]: PhysicalOffset(10_000 + n) for n in (1, 4, count - 1)} | {7: START}
    copies = copies_of(store, "A", 0, 2, found)
    assert copies.offsets.tolist() == [4, count - 1]
    assert copies.physical_offsets.tolist() == [10_004, 10_000 + count - 1]
    assert copies.codes.tolist() == [tag_code_of(b"TAGS\x01t\x02")] * 2
    assert copies.between(4, count - 1) == {4}
    assert copies.between(5, count) == {count - 1}
    for begin, places in ((2, {}), (count, found)):
        assert copies_of(store, "A", 0, begin, places) is NO_COPIES
    assert copies_of(store, "B", 0, 0, found) is NO_COPIES
