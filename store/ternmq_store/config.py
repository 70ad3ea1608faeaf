"""The store's settings."""

import enum
from dataclasses import dataclass

from ternmq_model.errors import ConfigError
from ternmq_model.offsets import UNIT_BYTES

_FILE_ALIGNMENT_BYTES = 4096


class FlushMode(enum.Enum):
    """When a message counts as stored."""

    SYNC = "sync"
    """Once it is on disk: it survives a loss of power."""

    ASYNC = "async"
    """Once it is in memory: it survives the end of the process, and within seconds the rest."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreConfig:
    """How a broker keeps messages on disk. The defaults are RocketMQ's."""

    commit_log_file_bytes: int = 1 << 30
    """Size of one file of the commit log. A store that exists keeps the size it was made with."""

    consume_queue_file_units: int = 300_000
    """Messages that one file of a consume queue tells of; 20 bytes each. As above, an existing
    store keeps its own."""

    flush_interval_ms: int = 500
    """Asynchronous flush: how often the log is looked at."""

    flush_least_pages: int = 4
    """Asynchronous flush: pages of 4 KiB that must be waiting, or the look is in vain."""

    flush_thorough_interval_ms: int = 10_000
    """Asynchronous flush: after so long even less is flushed."""

    sync_flush_timeout_ms: int = 5_000
    """Synchronous flush: how long a sender waits for the disk. Then it hears FLUSH_DISK_TIMEOUT."""

    checkpoint_interval_ms: int = 1_000
    """How often consume queues are flushed and the checkpoint moves. After a crash the log is
    scanned from the file that holds the checkpoint."""

    def __post_init__(self) -> None:
        size = self.commit_log_file_bytes
        if size <= 0 or size % _FILE_ALIGNMENT_BYTES:
            rule = f"must be a positive multiple of {_FILE_ALIGNMENT_BYTES}"
            raise ConfigError("store.commit_log_file_bytes", size, rule)
        for name in (
            "consume_queue_file_units",
            "flush_interval_ms",
            "flush_thorough_interval_ms",
            "sync_flush_timeout_ms",
            "checkpoint_interval_ms",
        ):
            value = getattr(self, name)
            if value <= 0:
                raise ConfigError(f"store.{name}", value, "must be > 0")
        if self.flush_least_pages < 0:
            raise ConfigError("store.flush_least_pages", self.flush_least_pages, "must be >= 0")

    @property
    def consume_queue_file_bytes(self) -> int:
        """Size of one file of a consume queue."""
        return self.consume_queue_file_units * UNIT_BYTES
