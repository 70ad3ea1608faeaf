"""The scan offset on disk: a start searches the log behind it for messages without an op.

Source: none; RocketMQ asks the producers again instead.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from ternmq_broker.state.fastjson import as_int
from ternmq_model.offsets import PhysicalOffset

GROUP: Final = "CID_RMQ_SYS_TRANS"
"""RocketMQ's group of the committed offsets of the half and op topics."""

_SCAN_FROM: Final = "scanFrom"


@dataclass(slots=True)
class ScanOffset:
    """Content of `config/transactions.json`. Owned by the broker's loop.

    Attributes:
        offset: Log offset before which every message has its op message. A lower one is never
            wrong.
    """

    offset: PhysicalOffset

    def to_dict(self) -> dict[str, Any]:
        """Return the content of the file."""
        return {_SCAN_FROM: self.offset}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """Return the scan offset of a file.

        Raises:
            ValueError: The number is negative or no number.
        """
        offset = as_int(value.get(_SCAN_FROM, 0), _SCAN_FROM)
        if offset < 0:
            raise ValueError(f"{_SCAN_FROM} is {offset}")
        return cls(PhysicalOffset(offset))
