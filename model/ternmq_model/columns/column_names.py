"""Names of the columns of messages in Spark (docs/reference/spark.md). Pure."""

from collections.abc import Iterable, Sequence
from typing import Final

from ternmq_model.arguments import is_kind
from ternmq_model.errors import UsageError

TOPIC: Final = "topic"
BROKER_NAME: Final = "brokerName"
QUEUE_ID: Final = "queueId"
QUEUE_OFFSET: Final = "queueOffset"
MESSAGE_ID: Final = "msgId"
KEYS: Final = "keys"
TAGS: Final = "tags"
BODY: Final = "body"
PROPERTIES: Final = "properties"
BORN_AT: Final = "bornTimestamp"
STORED_AT: Final = "storeTimestamp"
BORN_HOST: Final = "bornHost"
RECONSUME_TIMES: Final = "reconsumeTimes"
SYS_FLAG: Final = "sysFlag"

COLUMNS: Final = (
    TOPIC, BROKER_NAME, QUEUE_ID, QUEUE_OFFSET, MESSAGE_ID, KEYS, TAGS, BODY, PROPERTIES, BORN_AT,
    STORED_AT, BORN_HOST, RECONSUME_TIMES, SYS_FLAG,
)  # fmt: skip
"""Names of all columns, in their order."""


def check_columns(columns: Iterable[str]) -> Sequence[str]:
    """Return `columns`, or all columns if none is named.

    Raises:
        UsageError: A column does not exist or stands twice, or `columns` is no collection.
    """
    if isinstance(columns, str) or not is_kind(columns, Iterable):
        raise UsageError(f"columns={columns!r} must be a list of names")
    names = tuple(columns)
    for index, name in enumerate(names):
        if name not in COLUMNS:
            raise UsageError(
                f"column {name!r}: does not exist; the columns are {', '.join(COLUMNS)}"
            )
        if name in names[:index]:
            raise UsageError(f"column {name!r}: is named twice")
    return names or COLUMNS
