"""Mending consume queues whose units do not tell of their messages, by what a search found."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final
from weakref import WeakKeyDictionary

from ternmq_model.offsets import QueueOffset
from ternmq_store.queues.consume_queue import ConsumeQueue
from ternmq_store.queues.units import Mend
from ternmq_store.reading.unit_search import IN_VAIN
from ternmq_store.recovery.session import Session

logger = logging.getLogger(__name__)

_SOUGHT_MAX: Final = 10_000
"""Of one queue, messages remembered whose records were looked for; others are looked for again."""


class UnitMending:
    """What becomes of damaged units. Owned by `Reads`.

    Args:
        session: Notes that queues are wrong, where the log does not tell what is right.

    Attributes:
        wrong_units: How many units were met that do not tell of their message.
        mended_units: How many of them were mended from the log.
        on_mended: Told of each of these.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self.wrong_units = 0
        self.mended_units = 0
        self.on_mended: Callable[[ConsumeQueue, Mend], None] = lambda _queue, _mend: None
        self._sought: WeakKeyDictionary[ConsumeQueue, dict[int, int]] = WeakKeyDictionary()

    def mend(self, queue: ConsumeQueue, mends: Iterable[Mend]) -> None:
        """Write the right units of messages, where the damaged ones are there still."""
        for mend in mends:
            if queue.mend(mend):
                self.wrong_units += 1
                self.mended_units += 1
                self.on_mended(queue, mend)

    def sought(self, queue: ConsumeQueue) -> Mapping[int, int]:
        """Return up to which places of the log the records of messages were looked for: a copy."""
        return dict(self._sought.get(queue, ()))

    def note_sought(self, queue: ConsumeQueue, sought: Mapping[int, int]) -> None:
        """Remember up to where records were looked for that were not found."""
        known = self._sought.setdefault(queue, {}) if sought else {}
        for number, place in sought.items():
            if place == IN_VAIN and known.get(number) != IN_VAIN:
                self.wrong_units += 1
                self._session.queues_wrong = True
                logger.error(
                    "message passed over, the log has no good record of it; the next start builds"
                    " the queues anew topic=%s queue=%d offset=%d unit=%s",
                    *(queue.topic, queue.queue_id, number, tuple(queue.unit(QueueOffset(number)))),
                )
            if len(known) < _SOUGHT_MAX:
                known[number] = place

    def is_in_vain(self, queue: ConsumeQueue, numbers: Sequence[int]) -> bool:
        """Tell whether the records of all these messages were looked for and are not there."""
        known = self._sought.get(queue, {}) if numbers else {}
        return all(known.get(number) == IN_VAIN for number in numbers)
