"""Repairs that cannot lose a message: removal of files that the next start rebuilds from the log.

No repair changes the log. A queue is removed only if the log has all its units. So a queue without
a record in the log stays, since its next offset is nowhere else, and so does a queue whose last
message may lie in a bad range, since its offset would be assigned again.
"""

from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.layout import (
    consume_queue_ext_folder,
    consume_queue_folder,
    index_folder,
    next_file_path,
)
from ternmq_store.inspection.audit import StoreAudit
from ternmq_store.inspection.index_inspection import find_index_files
from ternmq_store.inspection.log_inspection import find_log_files
from ternmq_store.inspection.queue_inspection import find_queues, last_unit
from ternmq_store.inspection.recovery_preview import RecoveryPreview
from ternmq_store.queues.units import Unit


@dataclass(frozen=True, slots=True)
class RepairStep:
    """Files and folders to remove, in order, for one reason."""

    text: str
    """Description of the files and of the effect."""

    paths: Sequence[Path]


def plan_repair(
    files: FileSystem,
    root: Path,
    *,
    queues: Collection[tuple[str, int]],
    index: bool,
) -> Sequence[RepairStep]:
    """Return the files to remove for a rebuild of `queues` and, with `index`, of the index."""
    steps: list[RepairStep] = []
    leftovers = [path for path in (next_file_path(root),) if files.exists(path)]
    log_files = find_log_files(files, root)
    if log_files and log_files[-1].file_bytes == 0:
        leftovers.append(log_files[-1].path)
    if leftovers:
        steps.append(RepairStep("leftovers of an interrupted use, without a record", leftovers))
    if queues:
        paths = [*queue_paths(files, root, queues)]
        text = f"{len(queues)} consume queues; the next start builds them from the log"
        steps += [RepairStep(text, paths)] if paths else []
    if index:
        paths = [*find_index_files(files, root)]
        text = f"{len(paths)} index files; the next start builds them from the log"
        steps += [RepairStep(text, paths)] if paths else []
    return steps


class KeptQueue(NamedTuple):
    """A queue that is not removed."""

    topic: str
    queue_id: int
    reason: str


class QueueChoice(NamedTuple):
    """Queues to rebuild, and queues that stay."""

    removed: Collection[tuple[str, int]]
    kept: Sequence[KeptQueue]


def choose_queues(files: FileSystem, root: Path, audit: StoreAudit, *, all_of: bool) -> QueueChoice:
    """Return the faulty queues that can be rebuilt without an offset that is assigned twice.

    With `all_of`, sound queues are among them. The `audit` of the store is finished.
    """
    seen = audit.queues
    assert seen is not None, "the check is not finished"
    # Notes of the queues are valid if no program has written to the log since.
    noted = audit.notes.queues if audit.notes.queues_at == audit.end else ()
    ends = {(one.topic, one.queue_id): one.end for one in noted}
    removed: list[tuple[str, int]] = []
    kept: list[KeptQueue] = []
    for queue in find_queues(files, root):
        key = (queue.topic.encode(), queue.queue_id)
        if not all_of and key not in seen.faulty:
            continue
        last = seen.last_records.get(key)
        if last is None:
            reason = "no good record of the log is its own"
        elif _is_bad(audit, last_unit(files, queue)):
            reason = (
                "its last unit points to a damaged record, whose offset would be assigned again"
            )
        elif (queue.topic, queue.queue_id) not in ends and any(
            place.offset > last[1] for place in audit.bad
        ):
            reason = (
                "its end is noted nowhere, and the log is damaged behind its last good record:"
                " offsets could be assigned again"
            )
        else:
            removed.append((queue.topic, queue.queue_id))
            continue
        kept.append(KeptQueue(queue.topic, queue.queue_id, reason))
    return QueueChoice(removed, kept)


def _is_bad(audit: StoreAudit, unit: Unit | None) -> bool:
    return unit is not None and any(place.offset <= unit.offset < place.end for place in audit.bad)


def lost_numbers(
    audit: StoreAudit, before: RecoveryPreview, after: RecoveryPreview
) -> Sequence[KeptQueue]:
    """Return the queues that would assign an offset twice, or lack a message, after a repair.

    Args:
        audit: Finished check of the store.
        before: Outcome of a start without the repair.
        after: Outcome of a start after the removal of the queues.
    """
    assert audit.queues is not None, "the check is not finished"
    if after.report is None:
        reason = after.refusal or after.unknown
        return [KeptQueue("", 0, f"what the next start would do: {reason}")]
    lost: list[KeptQueue] = []
    expected = {
        (topic.decode("utf-8", "replace"), queue_id): offset + 1
        for (topic, queue_id), (offset, _) in audit.queues.last_records.items()
    }
    for (topic, queue_id), end in before.ends.items():
        is_sound = (topic.encode(), queue_id) not in audit.queues.faulty
        if is_sound:
            expected[topic, queue_id] = max(end, expected.get((topic, queue_id), 0))
    for (topic, queue_id), end in sorted(expected.items()):
        found = after.ends.get((topic, queue_id), 0)
        if found < end and (topic, queue_id) in before.ends:
            lost.append(
                KeptQueue(topic, queue_id, f"its next message would be number {found}, not {end}")
            )
    return lost


def queue_paths(
    files: FileSystem, root: Path, queues: Collection[tuple[str, int]]
) -> Generator[Path]:
    """Yield the files and folders of queues in the order of their removal."""
    for top in (consume_queue_folder(root), consume_queue_ext_folder(root)):
        for topic, queue_id in sorted(queues):
            folder = top / topic / str(queue_id)
            if files.exists(folder):
                yield from (folder / name for name in files.files(folder))
                yield folder


def carry_out(files: FileSystem, root: Path, steps: Sequence[RepairStep]) -> None:
    """Remove the files of `steps`, durably. The caller holds the store's lock.

    Raises:
        OSError: Some files may be gone; the removal can be repeated.
    """
    for step in steps:
        for path in step.paths:
            files.remove(path)
    folders = {path.parent for step in steps for path in step.paths}
    tops = {root, consume_queue_folder(root), index_folder(root)}
    for folder in sorted(folders | tops):
        if files.exists(folder):
            files.sync_folder(folder)
