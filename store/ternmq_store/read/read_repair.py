"""Repair of consume queue units that do not point to their messages, by results of a search."""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final
from weakref import WeakKeyDictionary

from ternmq_model.offsets import QueueOffset
from ternmq_store.queues.consume_queue import ConsumeQueue
from ternmq_store.queues.units import UnitRepair
from ternmq_store.read.unit_search import IN_VAIN, UnitSearchResult, searched_at, with_searched

logger = logging.getLogger(__name__)

_SEARCHED_MAX: Final = 10_000
"""Searches remembered of one queue; a forgotten one is repeated."""


class ReadRepair:
    """Repair of damaged units that reads meet. Owned by `StoreReads`.

    Attributes:
        wrong_units: Count of units that do not point to their message.
        mended_units: Count of units that were repaired from the log.
        on_repair: Called with each repair.
    """

    def __init__(self) -> None:
        self.wrong_units = 0
        self.mended_units = 0
        self.on_repair: Callable[[ConsumeQueue, UnitRepair], None] = lambda _queue, _repair: None
        self._searched: WeakKeyDictionary[ConsumeQueue, Sequence[UnitSearchResult]] = (
            WeakKeyDictionary()
        )

    def repair(self, queue: ConsumeQueue, repairs: Iterable[UnitRepair]) -> None:
        """Write the right units over damaged ones, unless they changed meanwhile."""
        for repair in repairs:
            if queue.repair(repair):
                self.wrong_units += 1
                self.mended_units += 1
                self.on_repair(queue, repair)

    def searched(self, queue: ConsumeQueue) -> Sequence[UnitSearchResult]:
        """Return the known searches for messages of a queue."""
        return self._searched.get(queue, ())

    def note_searched(self, queue: ConsumeQueue, searched: Sequence[UnitSearchResult]) -> None:
        """Remember searches for messages, and log which messages are lost."""
        known = self.searched(queue)
        for each in sorted({*searched} - {*known}):
            new = each.end - each.first - _in_vain(known, each)
            if each.place == IN_VAIN and new:
                self.wrong_units += new
                logger.error(
                    "messages skipped, the log has no valid records of them topic=%s queue=%d"
                    " from=%d to=%d unit=%s",
                    queue.topic,
                    queue.queue_id,
                    each.first,
                    each.end - 1,
                    tuple(queue.unit(QueueOffset(each.first))),
                )
            known = with_searched(known, each)
        self._searched[queue] = known[-_SEARCHED_MAX:]

    def is_in_vain(self, queue: ConsumeQueue, numbers: Sequence[int]) -> bool:
        """Return whether searches have found no record of any of these messages."""
        known = self.searched(queue)
        found = (searched_at(known, number) for number in numbers)
        return all(each is not None and each.place == IN_VAIN for each in found)


def _in_vain(known: Sequence[UnitSearchResult], found: UnitSearchResult) -> int:
    """Return how many messages of a search are known to be lost."""
    return sum(
        max(min(each.end, found.end) - max(each.first, found.first), 0)
        for each in known
        if each.place == IN_VAIN
    )
