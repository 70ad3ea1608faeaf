"""A store that follows another one, without anything in between."""

from ternmq_model.offsets import PhysicalOffset
from ternmq_store.config import FlushMode, StoreConfig
from ternmq_store.disk.layout import commit_log_folder
from ternmq_store.message_store import MessageStore
from ternmq_store.replication.log_feed import ColdSlice
from ternmq_store.replication.log_slice import LogSlice
from ternmq_testing.memory.memory_files import MemoryFileSystem
from tests.support.stores import ROOT, SMALL, HandClock, flush, settle

PIECE_BYTES = 1024


def next_slice(master: MessageStore, start: int, bytes_max: int = PIECE_BYTES) -> LogSlice | None:
    """Return what comes next of a log, from memory or not."""
    found = master.feed.slice(PhysicalOffset(start), bytes_max)
    if isinstance(found, ColdSlice):
        found.run()
        found = master.feed.finish(found)
        assert found is not None, "its file is gone"
    return found


def follow(master: MessageStore, slave: MessageStore, *, bytes_max: int = PIECE_BYTES) -> int:
    """Let `slave` append all that `master` has and it has not; return in how many pieces."""
    count = 0
    while (piece := next_slice(master, slave.max_physical, bytes_max)) is not None:
        take(slave, piece)
        count += 1
    return count


def take(slave: MessageStore, piece: LogSlice) -> None:
    """Let `slave` append a piece."""
    slave.append_replicated(
        piece.data, piece.start, is_checksummed=piece.is_checksummed, damage=piece.damage
    )


def log_of(files: MemoryFileSystem, end: int) -> bytes:
    """Return all bytes of the log that are before `end`, as programs see them."""
    folder = commit_log_folder(ROOT)
    paths = sorted(path for path in files.nodes if path.parent == folder)
    start = int(paths[0].name) if paths else 0
    return b"".join(files.nodes[path].data.tobytes() for path in paths)[: end - start]


def open_replica(
    files: MemoryFileSystem,
    serve_to: int = 0,
    *,
    config: StoreConfig = SMALL,
    flush_mode: FlushMode = FlushMode.SYNC,
) -> MessageStore:
    """Open a store that follows another one."""
    limit = PhysicalOffset(serve_to)
    return MessageStore.open(ROOT, config, flush_mode, files, HandClock(), serve_to=limit)


def confirm(slave: MessageStore) -> None:
    """Let `slave` serve all that it has."""
    flush(slave)
    slave.confirm_limit = slave.max_physical
    settle(slave)
