"""Names of the tables that members of a broker name exchange. Pure."""

from typing import Final

DELETIONS: Final = "deletions"
"""Topics that were deleted, and the offset of the log before which their records count no more."""

TOPICS: Final = "topics"
GROUPS: Final = "groups"
FILTERS: Final = "filters"
DELAY_OFFSETS: Final = "delay_offsets"
TRANSACTIONS: Final = "transactions"
TIMER: Final = "timer"
OFFSETS: Final = "offsets"
"""Offsets of groups, with their versions: what changed, not the whole table. Those of
transactions are among `TRANSACTIONS`."""

AFTER_THE_LOG: Final = frozenset({DELAY_OFFSETS, TRANSACTIONS, TIMER})
"""Tables of the progress of deliveries: a slave applies them once its log has those deliveries.
Otherwise a slave that became the master would skip deliveries that its log does not have."""
