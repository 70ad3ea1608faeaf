"""Finding what was delivered before, in the log."""

import pytest

from ternmq_broker.delay.delivered_before import delivered_sources
from ternmq_broker.inner.inner_record import InnerRecord, batches_of
from ternmq_model.offsets import PhysicalOffset
from ternmq_store.disk.layout import commit_log_folder, file_name
from ternmq_store.message_store import MessageStore
from tests.support.files import MemoryFileSystem
from tests.support.records import BORN_HOST, STORE_HOST
from tests.support.stores import ROOT, SMALL, append, open_store, settle

START = PhysicalOffset(0)


def told(body: bytes = b"body", **properties: str) -> InnerRecord:
    return InnerRecord(
        topic="A", queue_id=0, body=body, properties=properties, born_at_ms=1, born_host=BORN_HOST
    )


def delivered(number: int) -> InnerRecord:
    return told(TERNMQ_SOURCE=str(number), TAGS="t")


def stored(files: MemoryFileSystem, *records: InnerRecord) -> tuple[MessageStore, list[int]]:
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
    assert delivered_sources(source, START) == {1, 2, 3}
    assert delivered_sources(source, PhysicalOffset(starts[1])) == {2, 3}
    assert delivered_sources(source, PhysicalOffset(starts[-1])) == {3}
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
def test_source_counts_as_a_property_of_its_own_alone(record: InnerRecord) -> None:
    store, _ = stored(MemoryFileSystem(), record, delivered(1))
    assert delivered_sources(store.reads.source(), START) == {1}


def test_damaged_record_hides_the_rest_of_its_file() -> None:
    files = MemoryFileSystem()
    store, starts = stored(files, delivered(1), delivered(2), delivered(3))
    files.nodes[commit_log_folder(ROOT) / file_name(0)].data[starts[1] + 4] ^= 1
    assert delivered_sources(store.reads.source(), START) == {1}
