"""The demo's account must be able to fail."""

import pytest

from ledger import Consumed, Ledger, verdict


def flight(queue_id: int, offset: int, tail: str = "N1", delay: float | None = 2.0) -> Consumed:
    return Consumed(queue_id, offset, tail, "UA", delay)


def test_each_message_counts_once() -> None:
    ledger = Ledger()
    ledger.add([flight(0, 0), flight(0, 1), flight(0, 1), flight(1, 1, tail="N2", delay=None)])
    assert (ledger.consumed, ledger.duplicates, ledger.out_of_order) == (3, 1, 0)
    carrier = ledger.carriers["UA"]
    assert (carrier.flights, carrier.mean_delay) == (3, 2.0)


def test_aircraft_that_goes_back_or_changes_its_queue_is_out_of_order() -> None:
    ledger = Ledger()
    ledger.add([flight(0, 5), flight(0, 4), flight(1, 6)])
    assert ledger.out_of_order == 2


def test_flights_of_an_unknown_aircraft_have_no_order() -> None:
    ledger = Ledger()
    ledger.add([flight(0, 5, tail=""), flight(1, 4, tail="")])
    assert ledger.out_of_order == 0
    assert Ledger().carriers["UA"].mean_delay is None


def test_delivery_that_is_repeated_does_not_break_the_order() -> None:
    ledger = Ledger()
    ledger.add([flight(0, 1), flight(0, 2)])
    ledger.add([flight(0, 1), flight(0, 2), flight(0, 3)])
    assert (ledger.duplicates, ledger.out_of_order) == (2, 0)


@pytest.mark.parametrize(
    ("sent", "stored", "redeliveries_allowed", "holds"),
    [(2, 2, True, True), (2, 2, False, False), (3, 2, True, False), (2, 3, True, False)],
)
def test_check_holds_only_when_every_count_agrees(
    sent: int, stored: int, redeliveries_allowed: bool, holds: bool
) -> None:
    ledger = Ledger()
    ledger.add([flight(0, 0), flight(0, 1), flight(0, 1)])
    line, found = verdict(
        sent=sent, stored=stored, ledger=ledger, redeliveries_allowed=redeliveries_allowed
    )
    assert found is holds
    assert line.endswith("ok" if holds else "FAILED")
    assert line.startswith(f"check: sent={sent} stored={stored} consumed=2 duplicates=1 ")
