"""The account of what was consumed: nothing lost, nothing twice, every aircraft in order. Pure."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple


class Consumed(NamedTuple):
    """One message as a consumer reported it, in the order of its work."""

    queue_id: int
    offset: int
    tail: str
    carrier: str
    departure_delay: float | None


@dataclass(slots=True)
class Carrier:
    """Counts of one carrier's flights."""

    flights: int = 0
    delayed: int = 0
    delay_minutes: float = 0.0

    @property
    def mean_delay(self) -> float | None:
        """Mean departure delay in minutes of the flights that have one."""
        return self.delay_minutes / self.delayed if self.delayed else None


@dataclass(slots=True)
class Ledger:
    """Counts every message once, however often it is delivered. Owned by the demo."""

    consumed: int = 0
    duplicates: int = 0
    out_of_order: int = 0
    carriers: defaultdict[str, Carrier] = field(default_factory=lambda: defaultdict(Carrier))
    _seen: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    _last: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])

    def add(self, reports: Iterable[Consumed]) -> None:
        """Enter what one consumer reported.

        The first delivery of each message counts for the order: an aircraft's flights must come
        from one queue, at rising offsets.
        """
        for report in reports:
            place = (report.queue_id, report.offset)
            if place in self._seen:
                self.duplicates += 1
                continue
            self._seen.add(place)
            self.consumed += 1
            if report.tail:
                queue_id, offset = self._last.get(report.tail, (report.queue_id, -1))
                self.out_of_order += queue_id != report.queue_id or offset >= report.offset
                self._last[report.tail] = place
            carrier = self.carriers[report.carrier]
            carrier.flights += 1
            if report.departure_delay is not None:
                carrier.delayed += 1
                carrier.delay_minutes += report.departure_delay


def verdict(
    *, sent: int, stored: int, ledger: Ledger, redeliveries_allowed: bool
) -> tuple[str, bool]:
    """Return the check line, and whether it holds."""
    holds = (
        sent == stored == ledger.consumed
        and not ledger.out_of_order
        and (redeliveries_allowed or not ledger.duplicates)
    )
    line = (
        f"check: sent={sent} stored={stored} consumed={ledger.consumed} "
        f"duplicates={ledger.duplicates} out_of_order={ledger.out_of_order} "
        f"{'ok' if holds else 'FAILED'}"
    )
    return line, holds
