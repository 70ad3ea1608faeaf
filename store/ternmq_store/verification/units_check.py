"""Comparison of the units of queues with verified records. For any thread."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import NamedTuple

from ternmq_model.arrays import Ints
from ternmq_model.record.batch import RecordBatch
from ternmq_store.queues.consume_queue import ConsumeQueue
from ternmq_store.queues.units import UnitRepair
from ternmq_store.read.log_source import LogSource
from ternmq_store.read.unit_search import QueueSource, UnitSearch, counted
from ternmq_store.verification.index_check import IndexCheck


class QueueCheck(NamedTuple):
    """Records of one queue."""

    queue: ConsumeQueue
    """Queue of the records; not touched here."""

    units: QueueSource
    rows: Ints
    """Rows of the batch."""


@dataclass(slots=True, kw_only=True)
class UnitsCheck:
    """The units of some records. Made and finished by `Verification`."""

    source: LogSource
    batch: RecordBatch
    queues: Sequence[QueueCheck]
    index: IndexCheck | None
    """Comparison of the index with the same records."""

    repairs: list[tuple[ConsumeQueue, list[UnitRepair]]] = field(
        default_factory=list[tuple[ConsumeQueue, list[UnitRepair]]]
    )

    def run(self) -> None:
        """Compare.

        Raises:
            OSError: The disk failed.
        """
        for queue, units, rows in self.queues:
            numbers, right = counted(self.batch, units.topic, rows, units.floor)
            with closing(units.files):
                search = UnitSearch(self.source, units)
                repairs = [*search.turn(numbers), *search.compare(numbers, right)]
            if repairs:
                self.repairs.append((queue, repairs))
        if self.index is not None:
            self.index.run()
