"""Offsets up to which each delay level is delivered. Pure.

Source: RocketMQ `ScheduleMessageService`.
"""

from collections.abc import Mapping
from typing import Any, Final, Self

from ternmq_broker.state.fastjson import as_int, version_from_dict, version_to_dict
from ternmq_model.data_version import DataVersion
from ternmq_model.json_checksum import as_object
from ternmq_model.offsets import PhysicalOffset, QueueOffset

_UPDATES_PER_VERSION: Final = 200
_LOOK_FROM: Final = "ternmqLookFrom"


class DelayOffsets:
    """The next offset to deliver, by delay level; level `n` has queue `n - 1` of its topic.

    Owned by the broker's loop. Other members of the file are written back unchanged.

    Attributes:
        changes: Number of changes; a save is due when it differs from the saved one.
        search_from: Log offset before which the log has no delivery beyond the offsets; None = not
            known.
    """

    def __init__(self, version: DataVersion) -> None:
        self._version = version
        self._offsets: dict[int, QueueOffset] = {}
        self._extras: dict[str, Any] = {}
        self.changes = 0
        self.search_from: PhysicalOffset | None = None

    def get(self, level: int) -> QueueOffset:
        """Return the next offset to deliver at `level`; 0 before the first delivery."""
        return self._offsets.get(level, QueueOffset(0))

    def put(self, level: int, offset: QueueOffset, *, now_ms: int) -> None:
        """Store the next offset to deliver at `level`.

        Args:
            level: From 1 on.
            offset: Not negative.
            now_ms: Wall clock.
        """
        if self._offsets.get(level) == offset:
            return
        self._offsets[level] = offset
        self.changes += 1
        if self.changes % _UPDATES_PER_VERSION == 0:
            self._version = self._version.next(now_ms)

    def put_search_start(self, begin: PhysicalOffset) -> None:
        """Store the log offset from which deliveries beyond the offsets are searched."""
        self.search_from = begin
        self.changes += 1

    def forget(self) -> None:
        """Remove the offsets of all levels: all messages in their queues count as undelivered."""
        self.changes += bool(self._offsets)
        self._offsets.clear()
        self.search_from = None

    def take_over(self, other: Self) -> None:
        """Replace the content by that of another table, including the version.

        Args:
            other: Table of the master, which must not be used afterwards.
        """
        mine = (self._version, self._offsets, self.search_from)
        self.changes += mine != (other._version, other._offsets, other.search_from)
        self._version, self._offsets, self._extras = other._version, other._offsets, other._extras
        self.search_from = other.search_from

    def to_dict(self) -> dict[str, Any]:
        """Return the content of `delayOffset.json`."""
        table = {str(level): offset for level, offset in sorted(self._offsets.items())}
        version = version_to_dict(self._version)
        look = {} if self.search_from is None else {_LOOK_FROM: self.search_from}
        return {**self._extras, **look, "dataVersion": version, "offsetTable": table}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any], now_ms: int) -> Self:
        """Return the table in the content of `delayOffset.json`.

        Raises:
            ValueError: A member has another type. An unknown offset is never taken for 0.
        """
        table = cls(version_from_dict(value.get("dataVersion"), now_ms=now_ms))
        for level, offset in as_object(value.get("offsetTable", {}), "offsetTable").items():
            number = as_int(offset, f"offset of level {level}")
            if int(level) < 1 or number < 0:
                raise ValueError(f"level {level} has the offset {number}")
            table._offsets[int(level)] = QueueOffset(number)
        if _LOOK_FROM in value:
            table.search_from = PhysicalOffset(max(as_int(value[_LOOK_FROM], _LOOK_FROM), 0))
        known = ("dataVersion", "offsetTable", _LOOK_FROM)
        table._extras = {name: value[name] for name in value if name not in known}
        return table
