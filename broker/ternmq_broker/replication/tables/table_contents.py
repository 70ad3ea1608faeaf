"""Names of the tables that members of a broker name exchange, and rows of offsets. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from ternmq_broker.state.fastjson import as_int
from ternmq_broker.state.offset_versions import VERSION_MAX
from ternmq_broker.state.offsets import VersionedOffset
from ternmq_model.errors import IllegalName
from ternmq_model.names import check_stored_group, check_topic
from ternmq_model.offsets import QueueOffset
from ternmq_model.route import QUEUES_MAX

DELETIONS: Final = "deletions"
"""Deleted topics, and the log offsets before which their records do not count."""

TOPICS: Final = "topics"
GROUPS: Final = "groups"
FILTERS: Final = "filters"
DELAY_OFFSETS: Final = "delay_offsets"
TRANSACTIONS: Final = "transactions"
TIMER: Final = "timer"
OFFSETS: Final = "offsets"
"""Changed offsets of groups, with their versions. `TRANSACTIONS` has the offsets of
transactions."""

AFTER_THE_LOG: Final = frozenset({DELAY_OFFSETS, TRANSACTIONS, TIMER})
"""Tables of the progress of deliveries, which a slave applies once its log has the deliveries.
Otherwise a promoted slave would skip deliveries that its log lacks."""


def parse_rows(content: Mapping[str, Any]) -> Sequence[tuple[VersionedOffset, bool]]:
    """Return the offsets in a member's message, each with whether it was removed before.

    Raises:
        ValueError: A row is impossible.
    """
    rows: object = content.get("offsets", [])
    if not isinstance(rows, list):
        raise ValueError("offsets are no list")
    found: list[tuple[VersionedOffset, bool]] = []
    for row in cast("list[object]", rows):
        if not isinstance(row, list) or len(cast("list[object]", row)) != 6:
            raise ValueError(f"offset {row!r} has an unexpected form")
        topic, group, queue_id, offset, version, was_removed = cast("list[object]", row)
        if not isinstance(topic, str) or not isinstance(group, str):
            raise ValueError(f"offset {row!r} has an unexpected form")
        try:
            check_topic(topic)
            check_stored_group(group)
        except IllegalName as error:
            raise ValueError(str(error)) from None
        numbers = as_int(queue_id, "queue"), as_int(offset, "offset"), as_int(version, "version")
        if not (
            0 <= numbers[0] < QUEUES_MAX
            and -1 <= numbers[1] < 1 << 62
            and 0 <= numbers[2] <= VERSION_MAX
        ):
            raise ValueError(f"offset {row!r} is impossible")
        value = None if numbers[1] < 0 else QueueOffset(numbers[1])
        found.append(
            (VersionedOffset(group, topic, numbers[0], value, numbers[2]), was_removed == 1)
        )
    return found


def offset_row(kept: VersionedOffset, *, was_removed: bool) -> list[str | int]:
    """Return the row of an offset; the offset of a removed one is -1."""
    offset = -1 if kept.offset is None else kept.offset
    return [kept.topic, kept.group, kept.queue_id, offset, kept.version, int(was_removed)]
