"""Results of `send_columns`: an array for each field."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from ternmq_model.arrays import Ints
from ternmq_model.errors import TernError
from ternmq_model.unique_key_columns import KeyColumn
from ternmq_producer.batch.bulk import Bulk


@dataclass(frozen=True, slots=True, eq=False)
class ColumnResults:
    """Results of the messages of one `send_columns`, in their order."""

    statuses: Ints
    """Value of the `SendStatus` of each message; -1 = not stored, or not known to be."""

    broker_names: tuple[str, ...]
    """Names of the brokers that stored messages."""

    brokers: Ints
    """Index of each message's broker in `broker_names`; -1 = not stored."""

    queue_ids: Ints
    """Queue id of each message; -1 = not stored."""

    queue_offsets: Ints
    """Queue offset of each message; -1 = not stored."""

    physical_offsets: Ints
    """Offset of each message in the broker's log; -1 = not stored."""

    unique_keys: KeyColumn
    """Unique key of each message, in the form on disk."""

    errors: Mapping[int, TernError]
    """Errors of the messages that were refused or failed, by their position."""

    @classmethod
    def of(cls, bulk: Bulk) -> Self:
        """Return the results of complete answers."""
        queues = [queue for queue, _ in bulk.places]
        names = tuple(dict.fromkeys(queue.broker_name for queue in queues))
        # The last one is for index -1.
        brokers = np.array([*(names.index(queue.broker_name) for queue in queues), -1])
        queue_ids = np.array([*(queue.queue_id for queue in queues), -1])
        is_stored = bulk.place_indices >= 0
        return cls(
            np.where(is_stored, bulk.statuses.astype(np.int64), -1),
            names,
            brokers[bulk.place_indices],
            queue_ids[bulk.place_indices],
            bulk.queue_offsets,
            bulk.physical_offsets,
            bulk.unique_keys,
            dict(sorted(bulk.errors.items())),
        )

    def __len__(self) -> int:
        return len(self.statuses)

    def __repr__(self) -> str:
        return f"ColumnResults({len(self)} messages, {len(self.errors)} errors)"


class SendColumnsFailed(TernError):
    """Failure of some messages of `send_columns`, which were not stored, or may not have been.

    Attributes:
        results: Results of all messages; `results.errors` has the reasons.
    """

    def __init__(self, results: ColumnResults) -> None:
        errors = list(results.errors.values())
        super().__init__(f"{len(errors)} of {len(results)} messages failed; the first: {errors[0]}")
        self.results = results
        self.fault = errors[0].fault
        self.retryable = all(error.retryable for error in errors)
        self.may_have_happened = any(error.may_have_happened for error in errors)
