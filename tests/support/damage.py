"""Stores that something happened to, and what may still be read of them."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from ternmq_model.offsets import QueueOffset
from ternmq_model.properties import decode_properties
from ternmq_store.config import StoreConfig
from ternmq_store.disk.layout import commit_log_folder, file_name
from ternmq_store.message_store import MessageStore
from ternmq_store.query.key_search import KeyQuery
from ternmq_store.queues.read_request import ReadLimits, ReadRequest, ReadResult, ReadStatus
from ternmq_testing.memory.memory_files import MemoryFileSystem, Node
from tests.support.records import batch_of, record
from tests.support.stores import ROOT, SMALL, append, checkpoint, open_store, settle, whole

Key = tuple[str, int, int]
"""Topic, queue, offset."""

CONFIG: StoreConfig = replace(SMALL, commit_log_file_bytes=4096, record_checksum=True)

_LIMITS = ReadLimits(32, 262_144)


def readable(store: MessageStore) -> dict[Key, bytes]:
    """Return every message that is served, as a broker reads it: what is cold is verified."""
    found: dict[Key, bytes] = {}
    for topic, queue_id in store.queues():
        offset, end = store.queue_range(topic, queue_id)
        while offset < end:
            wanted = ReadRequest(
                topic=topic, queue_id=queue_id, offset=offset, hot=_LIMITS, cold=_LIMITS
            )
            result = _read(store, wanted)
            position = 0
            for size in result.record_sizes.tolist():
                data = bytes(result.records[position : position + size])
                one = whole(data)
                assert (one.topic.decode(), one.header.queue_id) == (topic, queue_id)
                found[topic, queue_id, one.header.queue_offset] = data
                position += size
            assert result.next_offset > offset, result
            offset = QueueOffset(result.next_offset)
    return found


def _read(store: MessageStore, request: ReadRequest) -> ReadResult:
    plan = store.reads.plan_read(request)
    if not isinstance(plan, ReadResult):
        plan.run()
        plan = store.reads.finish(plan)
    assert plan.status in {
        ReadStatus.FOUND,
        ReadStatus.NO_MATCHED_MESSAGE,
        ReadStatus.MESSAGE_WAS_REMOVING,
        ReadStatus.OFFSET_FOUND_NULL,
    }
    return plan


def check_index(store: MessageStore, served: Mapping[Key, bytes]) -> None:
    """Hold the index to finding every message that is served and has a key, and nothing else."""
    of_key: dict[tuple[str, str], set[bytes]] = defaultdict(set)
    for (topic, _, _), data in served.items():
        for key in decode_properties(whole(data).properties).get("KEYS", "").split():
            of_key[topic, key].add(data)
    for (topic, key), expected in of_key.items():
        found = store.searches.by_key(KeyQuery(topics=(topic,), key=key)).run()
        assert set(found) == expected, f"{topic} {key}"
        assert len(found) == len(expected)


def filled(*, is_clean: bool, count: int = 60, body_bytes: int = 60) -> MemoryFileSystem:
    """Return the files of a store with messages in three queues, stopped cleanly or killed."""
    files = MemoryFileSystem()
    store = open_store(files, config=CONFIG)
    for number in range(count):
        topic, queue_id = (("A", 0), ("A", 1), ("B", 0))[number % 3]
        body = bytes((number + 1,)) * body_bytes
        append(
            store,
            batch_of(record(topic, queue_id, body, {"TAGS": "t", "KEYS": f"k{number % 7} all"})),
        )
        if number == count // 2:
            settle(store)
            assert checkpoint(store, 1 << 50)
    settle(store)
    assert checkpoint(store, 1 << 60)
    if is_clean:
        store.close()
    files.locks.clear()
    return files


def blank_record(files: MemoryFileSystem, data: bytes) -> None:
    """Let a record of a store with `CONFIG` be zeros on the disk."""
    at, size = whole(data).header.physical_offset, len(data)
    base = at - at % CONFIG.commit_log_file_bytes
    files.nodes[commit_log_folder(ROOT) / file_name(base)].data[at - base : at - base + size] = 0


def copied(files: MemoryFileSystem) -> MemoryFileSystem:
    """Return the same files once more."""
    copy = MemoryFileSystem()
    copy.made_folders = set(files.made_folders)
    for path, node in files.nodes.items():
        copy.nodes[path] = Node(node.data.copy(), real_bytes=node.real_bytes)
    return copy


def ends(store: MessageStore) -> Mapping[tuple[str, int], int]:
    """Return the offset that the next message of each queue gets."""
    return {key: store.next_offset(*key) for key in store.queues()}
