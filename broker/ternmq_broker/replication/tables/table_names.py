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
"""Tables that say what was done with messages: they count once the log has what was done. A slave
that took them sooner, and became the master, would never do what its log has no trace of."""
