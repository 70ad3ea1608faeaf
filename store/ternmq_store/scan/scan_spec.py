"""Specification of a scan, and its steps. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from ternmq_model.columns.column_names import (
    COLUMNS,
    KEYS,
    STORED_AT,
    TAGS,
    check_columns,
)
from ternmq_model.errors import UsageError
from ternmq_model.properties import decode_properties
from ternmq_model.subscription import Subscription
from ternmq_store.queues.read_request import RecordFilter

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS_MAX: Final = 10_000
BATCH_BYTES_MAX: Final = 8 << 20


class ScanRange(NamedTuple):
    """Range of one queue."""

    topic: str
    queue_id: int
    begin: int
    end: int
    """Offset behind the last message."""


class ScanStep(NamedTuple):
    """One step of a scan."""

    batch: "pa.RecordBatch | None"
    """Matching messages; None = there are none."""

    next_offset: int
    """Offset before which every message was inspected."""

    damaged: int
    """Count of damaged messages that the scan has skipped so far."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScanSpec:
    """Filter, columns and batch limits of a scan. `checked` validates them.

    Attributes:
        subscription: Tags or a condition; its topic is not compared. None = all messages.
        stored_from_ms: Least store time, Unix milliseconds; 0 = any.
        stored_before_ms: Store time before which messages count, Unix milliseconds; 0 = any.
        keys: Business keys of which a message must have one; empty = any message.
        columns: Names of the columns, in this order.
        batch_rows_max: Most rows of a batch.
        batch_bytes_max: Most bytes of records and unpacked bodies in a batch; one message may be
            longer.
        skips_damaged: True = damaged messages are skipped and counted; else the first is an error.
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
        """Return the specification with its columns checked and its limits lowered to the allowed.

        Raises:
            UsageError: A column is unknown, or a limit is below 1.
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
        """Codes of the tags; None = all messages."""
        return None if self.subscription is None else self.subscription.tag_codes

    @property
    def tags(self) -> frozenset[str]:
        """Tags of the subscription; empty = all messages."""
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
        """Columns of the result, and behind them those that the filter reads."""
        deciding = [
            *([TAGS] if self.tags else []),
            *([KEYS] if self.keys else []),
            *([STORED_AT] if self.stored_from_ms or self.stored_before_ms else []),
        ]
        return (*self.columns, *(name for name in deciding if name not in self.columns))
