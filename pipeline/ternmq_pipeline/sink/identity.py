"""Identity of a message: its row, partition and batch; and the reserved properties. Pure.

A batch that Spark repeats is delivered again. Consumers recognise repeated messages by these
properties, which every message of the sink has.
"""

from dataclasses import dataclass
from typing import Final

from ternmq_model import properties
from ternmq_model.errors import UsageError

QUERY: Final = "SPARK_QUERY"
"""Property with the streaming query's id, which its checkpoint holds; random for a batch write."""

BATCH: Final = "SPARK_BATCH"
"""Property with the number of the micro-batch; 0 for a batch write."""

PARTITION: Final = "SPARK_PARTITION"
ROW: Final = "SPARK_ROW"
"""Property with the position of the row in its partition, from 0."""

ATTEMPT: Final = "SPARK_ATTEMPT"
"""Property with the attempt at the partition. It is random, so a restart of the driver changes
it."""

NAMES: Final = frozenset({QUERY, BATCH, PARTITION, ATTEMPT, ROW})

RESERVED_PROPERTIES: Final[frozenset[str]] = (
    properties.RESERVED | NAMES | {properties.CHECK_IMMUNITY_S, properties.SHARDING_KEY}
)
"""Names of properties that columns, clients, brokers or the sink set."""

NOT_COPIED: Final[frozenset[str]] = properties.NOT_COPIED | NAMES
"""Names of properties that a copy of a read message omits."""


@dataclass(frozen=True, slots=True)
class BatchIdentity:
    """Identity of a batch, which is committed or aborted atomically."""

    query: str
    """Id of the query: printable ASCII without blanks and slashes."""

    batch: int
    """Number of the micro-batch; 0 for a batch write."""

    def __post_init__(self) -> None:
        if not self.query or not self.query.isascii() or not self.query.isprintable():
            raise UsageError(f"query id {self.query!r}: must be printable ASCII")
        if self.batch < 0 or " " in self.query or "/" in self.query:
            raise UsageError(f"batch {self.batch} of query {self.query!r}: is no valid number")

    @property
    def staged_for(self) -> str:
        """Name of the batch in the properties of its half messages."""
        return f"{self.query}/{self.batch}"

    @property
    def rollback_command(self) -> str:
        """Command that rolls back the messages of the batch that are still staged."""
        return f"ternmq transaction rollback --query {self.query} --batch {self.batch}"


@dataclass(frozen=True, slots=True)
class PartitionAttempt:
    """One attempt of a task at one partition of a batch."""

    of: BatchIdentity
    partition: int
    attempt: str

    def __str__(self) -> str:
        return f"partition {self.partition} of batch {self.of.batch}"

    def properties(self) -> dict[str, str]:
        """Return the properties of every message of the attempt, without `ROW`."""
        return {
            QUERY: self.of.query,
            BATCH: str(self.of.batch),
            PARTITION: str(self.partition),
            ATTEMPT: self.attempt,
        }
