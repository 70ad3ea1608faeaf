"""The specification of a scan, and its steps. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from ternmq_model.errors import UsageError
from ternmq_model.properties import decode_properties
from ternmq_model.subscription import Subscription
from ternmq_store.columns.column_names import (
    COLUMNS,
    KEYS,
    STORED_AT,
    TAGS,
    check_columns,
)
from ternmq_store.queues.read_request import RecordFilter

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS_MAX: Final = 10_000
BATCH_BYTES_MAX: Final = 8 << 20


class ScanRange(NamedTuple):
    """Messages of one queue that follow each other."""

    topic: str
    queue_id: int
    begin: int
    end: int
    """Offset behind the last message."""


class ScanStep(NamedTuple):
    """One step of a scan."""

    batch: "pa.RecordBatch | None"
    """The messages that are wanted, if any are."""

    next_offset: int
    """Offset before which every message was read or passed over."""

    damaged: int
    """Count of damaged messages that this scan passed over so far."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScanSpec:
    """Filter, columns and batch limits of a scan. `checked` tells whether it can be done.

    Attributes:
        subscription: Tags or a condition; its topic is not compared. None = all.
        stored_from_ms: Stored then or later; 0 = any.
        stored_before_ms: Stored before; 0 = any.
        keys: Which have one of these business keys; empty = any.
        columns: What is wanted of them, in this order.
        batch_rows_max: Rows of a batch.
        batch_bytes_max: Of records and unpacked bodies in a batch; one message may be longer.
        skips_damaged: Damaged messages are passed over and counted.
    """

    subscription: Subscription | None = None
    stored_from_ms: int = 0
    stored_before_ms: int = 0
    keys: frozenset[str] = field(default=frozenset())
    columns: Sequence[str] = COLUMNS
    batch_rows_max: int = BATCH_ROWS_MAX
    batch_bytes_max: int = BATCH_BYTES_MAX
    skips_damaged: bool = False

    def checked(self) -> "ScanSpec":
        """Return the same within what is allowed.

        Raises:
            UsageError: There is no such column, or a limit is below 1.
        """
        if self.batch_rows_max < 1 or self.batch_bytes_max < 1:
            raise UsageError("a batch has at least one row and one byte")
        return replace(
            self,
            columns=check_columns(self.columns),
            batch_rows_max=min(self.batch_rows_max, BATCH_ROWS_MAX),
            batch_bytes_max=min(self.batch_bytes_max, BATCH_BYTES_MAX),
        )

    @property
    def tag_codes(self) -> frozenset[int] | None:
        """The codes of wanted tags; None = all messages."""
        return None if self.subscription is None else self.subscription.tag_codes

    @property
    def tags(self) -> frozenset[str]:
        """The wanted tags; none = all messages."""
        return frozenset() if self.subscription is None else self.subscription.tags

    @property
    def record_filter(self) -> RecordFilter | None:
        """Filter of the condition on a record's properties; None without one."""
        condition = None if self.subscription is None else self.subscription.condition
        if condition is None:
            return None
        matches = condition.matches
        return lambda data: matches(decode_properties(data))

    @property
    def columns_needed(self) -> Sequence[str]:
        """The wanted columns, and behind them those that decide what is wanted."""
        deciding = [
            *([TAGS] if self.tags else []),
            *([KEYS] if self.keys else []),
            *([STORED_AT] if self.stored_from_ms or self.stored_before_ms else []),
        ]
        return (*self.columns, *(name for name in deciding if name not in self.columns))
