"""Builders of stores for tests: small files, a clock that is set by hand, tasks run on the spot."""

from pathlib import Path

import numpy as np

from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.record.batch import RecordBatch
from ternmq_model.record.format import Record, decode_record
from ternmq_store.config import FlushMode, StoreConfig
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.layout import commit_log_folder, file_name
from ternmq_store.message_store import AppendResult, MessageStore
from ternmq_store.queues.read_request import ReadStatus
from ternmq_store.queues.units import UNIT
from ternmq_testing.memory.memory_files import MemoryFileSystem
from tests.support.records import BORN_HOST, STORE_HOST

ROOT = Path("/store")
SMALL = StoreConfig(
    commit_log_file_bytes=8192,
    consume_queue_file_units=10,
    record_checksum=False,
    index_slots=20,
    index_entries=40,
)
"""Records are stored as tests build them; what a checksum adds has tests of its own."""


class HandClock:
    """A clock that a test sets."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.now_ms: int = now_ms

    def monotonic_ms(self) -> int:
        """Return the time."""
        return self.now_ms

    def wall_ms(self) -> int:
        """Return the time."""
        return self.now_ms


def open_store(
    files: FileSystem,
    *,
    config: StoreConfig = SMALL,
    flush_mode: FlushMode = FlushMode.SYNC,
    clock: HandClock | None = None,
    root: Path = ROOT,
) -> MessageStore:
    """Open a store with small files."""
    return MessageStore.open(root, config, flush_mode, files, clock or HandClock())


def append(store: MessageStore, batch: RecordBatch) -> AppendResult:
    """Append from the usual address."""
    return store.append(batch, born_host=BORN_HOST, store_host=STORE_HOST)


def flush(store: MessageStore, now_ms: int = 1 << 60) -> bool:
    """Run the flush that is due; tell whether there was one."""
    task = store.flush_due(now_ms)
    if task is not None:
        task.run()
        store.flush_done(task)
    return task is not None


def commit(store: MessageStore) -> bool:
    """Write what waits in the pool to the log; tell whether anything did."""
    task = store.commits.due()
    if task is not None:
        task.run()
        store.commits.done(task)
    return task is not None


def checkpoint(store: MessageStore, now_ms: int = 1 << 60) -> bool:
    """Run the checkpoint that is due; tell whether there was one."""
    task = store.checkpoint_due(now_ms)
    if task is not None:
        task.run()
        store.checkpoint_done(task)
    return task is not None


def prepare(store: MessageStore, *, is_copying: bool = False) -> bool:
    """Make the next file, or fill one, when it is due; tell whether it was."""
    task = store.file_due(is_copying=is_copying)
    if task is not None:
        task.run()
        store.file_ready(task)
    return task is not None


def delete(store: MessageStore, path: Path) -> None:
    """Remove a file as the store does, by retention or with a topic."""
    store.reads.source().files.remove(path)


def settle(store: MessageStore) -> None:
    """Flush and dispatch everything."""
    flush(store)
    while store.dispatch().more:
        pass


def drain(store: MessageStore, topic: str, queue_id: int) -> list[tuple[int, bytes]]:
    """Return all messages that can be read: queue offset and record."""
    offset, end = store.queue_range(topic, queue_id)
    found: list[tuple[int, bytes]] = []
    while offset < end:
        result = store.read(topic, queue_id, offset)
        assert result.status is ReadStatus.FOUND, result
        sizes = result.record_sizes.tolist()
        assert sum(sizes) == len(result.records)
        position = 0
        for size in sizes:
            data = result.records[position : position + size]
            found.append((whole(data).header.queue_offset, data))
            position += size
        offset = QueueOffset(result.next_offset)
    return found


def whole(data: bytes) -> Record:
    """Return the record that `data` is, all of it."""
    record = decode_record(data)
    assert record is not None
    assert record.header.total_bytes == len(data)
    return record


def log_bytes(files: MemoryFileSystem, offset: int, length: int, *, file_bytes: int) -> bytes:
    """Return bytes of the log as programs see them."""
    base = offset - offset % file_bytes
    data = files.nodes[commit_log_folder(ROOT) / file_name(base)].data
    return data[offset - base : offset - base + length].tobytes()


def queue_files(files: MemoryFileSystem, root: Path = ROOT) -> dict[str, bytes]:
    """Return the content of every consume queue file, by its path below the root."""
    folder = root / "consumequeue"
    return {
        str(path.relative_to(folder)): node.data.tobytes()
        for path, node in files.nodes.items()
        if path.is_relative_to(folder)
    }


def units_in(data: bytes) -> list[tuple[PhysicalOffset, int, int]]:
    """Return the units in a consume queue's file up to the first that is not written."""
    units = np.frombuffer(data[: len(data) - len(data) % UNIT.itemsize], dtype=UNIT)
    rows = zip(
        units["offset"].tolist(), units["size"].tolist(), units["tag_code"].tolist(), strict=True
    )
    return [(PhysicalOffset(offset), size, code) for offset, size, code in rows if size]
