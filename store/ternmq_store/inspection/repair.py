"""Repairs that cannot lose a message: removing what the next start builds anew from the log.

Nothing here changes the log. A queue that has no record in the log any more is kept, since nothing
else knows where its numbering stands.
"""

from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.layout import (
    consume_queue_ext_folder,
    consume_queue_folder,
    index_folder,
    next_file_path,
)
from ternmq_store.inspection.index_inspection import find_index_files
from ternmq_store.inspection.log_inspection import find_log_files


@dataclass(frozen=True, slots=True)
class RepairStep:
    """Files and folders to remove for one reason, in this order."""

    text: str
    """What is removed, and what happens then."""

    paths: Sequence[Path]


def plan_repair(
    files: FileSystem,
    root: Path,
    *,
    queues: bool,
    index: bool,
    rebuilt: Collection[tuple[str, int]],
) -> Sequence[RepairStep]:
    """Return what would be removed; nothing is changed.

    Args:
        files: The file system.
        root: The store's directory.
        queues: Let consume queues be built anew.
        index: Let the index be built anew.
        rebuilt: Topic and queue id of the queues that have records in the log.
    """
    steps: list[RepairStep] = []
    leftovers = [path for path in (next_file_path(root),) if files.exists(path)]
    log_files = find_log_files(files, root)
    if log_files and log_files[-1].file_bytes == 0:
        leftovers.append(log_files[-1].path)
    if leftovers:
        steps.append(RepairStep("leftovers of an interrupted use, without a record", leftovers))
    if queues:
        paths = [*_queue_paths(files, root, rebuilt)]
        text = f"{len(rebuilt)} consume queues; the next start builds them from the log"
        steps += [RepairStep(text, paths)] if paths else []
    if index:
        paths = [*find_index_files(files, root)]
        text = f"{len(paths)} index files; the next start builds them from the log"
        steps += [RepairStep(text, paths)] if paths else []
    return steps


def _queue_paths(
    files: FileSystem, root: Path, rebuilt: Collection[tuple[str, int]]
) -> Generator[Path]:
    for top in (consume_queue_folder(root), consume_queue_ext_folder(root)):
        for topic, queue_id in sorted(rebuilt):
            folder = top / topic / str(queue_id)
            if files.exists(folder):
                yield from (folder / name for name in files.files(folder))
                yield folder


def carry_out(files: FileSystem, root: Path, steps: Sequence[RepairStep]) -> None:
    """Remove what `steps` name, durably. The caller holds the store's lock.

    Raises:
        OSError: Part of it may be gone; doing it again goes on.
    """
    for step in steps:
        for path in step.paths:
            files.remove(path)
    folders = {path.parent for step in steps for path in step.paths}
    tops = {root, consume_queue_folder(root), index_folder(root)}
    for folder in sorted(folders | tops):
        if files.exists(folder):
            files.sync_folder(folder)
