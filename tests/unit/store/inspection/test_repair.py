from collections.abc import Collection
from dataclasses import replace

from ternmq_model.file_generations import previous_path
from ternmq_store.disk.layout import (
    commit_log_folder,
    consume_queue_folder,
    file_name,
    index_folder,
    next_file_path,
    notes_path,
)
from ternmq_store.inspection.audit import StoreAudit
from ternmq_store.inspection.recovery_preview import RecoveryPreview, preview_recovery
from ternmq_store.inspection.repair import (
    QueueChoice,
    carry_out,
    choose_queues,
    lost_numbers,
    plan_repair,
    queue_paths,
)
from ternmq_store.queues.units import UNIT
from ternmq_testing.memory.memory_files import MemoryFileSystem
from tests.support.damage import CONFIG, copied, filled, readable
from tests.support.stores import ROOT, open_store, queue_files

QUEUES = [("A", 0), ("A", 1), ("B", 0)]
QUEUE = consume_queue_folder(ROOT) / "A" / "0"


def checked(files: MemoryFileSystem) -> StoreAudit:
    """Return a finished check."""
    audit = StoreAudit(files, ROOT)
    list(audit.findings())
    return audit


def choice(files: MemoryFileSystem, *, all_of: bool = False) -> QueueChoice:
    return choose_queues(files, ROOT, checked(files), all_of=all_of)


def served(files: MemoryFileSystem) -> Collection[bytes]:
    """Return what a store serves that is opened over a copy of `files`."""
    store = open_store(copied(files), config=CONFIG)
    found = readable(store)
    store.close()
    return [found[key] for key in sorted(found)]


def damage_last_record(files: MemoryFileSystem) -> None:
    """Alter the magic number of the last record of queue 0 of topic A."""
    data = b"".join(files.nodes[QUEUE / name].data.tobytes() for name in files.files(QUEUE))
    number, at = divmod(
        max(
            int.from_bytes(data[place : place + 8], "big")
            for place in range(0, len(data), UNIT.itemsize)
        ),
        CONFIG.commit_log_file_bytes,
    )
    path = commit_log_folder(ROOT) / file_name(number * CONFIG.commit_log_file_bytes)
    files.nodes[path].data[at + 4] ^= 1


def test_removal_of_a_damaged_queue_loses_no_offsets() -> None:
    files = filled(is_clean=True)
    files.nodes[QUEUE / file_name(0)].data[20 * 3 + 7] ^= 1
    audit = StoreAudit(files, ROOT)
    assert any(finding.area == "queue" for finding in audit.findings())
    chosen = choose_queues(files, ROOT, audit, all_of=False)
    assert (chosen.removed, chosen.kept) == ([("A", 0)], [])
    before = preview_recovery(files, ROOT, CONFIG)
    paths = [*queue_paths(files, ROOT, chosen.removed)]
    assert lost_numbers(audit, before, preview_recovery(files, ROOT, CONFIG, without=paths)) == []
    # What the next start leaves missing is told.
    assert lost_numbers(audit, before, replace(before, ends={("A", 0): 3, ("A", 1): 20}))


def test_repair_of_a_sound_store_is_empty_unless_all_is_to_be_built() -> None:
    files = filled(is_clean=True)
    assert choice(files) == ([], [])
    assert choice(files, all_of=True) == (QUEUES, [])
    assert plan_repair(files, ROOT, queues=(), index=False) == []


def test_repair_removes_leftovers_queues_and_index_that_the_next_start_builds_anew() -> None:
    files = filled(is_clean=True)
    expected = served(files)
    files.open(next_file_path(ROOT), create=True)
    steps = plan_repair(files, ROOT, queues=QUEUES, index=True)
    assert [step.text.split(",")[0].split(";")[0] for step in steps] == [
        "leftovers of an interrupted use",
        "3 consume queues",
        f"{len(files.files(index_folder(ROOT)))} index files",
    ]
    kept = files.files(commit_log_folder(ROOT))
    carry_out(files, ROOT, steps)
    assert not files.exists(next_file_path(ROOT))
    assert not files.exists(QUEUE)
    assert not files.files(index_folder(ROOT))
    assert files.files(commit_log_folder(ROOT)) == kept
    assert served(files) == expected


def test_repair_builds_a_queue_anew_whose_bytes_are_in_the_wrong_order() -> None:
    files = filled(is_clean=True)
    before = queue_files(files)
    for name in files.files(QUEUE):
        units = files.nodes[QUEUE / name].data.view(UNIT)
        units[:] = units.astype(UNIT.newbyteorder()).view(UNIT)
    problems = [each.text for each in StoreAudit(files, ROOT).findings() if each.is_problem]
    assert len(problems) == 20
    assert all("bytes in the wrong order" in text for text in problems)
    chosen = choice(files)
    assert (chosen.removed, chosen.kept) == ([("A", 0)], [])
    carry_out(files, ROOT, plan_repair(files, ROOT, queues=chosen.removed, index=False))
    assert queue_files(files) != before
    open_store(files, config=CONFIG).close()
    assert queue_files(files) == before


def test_empty_last_log_file_is_a_leftover() -> None:
    files = filled(is_clean=True)
    last = commit_log_folder(ROOT) / file_name(100 * CONFIG.commit_log_file_bytes)
    files.open(last, create=True)
    (step,) = plan_repair(files, ROOT, queues=(), index=False)
    assert step.paths == [last]


def test_queue_without_a_record_in_the_log_is_kept() -> None:
    files = filled(is_clean=True)
    other = consume_queue_folder(ROOT) / "Z" / "0"
    files.make_folder(other)
    files.open(other / file_name(0), create=True).write(0, b"\xa5" * 20)
    ((topic, queue_id, reason),) = choice(files, all_of=True).kept
    assert (topic, queue_id, reason) == ("Z", 0, "no good record of the log is its own")


def test_queue_whose_last_record_is_damaged_is_kept() -> None:
    files = filled(is_clean=True)
    damage_last_record(files)
    found = choice(files, all_of=True)
    assert (*found.removed,) == (("A", 1), ("B", 0))
    assert found.kept[0].reason.startswith("its last unit points to a damaged record")


def test_queue_whose_end_is_unknown_is_kept_behind_damage() -> None:
    files = filled(is_clean=True)
    damage_last_record(files)
    for name in files.files(QUEUE):
        files.nodes[QUEUE / name].data.fill(0xA5)
    assert ("A", 0) in choice(files).removed
    for path in (notes_path(ROOT), previous_path(notes_path(ROOT))):
        files.nodes.pop(path, None)
    assert [(one.topic, one.queue_id) for one in choice(files).kept] == [("A", 0)]


def test_repair_after_which_no_start_is_foreseen_is_told() -> None:
    files = filled(is_clean=True)
    before = preview_recovery(files, ROOT, CONFIG)
    ((_, _, reason),) = lost_numbers(checked(files), before, RecoveryPreview(refusal="no way"))
    assert reason.endswith("no way")
