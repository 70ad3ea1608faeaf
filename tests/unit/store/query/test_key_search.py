"""Messages are found by key, and only those that have it."""

from ternmq_model.offsets import UNIT_BYTES, QueueOffset
from ternmq_store.message_store import MessageStore
from ternmq_store.query.key_search import KeyQuery
from ternmq_testing.memory.memory_files import MemoryFileSystem
from tests.support.records import batch_of, record
from tests.support.stores import HandClock, append, flush, open_store, prepare, settle, whole


def keyed(number: int, topic: str = "A", keys: str = "all") -> bytes:
    return record(topic, 0, properties={"UNIQ_KEY": f"u{number}", "KEYS": keys})


def look(store: MessageStore, query: KeyQuery) -> list[int]:
    """Return the store times of what is found."""
    return [whole(one).header.stored_at_ms for one in store.searches.by_key(query).run()]


def test_newest_messages_with_a_key_are_found_within_their_times() -> None:
    clock = HandClock(1_700_000_000_007)
    store = open_store(MemoryFileSystem(), clock=clock)
    times: list[int] = []
    for number in range(80):
        append(store, batch_of(keyed(number, keys=f"all k{number}"), keyed(number, "B")))
        prepare(store)
        settle(store)
        times.append(clock.now_ms)
        clock.now_ms += 700
    assert look(store, KeyQuery(topics=("A",), key="all")) == times[-64:]
    assert look(store, KeyQuery(topics=("A",), key="all", maximum=3)) == times[-3:]
    assert look(store, KeyQuery(topics=("A", "B"), key="u7")) == [times[7], times[7]]
    assert look(store, KeyQuery(topics=("A",), key="k7")) == [times[7]]
    assert look(store, KeyQuery(topics=("A",), key="k7", is_unique=True)) == []
    for row in (0, 7, 79):
        at_ms = times[row]
        exact = KeyQuery(topics=("A",), key="all", begin_ms=at_ms, end_ms=at_ms)
        assert look(store, exact) == [at_ms]
    store.close()


def test_another_key_with_the_same_hash_is_not_matched() -> None:
    store = open_store(MemoryFileSystem())
    append(store, batch_of(keyed(0, keys="Aa"), keyed(1, keys="BB")))  # hash alike in Java
    settle(store)
    found = store.searches.by_key(KeyQuery(topics=("A",), key="BB")).run()
    assert [b"u1" in one for one in found] == [True]
    store.close()


def test_unconfirmed_or_deleted_messages_are_not_found() -> None:
    store = open_store(MemoryFileSystem())
    query = KeyQuery(topics=("A",), key="all")
    append(store, batch_of(keyed(0)))
    store.dispatch()
    assert look(store, query) == []
    flush(store)
    store.dispatch()
    assert len(look(store, query)) == 1
    store.delete_topic("A")
    assert look(store, query) == []
    append(store, batch_of(keyed(1)))
    settle(store)
    assert len(look(store, query)) == 1
    store.close()


def test_store_time_in_memory_is_known_without_the_disk() -> None:
    clock = HandClock(1_700_000_000_007)
    store = open_store(MemoryFileSystem(), clock=clock)
    times: list[int] = []
    for number in range(3):
        append(store, batch_of(keyed(number)))
        prepare(store)
        settle(store)
        times.append(clock.now_ms)
        clock.now_ms += 700
    find = store.searches.time_in_memory
    assert [find("A", 0, QueueOffset(offset)) for offset in range(3)] == times
    assert find("A", 1, QueueOffset(0)) == find("B", 0, QueueOffset(0)) == 0
    far = QueueOffset(1 << 40)
    assert find("A", 0, far) == 0
    store.reads.memory_bytes = 0  # the system may have evicted all of it
    assert find("A", 0, QueueOffset(0)) == 0
    store.close()


def test_store_time_of_another_record_is_not_that_of_the_message() -> None:
    files, clock = MemoryFileSystem(), HandClock(1_700_000_000_007)
    store = open_store(files, clock=clock)
    append(store, batch_of(record("A", 0), record("A", 1)))
    settle(store)
    find = store.searches.time_in_memory
    assert find("A", 1, QueueOffset(0)) == clock.now_ms
    units = {path.parent.name: node.data for path, node in files.nodes.items() if "A" in path.parts}
    units["1"][:UNIT_BYTES] = units["0"][:UNIT_BYTES]  # a damaged unit
    assert find("A", 1, QueueOffset(0)) == 0
    store.close()
