"""The notes and the ledger of clients that were killed are read as it happened."""

from pathlib import Path

from ternmq_model.transaction import Resolution
from tests.support.client_process import Ledger, Notes, orderly_deliveries_of, read_notes

PLACE = ("orders", "killed", 0)


def begin(member: str, name: str, offset: int) -> list[object]:
    return ["begin", member, name, f"{name}|", *PLACE, offset, 5, 0]


def end(kind: str, member: str, offset: int) -> list[object]:
    return [kind, member, *PLACE, offset]


def test_local_transaction_is_decided_once(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    assert ledger.read() == {}
    assert ledger.decide("p1-1", Resolution.ROLLBACK) is Resolution.ROLLBACK
    assert ledger.decide("p1-1", Resolution.COMMIT) is Resolution.ROLLBACK
    assert ledger.decide("p1-10", Resolution.COMMIT) is Resolution.COMMIT
    assert ledger.read() == {"p1-1": Resolution.ROLLBACK, "p1-10": Resolution.COMMIT}


def test_notes_of_two_processes_are_in_writing_order(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    assert read_notes(path) == []
    one, other = Notes(path), Notes(path)
    one.note("begin", 1)
    other.note("begin", 2)
    one.note("finish", 1)
    assert read_notes(path) == [["begin", 1], ["begin", 2], ["finish", 1]]


def test_half_of_a_note_hides_no_other(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    notes = Notes(path)
    notes.note("begin", 1)
    with path.open("a") as killed:
        killed.write('\n["begin", [2')
    assert read_notes(path) == [["begin", 1]]
    notes.note("begin", 3)
    assert read_notes(path) == [["begin", 1], ["begin", 3]]


def test_message_its_member_never_ended_is_not_finished() -> None:
    notes = [
        begin("a", "m0", 0),
        end("finish", "a", 0),
        begin("a", "m1", 1),
        end("fail", "a", 1),
        begin("a", "m1", 1),
        begin("b", "m1", 1),
        end("finish", "b", 1),
    ]
    deliveries, trespasses = orderly_deliveries_of(notes)
    found = [(each.message_id, each.queue_offset, each.is_finished) for each in deliveries]
    assert found == [("m0", 0, True), ("m1", 1, False), ("m1", 1, False), ("m1", 1, True)]
    assert not trespasses


def test_member_ending_a_message_begun_by_another_is_reported() -> None:
    notes = [begin("a", "m0", 0), begin("b", "m0", 0), end("finish", "a", 0)]
    _, trespasses = orderly_deliveries_of(notes)
    assert len(trespasses) == 1
