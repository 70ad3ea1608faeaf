"""`ternmq store check` on RocketMQ's store, whole and damaged: it tells, and changes nothing."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from ternmq_store.config import FlushMode, StoreConfig
from ternmq_store.disk.filesystem import RealFileSystem
from ternmq_store.message_store import MessageStore
from ternmq_store.opened_files import RecoveryReport
from ternmq_store.recovery.recovery_decisions import RecoveryDecision, UndecidedStore
from tests.support.console import invoke
from tests.support.rocketmq import contents, manifest, unpack_store
from tests.support.stores import HandClock

CONFIG = StoreConfig(
    commit_log_file_bytes=65_536, consume_queue_file_units=100, index_slots=500, index_entries=400
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a copy of the store."""
    return unpack_store(tmp_path)


def check(root: Path, *options: str) -> Result:
    """Run the command line."""
    return invoke("store", "check", str(root), *options)


def change(path: Path, at: int, data: bytes) -> None:
    """Overwrite bytes of a file."""
    old = bytearray(path.read_bytes())
    old[at : at + len(data)] = data
    path.write_bytes(old)


def log_file(root: Path, number: int = 0) -> Path:
    """Return a file of the log."""
    return root / "commitlog" / f"{number * 65_536:020d}"


def queue_file(root: Path) -> Path:
    """Return a file with units of `Orders`."""
    return root / "consumequeue" / "Orders" / "3" / f"{0:020d}"


def index_file(root: Path) -> Path:
    """Return the first index file."""
    return min((root / "index").iterdir())


def test_check_finds_rocketmqs_store_sound_and_changes_nothing(root: Path) -> None:
    for path in root.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    times = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    before = contents(root)
    done = check(root, "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    (summary,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert summary["isSound"]
    assert (summary["records"], summary["units"], summary["indexEntries"]) == (529, 529, 1068)
    assert (summary["logFiles"], summary["queues"], summary["indexFiles"]) == (5, 27, 3)
    assert contents(root) == before
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == times
    for path in root.rglob("*"):
        path.chmod(0o755)


def test_check_output_is_readable_by_people(root: Path) -> None:
    done = check(root)
    assert done.exit_code == 0
    assert done.stdout.splitlines()[-1] == "sound"
    change(log_file(root), 90, b"??")
    done = check(root)
    assert done.exit_code == 1
    assert f"problem log        {log_file(root)} offset 0: the body" in done.stdout
    assert done.stdout.splitlines()[-1] == "not sound"


def test_missing_store_exits_with_code_3(tmp_path: Path) -> None:
    assert check(tmp_path).exit_code == 3
    assert not list(tmp_path.iterdir())


Damage = Callable[[Path], object]

DAMAGES: dict[str, tuple[Damage, str, str]] = {
    "a body is altered": (
        lambda root: change(log_file(root), 90, b"\xff"),
        "log",
        "the body's checksum differs",
    ),
    "a magic number is altered": (
        lambda root: change(log_file(root), 4, b"\0"),
        "log",
        "282 bytes: magic",
    ),
    "a file of the log is missing": (
        lambda root: log_file(root, 2).unlink(),
        "log",
        "does not follow",
    ),
    "a file of the log is empty": (
        lambda root: log_file(root, 4).write_bytes(b""),
        "log",
        "is empty",
    ),
    "a file of the log is short": (
        lambda root: log_file(root, 4).write_bytes(log_file(root, 4).read_bytes()[:-4096]),
        "log",
        "others have 65536",
    ),
    "a unit points to another place": (
        lambda root: change(queue_file(root), 20 * 5, bytes(8)),
        "queue",
        "unit 5 points to",
    ),
    "a unit has another tag": (
        lambda root: change(queue_file(root), 20 * 5 + 12, b"\0\0\0\1"),
        "queue",
        "tag code",
    ),
    "a unit is lost": (
        lambda root: change(queue_file(root), 20 * 5, bytes(20)),
        "queue",
        "1 records have no unit, the first is 5",
    ),
    "a queue is lost": (
        lambda root: shutil.rmtree(queue_file(root).parent),
        "queue",
        "records have no unit, the first is 0",
    ),
    "a unit points to nothing": (
        lambda root: change(
            queue_file(root), 20 * 99, bytes((0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 1, 0)) + bytes(8)
        ),
        "queue",
        "behind the log's end",
    ),
    "an entry has another hash": (
        lambda root: change(index_file(root), 40 + 2_000 + 20 * 9, b"\0\0\0\1"),
        "index",
        "entry 9 is of no key",
    ),
    "an entry names another one before it": (
        lambda root: change(index_file(root), 40 + 2_000 + 20 * 399 + 16, b"\0\0\0\1"),
        "index",
        "do not point to the previous entry",
    ),
    "a slot is lost": (
        lambda root: change(index_file(root), 40 + 4 * 366, bytes(4)),
        "index",
        "",
    ),
    "an index file is lost": (
        lambda root: index_file(root).unlink(),
        "index",
        "keys have no entry",
    ),
    "an index file is cut": (
        lambda root: index_file(root).write_bytes(bytes(20)),
        "index",
        "the header is cut",
    ),
    "the checkpoint is cut": (
        lambda root: (root / "checkpoint").write_bytes(bytes(100)),
        "checkpoint",
        "has 100 bytes",
    ),
    "the checkpoint is ahead": (
        lambda root: change(root / "checkpoint", 0, b"\x7f"),
        "checkpoint",
        "on disk up to",
    ),
    "a table is no table": (
        lambda root: (root / "config" / "topics.json").write_bytes(b"{"),
        "state",
        "takes the generation before",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_reported_with_its_place(root: Path, name: str) -> None:
    damage, area, words = DAMAGES[name]
    damage(root)
    before = contents(root)
    done = check(root, "--json")
    assert (done.exit_code, done.stderr) == (1, "")
    *findings, summary = [json.loads(line) for line in done.stdout.splitlines()]
    problems = [one for one in findings if one["kind"] == "problem"]
    assert summary["problems"] == len(problems) > 0
    found = [one for one in problems if one["area"] == area and words in one["text"]]
    assert found, problems
    assert contents(root) == before


def test_records_of_a_deleted_topic_need_no_queue(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "Batch")
    table = (root / "config" / "topics.json").read_text(encoding="utf-8")
    (root / "config" / "topics.json").write_text(table.replace('"Batch"', '"Other"'), "utf-8")
    done = check(root, "--json")
    assert done.exit_code == 0
    note, _ = [json.loads(line) for line in done.stdout.splitlines()]
    count = sum(line["topic"] == "Batch" for line in manifest(root, "record"))
    assert note["text"] == f"{count} records of topic Batch, which was deleted"


def crash(root: Path) -> None:
    """Let the store look as if RocketMQ had been interrupted."""
    (root / "abort").write_bytes(b"4711")


def crash_and(damage: Damage) -> Damage:
    """Return an interruption with damage."""

    def both(root: Path) -> None:
        crash(root)
        damage(root)

    return both


STARTS: dict[str, Damage] = {
    **{name: damage for name, (damage, area, _) in DAMAGES.items() if area in {"log", "queue"}},
    "an interruption": crash,
    "an interruption, and the last file begins with no record": crash_and(
        lambda root: change(log_file(root, 4), 4, b"\0")
    ),
    "an interruption, and a body amid is altered": crash_and(
        lambda root: change(log_file(root, 2), 90, b"\xff")
    ),
    "an interruption, and a file is missing": crash_and(lambda root: log_file(root, 2).unlink()),
}


@pytest.mark.parametrize("name", STARTS)
def test_next_start_does_what_the_check_predicts(root: Path, name: str) -> None:
    STARTS[name](root)
    *rows, summary = [json.loads(line) for line in check(root, "--json").stdout.splitlines()]
    said = summary["nextStart"]
    log_files = set((root / "commitlog").iterdir())
    before = contents(root)
    choice: RecoveryDecision | None = None
    report: RecoveryReport | None = None
    try:
        store = MessageStore.open(root, CONFIG, FlushMode.SYNC, RealFileSystem(), HandClock())
    except UndecidedStore as error:
        choice = error.choice
    else:
        report = store.report
        store.close()
    waiting = {row["text"]: row["ways"] for row in rows if row["kind"] == "decision"}
    if choice is not None:
        after = contents(root)
        after.pop("lock", None)
        assert (said, after) == (
            [f"The store is refused, and stays as it is: {choice.text}."],
            before,
        )
        assert [way["command"] for way in waiting[choice.text]] == [
            way.command or None for way in choice.ways
        ]
        return
    assert report is not None
    for finding in report.findings:
        assert any(finding.reason in sentence for sentence in said), finding
    assert any(f"ends at {report.end}" in sentence for sentence in said) or any(
        "opened as it is" in sentence for sentence in said
    )
    gone = sorted(path.name for path in log_files if not path.exists())
    assert not gone or any(gone[0] in sentence for sentence in said)


UNITS: dict[str, tuple[bytes, str]] = {
    "garbled": (b"\xa5" * 2000, "a unit of -1515870811 bytes"),
    "cut": (bytes(70), "has 70 bytes, others have 2000"),
}


@pytest.mark.parametrize("name", UNITS)
def test_dump_reports_impossible_units(root: Path, name: str) -> None:
    data, words = UNITS[name]
    queue_file(root).write_bytes(data)
    done = invoke("store", "dump", str(root), "--units", "--json")
    assert done.exit_code == 1
    assert f"{queue_file(root)}" in done.stderr
    assert words in done.stderr
    assert all(json.loads(line)["size"] > 0 for line in done.stdout.splitlines())
