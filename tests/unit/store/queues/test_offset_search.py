"""Where a queue stands when the log ends at some place."""

from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.format import decode_record
from ternmq_testing.memory.memory_files import MemoryFileSystem
from tests.support.records import batch_of, record
from tests.support.stores import append, drain, open_store, prepare, settle


def test_first_message_at_or_after_a_place_of_the_log_is_found() -> None:
    store = open_store(MemoryFileSystem())
    for number in range(25):
        append(store, batch_of(record("A", 0, b"x" * 300), record("A", number % 3, b"y" * 300)))
        prepare(store)
    settle(store)
    places: list[int] = []
    for _, data in drain(store, "A", 0):
        found = decode_record(data)
        assert found is not None
        places.append(found.header.physical_offset)
    end = store.max_physical
    for place in sorted({0, end, *places, *(at + 1 for at in places), *(at - 1 for at in places)}):
        expected = sum(at < place for at in places)
        assert store.searches.first_from("A", 0, PhysicalOffset(max(place, 0))) == expected
    assert store.searches.first_from("A", 7, PhysicalOffset(0)) == 0
    store.close()
