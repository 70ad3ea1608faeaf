"""What a check says of the next start is held to what the next start does, over many damages."""

from collections.abc import Callable

import numpy as np
import pytest

from ternmq_console.store.next_start import next_start
from ternmq_model.file_generations import previous_path
from ternmq_store.disk.layout import (
    abort_path,
    checkpoint_path,
    commit_log_folder,
    consume_queue_folder,
    file_name,
    notes_path,
)
from ternmq_store.inspection.audit import StoreAudit
from ternmq_store.inspection.recovery_preview import (
    RecoveryPreview,
    preview_findings,
    preview_recovery,
)
from ternmq_store.opened_files import RecoveryAction
from ternmq_store.recovery.log_recovery import open_files
from ternmq_store.recovery.recovery_decisions import UndecidedStore
from ternmq_testing.memory.memory_files import MemoryFileSystem
from tests.support.damage import CONFIG, copied, filled
from tests.support.stores import ROOT
from tests.unit.store.inspection.test_audit import ReadOnlyFileSystem

Damage = Callable[[MemoryFileSystem], object]

LOG = commit_log_folder(ROOT)
QUEUE = consume_queue_folder(ROOT) / "A" / "0"
_BYTES = CONFIG.commit_log_file_bytes


def log_file(number: int) -> str:
    """Return the name of a file of the log."""
    return file_name(number * _BYTES)


def flip(files: MemoryFileSystem, number: int, at: int) -> None:
    """Alter a byte of a file of the log."""
    files.nodes[LOG / log_file(number)].data[at] ^= 0x10


def cut(files: MemoryFileSystem, number: int, length: int) -> None:
    """Let a file of the log end early."""
    node = files.nodes[LOG / log_file(number)]
    node.data = node.data[:length].copy()


def lengthen(files: MemoryFileSystem, number: int) -> None:
    """Add zeros to a file of the log."""
    node = files.nodes[LOG / log_file(number)]
    node.data = np.append(node.data, np.zeros(100, dtype=np.uint8))


def swap(files: MemoryFileSystem, one: int, other: int) -> None:
    """Let two files of the log have each other's name."""
    names = LOG / log_file(one), LOG / log_file(other)
    files.nodes[names[0]], files.nodes[names[1]] = files.nodes[names[1]], files.nodes[names[0]]


def zero(files: MemoryFileSystem, number: int, start: int = 0) -> None:
    """Zero a file of the log from some byte on."""
    files.nodes[LOG / log_file(number)].data[start:] = 0


def forget_notes(files: MemoryFileSystem) -> None:
    """Remove both generations of the side file."""
    for path in (notes_path(ROOT), previous_path(notes_path(ROOT))):
        files.nodes.pop(path, None)


def foreign_crash(files: MemoryFileSystem) -> None:
    """Let it look as if RocketMQ had been interrupted."""
    forget_notes(files)
    files.open(abort_path(ROOT), create=True).write(0, b"4711")


def garble_notes(files: MemoryFileSystem) -> None:
    """Overwrite both generations of the side file."""
    for path in (notes_path(ROOT), previous_path(notes_path(ROOT))):
        if path in files.nodes:
            files.nodes[path].data.fill(1)


def forget_dispatched(files: MemoryFileSystem) -> None:
    """Let the checkpoint say nothing of where a scan begins."""
    files.nodes[checkpoint_path(ROOT)].data[32:40] = 0


def several(*damages: Damage) -> Damage:
    """Return one damage after the other as one."""

    def damage(files: MemoryFileSystem) -> None:
        for one in damages:
            one(files)

    return damage


DAMAGES: dict[str, Damage] = {
    "nothing": lambda files: None,
    "the first record": lambda files: flip(files, 0, 90),
    "the first magic number": lambda files: flip(files, 0, 4),
    "a record amid the log": lambda files: flip(files, 1, 700),
    "a record of the last file": lambda files: flip(files, 2, 90),
    "a missing first file": lambda files: files.nodes.pop(LOG / log_file(0)),
    "a missing file amid": lambda files: files.nodes.pop(LOG / log_file(1)),
    "a missing last file": lambda files: files.nodes.pop(LOG / log_file(2)),
    "an empty file amid": lambda files: cut(files, 1, 0),
    "half a file amid": lambda files: cut(files, 1, 2000),
    "a file that is too long": lambda files: lengthen(files, 1),
    "an empty last file": lambda files: cut(files, 2, 0),
    "a short last file": lambda files: cut(files, 2, 300),
    "swapped files": lambda files: swap(files, 0, 1),
    "a zeroed last file": lambda files: zero(files, 2),
    "a zeroed end": lambda files: zero(files, 1, 2000),
    "a missing queue": lambda files: [files.nodes.pop(QUEUE / n) for n in files.files(QUEUE)],
    "an altered queue": lambda files: files.nodes[QUEUE / file_name(0)].data.fill(0xA5),
    "no checkpoint": lambda files: files.nodes.pop(checkpoint_path(ROOT)),
    "no notes": forget_notes,
    "no notes and a zeroed last file": several(forget_notes, lambda files: zero(files, 2)),
    "no notes and a bad first record": several(forget_notes, lambda files: flip(files, 0, 90)),
    "a record amid that is read again": several(
        forget_dispatched, lambda files: flip(files, 1, 700)
    ),
    "garbled notes": garble_notes,
    "another's crash": foreign_crash,
    "another's crash, a bad record amid": several(foreign_crash, lambda files: flip(files, 1, 700)),
    "another's crash, a bad last file": several(foreign_crash, lambda files: flip(files, 2, 90)),
}


def opened(files: MemoryFileSystem) -> RecoveryPreview:
    """Open a store in earnest and tell what that did."""
    before = set(files.nodes)
    try:
        done = open_files(files, ROOT, CONFIG, now_ms=7)
    except UndecidedStore as error:
        return RecoveryPreview(refusal=error.choice.text, choice=error.choice)
    gone = sorted(path for path in before - set(files.nodes) if path.parent == LOG)
    return RecoveryPreview(
        report=done.report,
        log_files_removed=gone,
        damaged=done.session.quarantine.ranges,
        ends={(queue.topic, queue.queue_id): queue.next_offset for queue in done.queues},
    )


def verdict(files: MemoryFileSystem, preview: RecoveryPreview) -> str:
    """Return what is said of the next start."""
    audit = StoreAudit(files, ROOT)
    areas = {finding.area for finding in audit.findings() if finding.is_problem}
    return "\n".join(
        next_start(
            state=audit.state,
            last_use=audit.last_use,
            preview=preview,
            bad=audit.bad,
            areas=areas,
            tables=(),
        )
    )


@pytest.mark.parametrize("is_clean", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize("name", DAMAGES)
def test_next_start_does_what_the_preview_predicts(name: str, *, is_clean: bool) -> None:
    files = filled(is_clean=is_clean)
    assert len(files.files(LOG)) >= 3
    DAMAGES[name](files)
    before = {path: node.data.tobytes() for path, node in files.nodes.items()}
    said = preview_recovery(ReadOnlyFileSystem(files), ROOT, CONFIG)
    words = verdict(files, said)
    assert {path: node.data.tobytes() for path, node in files.nodes.items()} == before
    done = opened(copied(files))
    assert said == done
    assert verdict(files, done) == words
    if done.report is None:
        assert f"refused, and stays as it is: {done.refusal}" in words
        assert [one.is_problem for one in preview_findings(said)] == [True]
        return
    cuts = [one.file for one in done.report.findings if one.what is RecoveryAction.CUT]
    assert ("The log is cut there" in words) == any(path.parent == LOG for path in cuts)
    assert ("Queue A 0 ended at" in words) == (QUEUE in cuts)
    assert ("opened as it is" in words) <= (not done.report.findings and is_clean)
    assert ("files of the log are removed" in words) <= bool(done.log_files_removed)


def said_of(damage: Damage, *, is_clean: bool) -> tuple[str, RecoveryPreview]:
    """Return what is said of a damaged store's next start."""
    files = filled(is_clean=is_clean)
    damage(files)
    said = preview_recovery(files, ROOT, CONFIG)
    return verdict(files, said), said


def test_refusal_is_predicted_alone() -> None:
    words, _ = said_of(lambda files: swap(files, 0, 1), is_clean=True)
    assert "00000000000000000000 contains the records of" in words
    assert "opened" not in words


def test_bad_records_that_stay_in_place_are_reported() -> None:
    words, said = said_of(DAMAGES["a record amid that is read again"], is_clean=False)
    (damaged,) = said.damaged
    assert f"bad bytes at {damaged.start} of the log stay in place, with their units" in words
    assert "cut" not in words


def test_cut_queue_is_predicted_with_both_ends() -> None:
    words, said = said_of(DAMAGES["no notes and a zeroed last file"], is_clean=True)
    end = said.ends["A", 0]
    assert end < 20
    assert f"Queue A 0 ended at 20 and ends at {end} now: the log has lost" in words


def test_bad_records_no_start_looks_for_are_reported() -> None:
    words, said = said_of(lambda files: flip(files, 1, 700), is_clean=True)
    assert said.damaged == ()
    assert "1 bad records of the log are not searched for then" in words


def test_preview_beyond_its_memory_limit_is_uncertain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ternmq_store.inspection.overlay.MEMORY_BYTES_MAX", 10)
    words, said = said_of(DAMAGES["a missing queue"], is_clean=True)
    assert said.report is None
    assert "The effect of a start is uncertain: " in words


def test_store_in_use_is_not_previewed() -> None:
    files = filled(is_clean=False)
    audit = StoreAudit(files, ROOT)
    (sentence,) = next_start(
        state=audit.state,
        last_use=audit.last_use,
        preview=None,
        bad=(),
        areas=(),
        tables=(),
    )
    assert "is unknown" in sentence


def test_refused_table_is_said_before_the_log() -> None:
    files = filled(is_clean=True)
    audit = StoreAudit(files, ROOT)
    tables = ["The broker does not start: topics.json is not there.", "Accept it."]
    said = next_start(
        state=audit.state,
        last_use=audit.last_use,
        preview=preview_recovery(files, ROOT, CONFIG),
        bad=(),
        areas={"state"},
        tables=tables,
    )
    assert said[:2] == tables
    assert len(said) > 2
