"""Properties that rows cannot set, and properties that copies of messages omit. Pure."""

from typing import Final

from ternmq_model import properties as names
from ternmq_pipeline.sink import identity

RESERVED_PROPERTIES: Final[frozenset[str]] = (
    names.RESERVED | identity.NAMES | {names.CHECK_IMMUNITY_S, names.SHARDING_KEY}
)
"""Names of properties that columns, clients, brokers or the sink set."""

NOT_COPIED: Final[frozenset[str]] = RESERVED_PROPERTIES | {
    names.TRANSACTION_ID,
    names.DLQ_ORIGIN_TOPIC,
    names.DLQ_ORIGIN_MESSAGE_ID,
}
"""Names of properties that belong to one sending of a message, so a copy omits them. Columns of
their own carry tags, keys and the sharding key."""
