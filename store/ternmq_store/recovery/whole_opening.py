"""Opening all of a store, on a full disk too."""

from pathlib import Path

from ternmq_model.clock import Clock
from ternmq_store.config import StoreConfig
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.reserve import keep_reserve
from ternmq_store.recovery.index_opening import open_index
from ternmq_store.recovery.opening import OpenedFiles, open_files


def open_whole(files: FileSystem, root: Path, config: StoreConfig, clock: Clock) -> OpenedFiles:
    """Load and recover log, queues and index, which lie in `root`; it may be empty.

    On a full disk `open_files` takes the space that was kept for it. It is kept again before the
    log's file gets what is left.

    Raises:
        StoreError: The log's files are not those of one log; nothing was changed.
        OSError: A file could not be read or written; opening again starts anew.
    """
    opened = open_files(files, root, config, now_ms=clock.wall_ms())
    opened = open_index(files, root, config, clock, opened)
    keep_reserve(files, root)
    opened.log.make_room()
    return opened
