"""Repair of consume queue units that do not point to their messages, by results of a search."""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final
from weakref import WeakKeyDictionary

from ternmq_model.offsets import QueueOffset
from ternmq_store.queues.consume_queue import ConsumeQueue
from ternmq_store.queues.units import UnitRepair
from ternmq_store.read.unit_search import IN_VAIN, UnitSearchResult, sought_at, with_sought

logger = logging.getLogger(__name__)

_SOUGHT_MAX: Final = 10_000
"""Searches remembered of one queue; what others looked for is looked for again."""


class ReadRepair:
    """Repair of damaged units that reads meet. Owned by `StoreReads`.

    Attributes:
        wrong_units: How many units were met that do not tell of their message.
        mended_units: How many of them were mended from the log.
        on_mended: Told of each of these.
    """

    def __init__(self) -> None:
        self.wrong_units = 0
        self.mended_units = 0
        self.on_mended: Callable[[ConsumeQueue, UnitRepair], None] = lambda _queue, _mend: None
        self._sought: WeakKeyDictionary[ConsumeQueue, Sequence[UnitSearchResult]] = (
            WeakKeyDictionary()
        )

    def mend(self, queue: ConsumeQueue, mends: Iterable[UnitRepair]) -> None:
        """Write the right units of messages, where the damaged ones are there still."""
        for mend in mends:
            if queue.repair(mend):
                self.wrong_units += 1
                self.mended_units += 1
                self.on_mended(queue, mend)

    def sought(self, queue: ConsumeQueue) -> Sequence[UnitSearchResult]:
        """Return which messages were looked for."""
        return self._sought.get(queue, ())

    def note_sought(self, queue: ConsumeQueue, sought: Sequence[UnitSearchResult]) -> None:
        """Remember which messages were looked for, and say which of them are lost."""
        known = self.sought(queue)
        for each in sorted({*sought} - {*known}):
            new = each.end - each.first - _in_vain(known, each)
            if each.place == IN_VAIN and new:
                self.wrong_units += new
                logger.error(
                    "messages passed over, the log has no good record of them topic=%s queue=%d"
                    " from=%d to=%d unit=%s",
                    *(queue.topic, queue.queue_id, each.first, each.end - 1),
                    tuple(queue.unit(QueueOffset(each.first))),
                )
            known = with_sought(known, each)
        self._sought[queue] = known[-_SOUGHT_MAX:]

    def is_in_vain(self, queue: ConsumeQueue, numbers: Sequence[int]) -> bool:
        """Return whether the records of all these messages were looked for and are not there."""
        known = self.sought(queue)
        found = (sought_at(known, number) for number in numbers)
        return all(each is not None and each.place == IN_VAIN for each in found)


def _in_vain(known: Sequence[UnitSearchResult], wanted: UnitSearchResult) -> int:
    """Return how many of the wanted messages are known to be lost."""
    return sum(
        max(min(each.end, wanted.end) - max(each.first, wanted.first), 0)
        for each in known
        if each.place == IN_VAIN
    )
