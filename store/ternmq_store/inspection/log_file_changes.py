"""Changes of log files by an operator's decision, after which a start accepts the log.

Nothing is deleted. The next start does the rest.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from ternmq_model.errors import UsageError
from ternmq_store.disk.file_content import set_length
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.layout import aside_folder, commit_log_folder, file_name
from ternmq_store.disk.mapped_file_queue import FoundFile
from ternmq_store.inspection.log_inspection import find_log_files
from ternmq_store.recovery.foreign_files import set_aside_file, set_aside_surplus
from ternmq_store.recovery.log_files import GAP_FILES_MAX


class LogFileChange(NamedTuple):
    """One change to the files of a log."""

    text: str
    """Description of the change."""

    run: Callable[[], object]
    """Durable change. It may raise OSError; all changes can be run again."""


def plan_changes(
    files: FileSystem,
    root: Path,
    *,
    set_aside: Sequence[str] = (),
    file_bytes: int | None = None,
    fill_gaps: bool = False,
) -> Sequence[LogFileChange]:
    """Return the requested changes in their order, before any of them is made.

    Files named in `set_aside` are foreign to the log, and `file_bytes` is the right length of the
    others. With `fill_gaps`, missing files between others are lost.

    Raises:
        StoreNotFound: `root` is no store.
        UsageError: A file is missing, or the log's files cannot have that length.
    """
    found = find_log_files(files, root)
    names = {file.path.name for file in found}
    for name in set_aside:
        if name not in names:
            raise UsageError(f"{commit_log_folder(root)} has no file {name}")
    gone = set(set_aside)
    kept = [file for file in found if file.path.name not in gone]
    folder = aside_folder(root)
    steps = [
        LogFileChange(
            f"move {file.path} to {folder}", partial(set_aside_file, files, root, file.path)
        )
        for file in found
        if file.path.name in gone
    ]
    if file_bytes is not None:
        steps += _fitted(files, root, kept, file_bytes)
    if fill_gaps:
        steps += _filled(files, kept, file_bytes)
    return steps


def _fitted(
    files: FileSystem, root: Path, kept: Sequence[FoundFile], file_bytes: int
) -> Sequence[LogFileChange]:
    """Return the changes that give each file of the log the length `file_bytes`."""
    steps: list[LogFileChange] = []
    for file in kept:
        if file_bytes <= 0 or file.base % file_bytes:
            raise UsageError(
                f"no file of {file_bytes} bytes begins at {file.base}: if {file.path} does"
                f" not belong to the log, add --set-aside {file.path.name}"
            )
        if file.file_bytes > file_bytes:
            text = f"move what {file.path} has behind {file_bytes} bytes to {aside_folder(root)}"
            run: Callable[[], object] = partial(
                set_aside_surplus, files, root, file.path, file_bytes
            )
            steps.append(LogFileChange(text, run))
        elif 0 < file.file_bytes < file_bytes:
            text = f"lengthen {file.path} from {file.file_bytes} to {file_bytes} bytes by zeros"
            steps.append(LogFileChange(text, partial(set_length, files, file.path, file_bytes)))
    return steps


def _filled(
    files: FileSystem, kept: Sequence[FoundFile], file_bytes: int | None
) -> Sequence[LogFileChange]:
    """Return the changes that make missing files, empty; the next start lengthens them."""
    lengths = Counter(file.file_bytes for file in kept if file.file_bytes)
    if not lengths:
        return ()
    step = file_bytes or lengths.most_common(1)[0][0]
    paths = [
        before.path.with_name(file_name(base))
        for before, after in pairwise(kept)
        for base in range(before.base + step, after.base, step)[: GAP_FILES_MAX + 1]
    ]
    if len(paths) > GAP_FILES_MAX:
        raise UsageError(
            f"more than {GAP_FILES_MAX} files are missing: does one belong to another log?"
        )
    return [
        LogFileChange(f"go on without {path}", partial(set_length, files, path, 0))
        for path in paths
    ]
