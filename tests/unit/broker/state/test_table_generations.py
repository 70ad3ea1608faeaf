import errno
import json
import logging
import random
from pathlib import Path
from typing import Any

import pytest

from ternmq_broker.state.fastjson import write_json
from ternmq_broker.state.table_formats import OFFSETS, TIMER, TRANSACTIONS, VERSIONS
from ternmq_broker.state.table_generations import (
    StoredTable,
    bad_path,
    check_refusals,
    config_folder,
    find_table,
    settle,
)
from ternmq_broker.state.transaction_scan_offset import ScanOffset
from ternmq_model.errors import StateUnreadable, StoreError
from ternmq_model.file_generations import previous_path
from ternmq_model.json_checksum import add_checksum
from ternmq_store.disk.state_file import replace_file
from ternmq_testing.memory.memory_files import MemoryFileSystem, PowerLossFileSystem, PowerLost

ROOT = Path("/broker")
FOLDER = config_folder(ROOT)
PATH = FOLDER / TRANSACTIONS.name


def table(number: int) -> bytes:
    """Return a file whose table has a number."""
    return add_checksum(write_json({"scanFrom": number}))


def files_with(*generations: bytes) -> MemoryFileSystem:
    """Return a folder in which the table was replaced by each of these in turn."""
    files = MemoryFileSystem()
    files.make_folder(FOLDER)
    for data in generations:
        replace_file(files, PATH, data)
    return files


def flip_digit(files: MemoryFileSystem, path: Path) -> None:
    """Make another digit of the first one."""
    data = files.nodes[path].data
    at = next(at for at, byte in enumerate(data.tobytes()) if chr(byte).isdigit())
    data[at] ^= 1


def find(files: MemoryFileSystem, *, was_there: bool = True) -> StoredTable[ScanOffset]:
    """Return the table."""
    return find_table(files, FOLDER, TRANSACTIONS, was_there=was_there, now_ms=0)


def number_of(found: StoredTable[ScanOffset]) -> int | None:
    """Return the number of the table that is taken."""
    return None if found.table is None else found.table.offset


def test_main_file_is_taken_while_it_is_right() -> None:
    files = files_with(table(555), table(222))
    files.open(previous_path(PATH)).resize(0)
    found = find(files)
    assert (number_of(found), found.refusal, found.is_current) == (222, "", True)


def test_flipped_digit_gives_way_to_the_generation_before(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = files_with(table(555), table(222))
    flip_digit(files, PATH)
    found = find(files)
    assert (number_of(found), found.refusal, found.is_current) == (555, "", False)
    settle(files, ROOT, [found])
    (line,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    for word in ("transactions.json.bak", "checksum differs", TRANSACTIONS.older):
        assert word in line.message
    assert files.exists(bad_path(PATH))
    assert number_of(find(files)) == 555


def test_removed_main_file_gives_way_to_the_generation_before() -> None:
    files = files_with(table(555), table(222))
    files.remove(PATH)
    assert number_of(find(files)) == 555


def test_table_that_never_was_there_is_none() -> None:
    found = find(files_with(), was_there=False)
    assert (found.table, found.refusal, found.is_absent) == (None, "", True)


def test_table_without_right_generation_is_refused_with_its_stake() -> None:
    files = files_with()
    assert "transactions.json is not there" in find(files).refusal
    files = files_with(table(555), table(222))
    flip_digit(files, PATH)
    flip_digit(files, previous_path(PATH))
    for was_there in (False, True):
        refusal = find(files, was_there=was_there).refusal
        assert refusal.count("checksum differs") == 2
        assert TRANSACTIONS.absent in refusal


def test_refused_tables_are_named_at_once_with_the_command() -> None:
    files = files_with()
    found: list[StoredTable[Any]] = [
        find_table(files, FOLDER, OFFSETS, was_there=True, now_ms=0),
        find_table(files, FOLDER, VERSIONS, was_there=True, now_ms=0),
    ]
    with pytest.raises(StoreError) as error:
        check_refusals(ROOT, found)
    for word in (OFFSETS.name, VERSIONS.name, "ternmq store repair /broker --accept-tables"):
        assert word in str(error.value)


@pytest.mark.parametrize("is_slave", [False, True])
@pytest.mark.parametrize("error", [errno.EACCES, errno.EIO, errno.EISDIR, errno.ELOOP])
def test_unreadable_table_refuses_the_start_and_is_left_alone(
    error: int, *, is_slave: bool
) -> None:
    files = files_with(table(555), table(222))
    files.unreadable[PATH] = OSError(error, "refused")
    before = dict(files.nodes)
    found = find(files)
    assert found.taken is None
    with pytest.raises(StateUnreadable, match=r"transactions\.json exists but cannot be read"):
        settle(files, ROOT, [found], is_slave=is_slave)
    assert files.nodes == before


def test_slave_awaits_tables_that_its_master_tells(caplog: pytest.LogCaptureFixture) -> None:
    files = files_with(table(555))
    flip_digit(files, PATH)
    found = find(files)
    with pytest.raises(StoreError, match=r"transactions\.json"):
        settle(files, ROOT, [found])
    settle(files, ROOT, [found], is_slave=True)
    assert "table lost" in caplog.text
    assert found.table is None


@pytest.mark.parametrize(
    "text", ['{"scanFrom":7}', '{\n\t"crc32": "00000000",\n\t"scanFrom": 7\n}\n']
)
def test_table_without_checksum_is_taken_as_it_is(
    text: str, caplog: pytest.LogCaptureFixture
) -> None:
    files = files_with(table(555), text.encode())
    found = find(files)
    assert (number_of(found), found.is_current) == (7, False)
    with caplog.at_level(logging.INFO):
        settle(files, ROOT, [found])
    assert "without a checksum" in caplog.text
    assert files.exists(PATH)


def test_short_timer_checkpoint_has_no_checksum() -> None:
    assert not TIMER.verify(bytes(60))


@pytest.mark.parametrize("seed", range(60))
def test_power_loss_at_any_moment_leaves_a_right_generation(seed: int) -> None:
    chance = random.Random(seed)
    files = PowerLossFileSystem()
    files.make_folder(FOLDER)
    replace_file(files, PATH, table(555))
    replace_file(files, PATH, table(222))
    if is_damaged := chance.random() < 0.5:
        flip_digit(files, PATH)
        files.open(PATH).sync()
    files.happenings_left = chance.randrange(12)
    taken = 555 if is_damaged else 222
    try:
        found = find(files)
        assert number_of(found) == taken
        settle(files, ROOT, [found])
        replace_file(files, PATH, table(333))
        is_done = True
    except PowerLost:
        is_done = False
    found = find(files.lose_power(chance))
    assert number_of(found) in ({333} if is_done else {taken, 333})
    assert not found.refusal


def test_older_version_keeps_no_checksum_at_the_end() -> None:
    content = json.loads(table(7))
    assert not TRANSACTIONS.verify(write_json(content).encode())
