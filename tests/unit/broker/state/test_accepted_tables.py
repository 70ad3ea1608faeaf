import random
from contextlib import suppress
from pathlib import Path

import pytest

from ternmq_broker.state.accepted_tables import carry_out, plan_acceptance
from ternmq_broker.state.fastjson import write_json
from ternmq_broker.state.table_formats import TIMER, TRANSACTIONS
from ternmq_broker.state.table_generations import StoredTable, bad_path, config_folder, find_table
from ternmq_broker.state.timer_checkpoint import TimerCheckpoint
from ternmq_broker.state.transaction_scan_offset import ScanOffset
from ternmq_model.file_generations import previous_path
from ternmq_model.json_checksum import add_checksum
from ternmq_store.disk.state_file import replace_file
from ternmq_store.log.log_notes import LogNotes, load_notes, save_notes
from ternmq_testing.memory.memory_files import MemoryFileSystem, PowerLossFileSystem, PowerLost

ROOT = Path("/broker")
FOLDER = config_folder(ROOT)
PATH = FOLDER / TRANSACTIONS.name
NAMES = (TRANSACTIONS.name, TIMER.name)
NOTES = LogNotes("session", is_open=True, tables=NAMES)
WRONG = add_checksum(write_json({"scanFrom": 555})).replace(b"555", b"333")
ILLEGIBLE = b"{"


def directory(
    main: bytes | None, previous: bytes | None, files: MemoryFileSystem | None = None
) -> MemoryFileSystem:
    """Return a data directory whose notes name tables, with these generations of one."""
    files = MemoryFileSystem() if files is None else files
    files.make_folder(FOLDER)
    save_notes(files, ROOT, NOTES)
    for path, data in ((PATH, main), (previous_path(PATH), previous)):
        if data is not None:
            replace_file(files, path, data, keep_previous=False)
    return files


def found(files: MemoryFileSystem) -> StoredTable[ScanOffset]:
    """Return the table as the next start finds it."""
    was_there = TRANSACTIONS.name in load_notes(files, ROOT, lambda _: None).tables
    return find_table(files, FOLDER, TRANSACTIONS, was_there=was_there, now_ms=0)


def accept(files: MemoryFileSystem) -> None:
    carry_out(files, ROOT, plan_acceptance([found(files)]))


def test_right_generation_needs_no_acceptance() -> None:
    right = add_checksum(write_json({"scanFrom": 1}))
    for main, previous in ((right, None), (WRONG, right), (None, right)):
        assert not plan_acceptance([found(directory(main, previous))])


@pytest.mark.parametrize(
    ("main", "previous"), [(WRONG, ILLEGIBLE), (ILLEGIBLE, WRONG), (None, WRONG)]
)
def test_legible_generation_is_taken_as_it_is(main: bytes | None, previous: bytes) -> None:
    files = directory(main, previous)
    accept(files)
    table = found(files)
    assert table.table is not None
    assert (table.table.offset, table.refusal) == (333, "")
    assert load_notes(files, ROOT, lambda _: None) == NOTES
    assert files.exists(bad_path(PATH)) == (main is not None)


def test_tables_of_a_lost_folder_are_missed_no_more() -> None:
    files = MemoryFileSystem()
    files.make_folder(ROOT)
    save_notes(files, ROOT, NOTES)
    accept(files)
    assert (found(files).refusal, files.exists(FOLDER)) == ("", True)


@pytest.mark.parametrize(("main", "previous"), [(None, None), (ILLEGIBLE, None), (None, ILLEGIBLE)])
def test_illegible_table_is_missed_no_more(main: bytes | None, previous: bytes | None) -> None:
    files = directory(main, previous)
    accept(files)
    table = found(files)
    assert (table.table, table.refusal, table.is_absent) == (None, "", True)
    notes = load_notes(files, ROOT, lambda _: None)
    assert (notes.session, notes.is_open, notes.tables) == ("session", True, (TIMER.name,))


def test_timer_checkpoint_is_taken_without_its_checksum() -> None:
    kept = TimerCheckpoint(1, 0, 3, 4)
    stripped = TIMER.strip(kept.encode())
    assert TIMER.parse(stripped, 0) == kept
    assert not TIMER.verify(stripped)


@pytest.mark.parametrize("seed", range(30))
def test_acceptance_that_is_interrupted_goes_on(seed: int) -> None:
    chance = random.Random(seed)
    disk = PowerLossFileSystem()
    directory(WRONG, ILLEGIBLE, disk)
    disk.happenings_left = chance.randrange(10)
    with suppress(PowerLost):
        accept(disk)
    left = disk.lose_power(chance)
    accept(left)
    table = found(left).table
    assert table is not None
    assert table.offset == 333
