"""The decisions about a data directory that wait for a human."""

import json
import re
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

import pytest

from ternmq_console.store.repair import repair
from ternmq_console.store.repair_decisions import (
    decision_json,
    decision_lines,
    decisions,
    leftovers,
)
from ternmq_console.store.table_check import look_at_tables
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.layout import commit_log_folder, consume_queue_folder, file_name
from ternmq_store.inspection.audit import BadPlace, StoreAudit
from ternmq_store.inspection.recovery_preview import preview_recovery
from ternmq_store.recovery.recovery_decisions import RecoveryDecision, UndecidedState
from ternmq_testing.memory.memory_files import MemoryFileSystem, Node
from tests.support.damage import CONFIG, filled
from tests.support.stores import ROOT

PAGE = Path(__file__).parents[4] / "docs" / "howto" / "decisions.md"
LOG = commit_log_folder(ROOT)
QUEUE = consume_queue_folder(ROOT) / "A" / "0"
FILE_BYTES = CONFIG.commit_log_file_bytes

Damage = Callable[[MemoryFileSystem], object]


def log_file(number: int) -> Path:
    return LOG / file_name(number * FILE_BYTES)


def put(files: MemoryFileSystem, path: Path, data: bytes) -> None:
    """Make `data` the content of a file."""
    files.make_folder(path.parent)
    files.nodes[path] = Node()
    files.open(path).write(0, data)


def forget(files: MemoryFileSystem) -> None:
    """Leave nothing that was noted of the log, as RocketMQ does."""
    for name in ("ternmq.store", "ternmq.store.bak"):
        files.nodes.pop(ROOT / name, None)


def of_two_logs(files: MemoryFileSystem) -> None:
    forget(files)
    for path in [path for path in files.nodes if path.parent == LOG and path != log_file(0)]:
        files.remove(path)
    # It has the length of the first, and begins at no multiple of it.
    put(files, LOG / file_name(9 * FILE_BYTES + 8), bytes(FILE_BYTES))


def of_two_lengths(files: MemoryFileSystem) -> None:
    of_two_logs(files)
    files.remove(LOG / file_name(9 * FILE_BYTES + 8))
    put(files, log_file(4), b"\xff" * 2 * FILE_BYTES)


def swap(files: MemoryFileSystem) -> None:
    one, other = log_file(0), log_file(1)
    files.nodes[one], files.nodes[other] = files.nodes[other], files.nodes[one]


def without_file(files: MemoryFileSystem) -> None:
    forget(files)
    files.remove(log_file(1))


def flip(path: Path, at: int) -> Damage:
    def damage(files: MemoryFileSystem) -> None:
        files.nodes[path].data[at] ^= 1

    return damage


def lose_table(files: MemoryFileSystem) -> None:
    put(files, ROOT / "config" / "topics.json", b"{")


def keep_leftovers(files: MemoryFileSystem) -> None:
    for name in ("aside/00", "cut/00-01", "config/topics.json.bad"):
        put(files, ROOT / name, b"kept")


DAMAGES: dict[UndecidedState, Damage] = {
    UndecidedState.MISSING_FILE: without_file,
    UndecidedState.TWO_LOGS: of_two_logs,
    UndecidedState.FILE_LENGTH: of_two_lengths,
    UndecidedState.SWAPPED_FILES: swap,
    UndecidedState.LOST_TABLES: lose_table,
    UndecidedState.DAMAGED_LOG: flip(log_file(1), 700),
    UndecidedState.WRONG_QUEUES: flip(QUEUE / file_name(0), 20 * 5 + 11),
    UndecidedState.LEFTOVERS: keep_leftovers,
}


def found_in(files: FileSystem) -> Sequence[RecoveryDecision]:
    audit = StoreAudit(files, ROOT)
    areas = {finding.area for finding in audit.findings() if finding.is_problem}
    return decisions(
        ROOT,
        preview=preview_recovery(files, ROOT, CONFIG),
        found=look_at_tables(files, ROOT, audit.notes.tables),
        bad=audit.bad,
        areas=areas,
        was_closed=audit.last_use.is_clean,
        leftovers=leftovers(files, ROOT),
    )


def options(text: str) -> AbstractSet[str]:
    """Return the options of the repairs that a text names."""
    return {
        option
        for command in re.findall(r"ternmq store repair [^`\n]*", text)
        for option in re.findall(r"--[a-z-]+", command)
    }


def test_sound_store_waits_for_no_decision() -> None:
    assert found_in(filled(is_clean=True)) == []


@pytest.mark.parametrize("state", UndecidedState)
def test_each_state_is_found_with_its_ways(state: UndecidedState) -> None:
    files = filled(is_clean=True)
    DAMAGES[state](files)
    (choice,) = [each for each in found_in(files) if each.state is state]
    assert len(choice.ways) >= 2
    lines = decision_lines(choice)
    assert lines[0].startswith(f"decide  {state.value}: ")
    assert all(way.when in line for way, line in zip(choice.ways, lines[1:], strict=True))
    row = json.loads(decision_json(choice))
    assert (row["kind"], row["state"], row["text"]) == ("decision", state.value, choice.text)
    assert [way["command"] or "" for way in row["ways"]] == [way.command for way in choice.ways]


@pytest.mark.parametrize("state", UndecidedState)
def test_page_names_each_state_with_its_commands(state: UndecidedState) -> None:
    rows = PAGE.read_text(encoding="utf-8").split(f"| `{state.value}` |")
    assert len(rows) == 2
    of_state = re.split(r"\n\| `|\n\n", rows[1])[0]
    files = filled(is_clean=True)
    DAMAGES[state](files)
    (choice,) = [each for each in found_in(files) if each.state is state]
    if state is not UndecidedState.TWO_LOGS:  # its row refers to the one above
        assert options(str(choice)) <= options(of_state)
    assert options(of_state) <= {name for each in repair.params for name in each.opts}


def test_end_of_the_log_that_a_start_cuts_is_no_decision() -> None:
    files = filled(is_clean=False)
    preview = preview_recovery(files, ROOT, CONFIG)
    assert preview.report is not None
    end = preview.report.end
    for at, count in ((end, 0), (end - 9, 1)):
        found = decisions(
            ROOT,
            preview=preview,
            found=look_at_tables(files, ROOT, ()),
            bad=[BadPlace(log_file(0), at, at + 9)],
            areas=(),
            was_closed=False,
            leftovers=(),
        )
        assert len(found) == count


def test_repair_waits_for_a_start_after_a_crash() -> None:
    for is_clean in (True, False):
        files = filled(is_clean=is_clean)
        DAMAGES[UndecidedState.WRONG_QUEUES](files)
        (choice,) = [each for each in found_in(files) if each.state is UndecidedState.WRONG_QUEUES]
        assert ("after the broker was started" in str(choice)) == (not is_clean)
