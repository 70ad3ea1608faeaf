"""Whatever happens to the bytes of an open store: what it serves is what was stored."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from ternmq_model.offsets import QueueOffset
from ternmq_store.config import StoreConfig
from ternmq_store.message_store import MessageStore
from ternmq_store.queues.read_request import ReadLimits, ReadRequest, ReadStatus
from ternmq_store.read.cold_read import ColdRead
from ternmq_testing.memory.memory_files import MemoryFileSystem
from tests.support.records import batch_of, record
from tests.support.stores import append, open_store, settle, whole

CONFIG = StoreConfig(
    commit_log_file_bytes=16_384, consume_queue_file_units=50, index_slots=20, index_entries=40
)
QUEUES = (("A", 0), ("A", 1), ("B", 0))
COUNT = 150

Served = dict[tuple[str, int, int], bytes]


def filled() -> MemoryFileSystem:
    """Return a store that was closed, with messages of one length in several queues."""
    files = MemoryFileSystem()
    store = open_store(files, config=CONFIG)
    fill(store)
    store.close()
    return files


def fill(store: MessageStore) -> None:
    """Append the messages."""
    for number in range(COUNT):
        topic, queue_id = QUEUES[number % len(QUEUES)]
        append(store, batch_of(record(topic, queue_id, b"%04d" % number)))
    settle(store)


def drain(store: MessageStore, limits: ReadLimits) -> Served:
    """Read every queue as a consumer does, the disk included."""
    served: Served = {}
    for topic, queue_id in QUEUES:
        offset = QueueOffset(0)
        for _ in range(10 * COUNT):
            plan = store.reads.plan_read(
                ReadRequest(topic=topic, queue_id=queue_id, offset=offset, hot=limits, cold=limits)
            )
            if isinstance(plan, ColdRead):
                plan.run()
                plan = store.reads.finish(plan)
            if plan.status is ReadStatus.OFFSET_OVERFLOW_ONE:
                break
            data, position = plan.records, 0
            for size in plan.record_sizes.tolist():
                found = data[position : position + size]
                served[topic, queue_id, whole(found).header.queue_offset] = found
                position += size
            assert plan.next_offset > offset
            offset = plan.next_offset
        else:
            raise AssertionError("a reader never came to the end")
    return served


LIMITS = st.builds(ReadLimits, st.integers(1, 40), st.sampled_from((1, 1000, 100_000)))


@given(LIMITS, st.integers(0, 1 << 20))
def test_every_message_is_read_once_from_memory_or_disk(limits: ReadLimits, memory: int) -> None:
    files = filled()
    store = open_store(files, config=CONFIG)
    store.reads.memory_bytes = memory
    served = drain(store, limits)
    assert len(served) == COUNT
    store.reads.memory_bytes = 1 << 30
    assert drain(store, limits) == served


@given(st.data(), LIMITS, st.sampled_from(("appended", "on disk", "in memory")))
def test_changed_byte_of_a_consume_queue_costs_nothing(
    data: st.DataObject, limits: ReadLimits, state: str
) -> None:
    files, store, expected = in_state(state)
    path = data.draw(st.sampled_from(paths_of(files, "consumequeue")))
    node = files.nodes[path]
    position = data.draw(st.integers(0, 20 * COUNT // 3 - 1))
    before = node.data.tobytes()
    node.data[min(position, len(node.data) - 1)] ^= data.draw(st.integers(1, 255))
    assert drain(store, limits) == expected
    store.reads.memory_bytes = 0
    assert drain(store, ReadLimits(40, 100_000)) == expected
    assert node.data.tobytes() == before
    assert not store.reads.quarantine


@given(st.data(), LIMITS)
def test_changed_byte_of_the_log_loses_at_most_its_message_and_serves_no_other(
    data: st.DataObject, limits: ReadLimits
) -> None:
    files, store, expected = in_state("on disk")
    node = files.nodes[data.draw(st.sampled_from(paths_of(files, "commitlog")))]
    position = data.draw(st.integers(0, len(node.data) - 1))
    node.data[position] ^= data.draw(st.integers(1, 255))
    served = drain(store, limits)
    assert served.items() <= expected.items()
    assert len(served) >= len(expected) - 1


def in_state(state: str) -> tuple[MemoryFileSystem, MessageStore, Served]:
    """Return a store, and what it serves."""
    files = filled()
    store = open_store(files, config=CONFIG)
    expected = drain(store, ReadLimits(32, 1 << 20))
    if state == "on disk":
        store.close()
        store = open_store(files, config=CONFIG)
    elif state == "appended":
        files = MemoryFileSystem()
        store = open_store(files, config=CONFIG)
        fill(store)
        expected = drain(store, ReadLimits(32, 1 << 20))
    return files, store, expected


def paths_of(files: MemoryFileSystem, folder: str) -> list[Path]:
    """Return the files below a folder of the store."""
    return sorted(path for path in files.nodes if folder in path.parts)
