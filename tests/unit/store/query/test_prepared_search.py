import pytest

from ternmq_broker.storage.internal_record import InternalRecord, batches_of
from ternmq_model.names import HALF_TOPIC
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.format import FLAG_COMMIT
from ternmq_store.disk.layout import commit_log_folder, file_name
from ternmq_store.message_store import MessageStore
from ternmq_store.query.prepared_search import PreparedSearch
from ternmq_testing.memory.memory_files import MemoryFileSystem
from tests.support.records import BORN_HOST, STORE_HOST
from tests.support.stores import ROOT, SMALL, delete, open_store, prepare, settle


def put(
    store: MessageStore,
    prepared: int,
    *,
    topic: str = "flights",
    flag: int = FLAG_COMMIT,
    size: int = 10,
) -> int:
    """Append a record of a transaction; return where it lies."""
    record = InternalRecord(
        topic=topic,
        queue_id=1,
        body=bytes(size),
        properties={"UNIQ_KEY": "k"},
        born_at_ms=0,
        born_host=BORN_HOST,
        sys_flag=flag,
        prepared_offset=prepared,
    )
    (batch,) = batches_of([record], store_host=STORE_HOST, is_checksummed=False)
    appended = store.append(batch, born_host=BORN_HOST, store_host=STORE_HOST)
    settle(store)
    prepare(store)
    return int(appended.physical_offsets[0])


def found(store: MessageStore, start: int, *transactions: int) -> list[tuple[int, int]]:
    """Return transaction and place of everything that is found."""
    search: PreparedSearch = store.searches.prepared(
        PhysicalOffset(start), map(PhysicalOffset, transactions), skipped_topic=HALF_TOPIC
    )
    while search.step():
        pass
    return [(each.prepared_offset, each.physical_offset) for each in search.found]


def test_messages_and_parked_copies_are_found_and_other_copies_are_not() -> None:
    store = open_store(MemoryFileSystem())
    put(store, 0, flag=0)
    zero = put(store, 0)
    put(store, 700, topic=HALF_TOPIC, flag=0)
    parked = put(store, 700, topic="parked", flag=0)
    put(store, 800)
    assert found(store, 0, 0, 700) == [(0, zero), (700, parked)]
    assert found(store, parked, 0, 700) == [(700, parked)]
    store.close()


def test_search_crosses_files_and_starts_past_deleted_ones() -> None:
    store = open_store(MemoryFileSystem())
    places = [put(store, number, size=1500) for number in range(1, 21)]
    assert places[-1] > 3 * SMALL.commit_log_file_bytes
    assert found(store, 0, *range(1, 21)) == list(enumerate(places, 1))
    assert found(store, places[-1] + 1_000_000, 20) == []
    store.close()


@pytest.mark.parametrize("is_gone", [True, False])
def test_damage_and_missing_files_are_stepped_over(is_gone: bool) -> None:
    files = MemoryFileSystem()
    store = open_store(files)
    places = [put(store, number, size=1500) for number in range(1, 13)]
    path = commit_log_folder(ROOT) / file_name(SMALL.commit_log_file_bytes)
    inside = [
        number
        for number, place in enumerate(places, 1)
        if place // SMALL.commit_log_file_bytes == 1
    ]
    if is_gone:
        delete(store, path)
        lost = inside
    else:
        at = places[inside[1] - 1] - SMALL.commit_log_file_bytes
        files.nodes[path].data[at : at + 8] = 0
        lost = inside[1:2]
    expected = [(number, place) for number, place in enumerate(places, 1) if number not in lost]
    assert found(store, 0, *range(1, 13)) == expected
