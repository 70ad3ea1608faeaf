"""The scan offset on disk: behind it a start looks for messages without their op.

Source: none; RocketMQ asks the producers again instead.
"""

from collections.abc import Mapping
from typing import Any, Final, Self

from ternmq_broker.state.fastjson import as_int
from ternmq_model.offsets import PhysicalOffset

GROUP: Final = "CID_RMQ_SYS_TRANS"
"""Under whose name progress in the half and op topics is kept, as RocketMQ does."""

_SCAN_FROM: Final = "scanFrom"


class ScanOffset:
    """Content of `config/transactions.json`. Owned by the broker's loop."""

    def __init__(self, offset: PhysicalOffset) -> None:
        self._offset = offset

    @property
    def offset(self) -> PhysicalOffset:
        """Before it no message lies whose op message is not written. Too low is never wrong."""
        return self._offset

    def put(self, offset: PhysicalOffset) -> None:
        """Store another offset."""
        self._offset = offset

    def to_dict(self) -> dict[str, Any]:
        """Return the file's content."""
        return {_SCAN_FROM: self._offset}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """Return what the file holds.

        Raises:
            ValueError: It holds something else.
        """
        offset = as_int(value.get(_SCAN_FROM, 0), _SCAN_FROM)
        if offset < 0:
            raise ValueError(f"{_SCAN_FROM} is {offset}")
        return cls(PhysicalOffset(offset))
