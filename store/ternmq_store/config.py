"""The store's settings."""

import enum
from dataclasses import dataclass
from typing import Final

from ternmq_model.arguments import check_range
from ternmq_model.errors import ConfigError
from ternmq_model.offsets import UNIT_BYTES
from ternmq_store.index.index_format import IndexSizes
from ternmq_store.queues.ext_units import EXT_UNIT_BYTES_LEAST

_FILE_ALIGNMENT_BYTES = 4096
_MAP_BYTES_MAX: Final = (1 << 31) - 1
"""RocketMQ cannot map a longer file."""
_DAY_HOURS: Final = 24
RESERVED_HOURS_MAX: Final = 876_000
"""A hundred years."""

DISK_PERCENTS: Final = {
    "disk_clean_percent": (50, 85),
    "disk_force_percent": (70, 85),
    "disk_full_percent": (85, 90),
}
"""Least and most of the settings of the disk's use. Above 90 % the log gets no further file."""

_BOUNDS: Final = {
    "consume_queue_ext_file_bytes": (1 << 16, _MAP_BYTES_MAX),
    "consume_queue_ext_bit_map_bits": (0, 262_000),
    "file_reserved_hours": (0, RESERVED_HOURS_MAX),
    "forced_reserved_hours": (0, RESERVED_HOURS_MAX),
    "clean_interval_ms": (100, 3_600_000),
    "clean_delay_ms": (0, 86_400_000),
    "delete_files_max": (1, 1_000),
    "delete_pause_ms": (0, 60_000),
    **DISK_PERCENTS,
    "read_memory_bytes_max": (1, 4 << 20),
    "read_memory_messages_max": (1, 65_536),
    "read_disk_bytes_max": (1, 4 << 20),
    "read_disk_messages_max": (1, 65_536),
    "access_message_in_memory_max_ratio": (0, 100),
    "verify_rate_bytes": (0, 1 << 30),
}
"""Least and most of settings."""


class FlushMode(enum.Enum):
    """Rule when a message counts as stored."""

    SYNC = "sync"
    """Stored once it is on the disk: a message survives a loss of power."""

    ASYNC = "async"
    """Stored once it is in memory: a message survives the end of the process, and after some
    seconds a loss of power."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreConfig:
    """Settings of a store. The defaults are RocketMQ's."""

    commit_log_file_bytes: int = 1 << 30
    """Size of one file of the commit log. An existing store keeps its size."""

    consume_queue_file_units: int = 300_000
    """Messages in one file of a consume queue, 20 bytes each. An existing store keeps its count."""

    consume_queue_ext_enabled: bool = False
    """Extension files beside the consume queues. They hold tag code and store time of each message
    and, once a group filters by properties, a bit map of the groups that may match it."""

    consume_queue_ext_file_bytes: int = 48 << 20
    """Size of one extension file of a consume queue. Queues with such files keep their size."""

    consume_queue_ext_bit_map_bits: int = 64
    """Bits reserved for the bit map of each message in an extension file. Longer bit maps are
    stored, too."""

    record_checksum: bool = True
    """Checksum of the whole record at the end of each record, as the property `__CRC32#`, which
    RocketMQ shows as one more property. RocketMQ's default is off."""

    index_enabled: bool = True
    """Index of messages by their unique key and each of their keys. Off saves time and disk space;
    messages stored meanwhile are found by no key."""

    index_slots: int = 5_000_000
    """Chains in one file of the index, 4 bytes each, which are allocated at once. Existing files
    keep their number."""

    index_entries: int = 20_000_000
    """Keys in one file of the index, one more than it holds, 20 bytes each. Existing files keep
    their number."""

    transient_pool_enabled: bool = False
    """Transient pool, for asynchronous flush alone: appended records wait in memory until another
    thread has written them to the log; then they are acknowledged and read."""

    transient_pool_bytes: int = 64 << 20
    """Limit of bytes in the transient pool. Beyond the limit a send waits for space."""

    transient_pool_fails_fast: bool = False
    """Refusal, as busy, of a send beyond `transient_pool_bytes`. Off = the send waits for space."""

    flush_interval_ms: int = 500
    """Interval between checks whether an asynchronous flush is due, ms."""

    flush_least_pages: int = 4
    """Least number of 4 KiB pages that one asynchronous flush writes."""

    flush_thorough_interval_ms: int = 10_000
    """Time after which an asynchronous flush writes fewer pages than `flush_least_pages`, ms."""

    sync_flush_timeout_ms: int = 5_000
    """Longest wait of a send for a synchronous flush, ms. The reply is then FLUSH_DISK_TIMEOUT."""

    checkpoint_interval_ms: int = 1_000
    """Interval between flushes of consume queues and index, which move the checkpoint, ms. After a
    crash the log is read from there on."""

    file_reserved_hours: int = 72
    """Age of its newest message at which a file of the log expires, hours. Topics may have a
    retention of their own."""

    delete_when: str = "04"
    """Hours of the day, in local time, at which expired files are deleted: `04`, or `04;16`."""

    clean_interval_ms: int = 10_000
    """Interval between retention scans, ms."""

    clean_delay_ms: int = 60_000
    """Time after its start in which a store deletes nothing, ms."""

    delete_files_max: int = 10
    """Limit of log files that one retention scan deletes."""

    delete_pause_ms: int = 100
    """Pause between two deletions of files, ms, so that the disk serves others too."""

    clean_forcibly: bool = True
    """Deletion of the oldest files, expired or not, on a disk at `disk_force_percent`."""

    forced_reserved_hours: int = 4
    """Age of its newest message at which a file of the log is deleted on a disk at
    `disk_force_percent`, hours. A younger file is deleted only when the disk is at
    `disk_full_percent`, or lacks space for the log's next file. A running broker cannot change the
    setting, nor make `file_reserved_hours` less than it."""

    disk_clean_percent: int = 75
    """Use of the disk from which expired files are deleted at once, at any hour; 50 to 85,
    and no more than `disk_force_percent`."""

    disk_force_percent: int = 85
    """Use of the disk from which the oldest files are deleted, expired or not, once they are
    `forced_reserved_hours` old; 70 to 85."""

    disk_full_percent: int = 90
    """Use of the disk from which messages are refused until it is lower, and the oldest files
    are deleted, regardless of age; 85 to 90."""

    read_memory_bytes_max: int = 262_144
    """Limit of bytes that one read returns from memory; a longer message goes alone. A pull is one
    read. A stream of pulls takes several for one reply, which its credit and the size of a reply
    bound."""

    read_memory_messages_max: int = 32
    """Limit of messages that one read returns from memory."""

    read_disk_bytes_max: int = 65_536
    """Limit of bytes that one read returns from the disk; a longer message goes alone."""

    read_disk_messages_max: int = 8
    """Limit of messages that one read returns from the disk."""

    access_message_in_memory_max_ratio: int = 40
    """Part of `broker.memory_bytes`, in percent, in which the newest messages are taken to be; what
    is older is read from the disk, beside the loop. 0 to 100."""

    read_ahead_enabled: bool = True
    """Hints to the disk about the bytes that a reader far behind needs next."""

    verify_rate_bytes: int = 4 << 20
    """Speed of the background verification, in bytes of the log a second: each record is checked,
    and compared with consume queues and index, which are repaired from it. 0 = no verification."""

    disk_fall_recorded: bool = True
    """Record of the lag of each group at its reads, for `ternmq broker status`."""

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
            "transient_pool_bytes",
        ):
            value = getattr(self, name)
            if value <= 0:
                raise ConfigError(f"store.{name}", value, "must be > 0")
        self._check_index()
        if self.flush_least_pages < 0:
            raise ConfigError("store.flush_least_pages", self.flush_least_pages, "must be >= 0")
        for name, (low, high) in _BOUNDS.items():
            check_range(f"store.{name}", getattr(self, name), low, high)
        self._check_retention()

    def _check_index(self) -> None:
        for name in ("index_slots", "index_entries"):
            value = getattr(self, name)
            if value < 2:
                raise ConfigError(f"store.{name}", value, "must be >= 2")
        sizes = IndexSizes(self.index_slots, self.index_entries)
        if sizes.file_bytes > _MAP_BYTES_MAX:
            rule = f"is too many: a file would have {sizes.file_bytes} bytes, over 2 GiB"
            raise ConfigError("store.index_entries", self.index_entries, rule)

    def _check_retention(self) -> None:
        if self.disk_clean_percent > self.disk_force_percent:
            rule = (
                f"must be >= store.disk_clean_percent, {self.disk_clean_percent}: lower that, too"
            )
            raise ConfigError("store.disk_force_percent", self.disk_force_percent, rule)
        hours = self.delete_when.split(";")
        if not all(hour.isascii() and hour.isdigit() and int(hour) < _DAY_HOURS for hour in hours):
            rule = "must be hours, 00 to 23, with ; between them"
            raise ConfigError("store.delete_when", self.delete_when, rule)

    def check_flush_mode(self, flush_mode: FlushMode) -> None:
        """Refuse a pool where it would only delay the sync that every sender waits for.

        Raises:
            ConfigError: There is a pool, and the flush is synchronous.
        """
        if self.transient_pool_enabled and flush_mode is not FlushMode.ASYNC:
            rule = "needs broker.flush_mode=async"
            raise ConfigError("store.transient_pool_enabled", self.transient_pool_enabled, rule)

    @property
    def delete_hours(self) -> frozenset[int]:
        """The hours of the day at which expired files are deleted."""
        return frozenset(int(hour) for hour in self.delete_when.split(";"))

    @property
    def consume_queue_ext_unit_bytes(self) -> int:
        """Room to reserve beside each unit of a consume queue; 0 = nothing is kept there."""
        bit_map_bytes = -(-self.consume_queue_ext_bit_map_bits // 8)
        return EXT_UNIT_BYTES_LEAST + bit_map_bytes if self.consume_queue_ext_enabled else 0

    @property
    def consume_queue_file_bytes(self) -> int:
        """Size of one file of a consume queue."""
        return self.consume_queue_file_units * UNIT_BYTES
