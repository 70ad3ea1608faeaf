"""Properties that rows of the sink do not choose, and those that a copy of a message leaves out.

Pure.
"""

from typing import Final

from ternmq_model import properties as names
from ternmq_pipeline.sink import identity

RESERVED_PROPERTIES: Final[frozenset[str]] = (
    names.RESERVED | identity.NAMES | {names.CHECK_IMMUNITY_S, names.SHARDING_KEY}
)
"""Names with a meaning of their own: set by columns, by clients, by brokers or by the sink."""

NOT_COPIED: Final[frozenset[str]] = RESERVED_PROPERTIES | {
    names.TRANSACTION_ID,
    names.DLQ_ORIGIN_TOPIC,
    names.DLQ_ORIGIN_MESSAGE_ID,
}
"""Names of what a message says of its own sending and its own end: a copy has its own. Tags,
keys and sharding key are handed on in columns."""
