"""Taking over the files of a log: which there must be, and what can be put right.

Everything is looked at before anything is changed: a store that is refused stays as it was.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ternmq_model.errors import StoreError
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.layout import file_name
from ternmq_store.disk.mapped_file_queue import FoundFile
from ternmq_store.log.resync import HEAD_BYTES, claimed_offset
from ternmq_store.recovery.recovery import Finding, What


@dataclass(frozen=True, slots=True)
class LogPlan:
    """What is to be done with the files of a log."""

    file_bytes: int
    kept: Sequence[FoundFile]
    removed: Sequence[FoundFile]
    """Empty ones at the end."""

    lengthened: FoundFile | None
    """The last one, if its end is missing."""


def plan_log(found: Sequence[FoundFile], *, noted_bytes: int, default_bytes: int) -> LogPlan:
    """Return what to do with the files of a log. Pure.

    Args:
        found: The files, by base.
        noted_bytes: The length that files of this log had; 0 when nobody noted it.
        default_bytes: The length for a log without files.

    Raises:
        StoreError: They cannot be those of one log; names the first file that does not fit.
    """
    kept = list(found)
    while kept and kept[-1].file_bytes == 0:
        # The name of a new file reached the disk and nothing else did, or somebody emptied it.
        kept.pop()
    removed = found[len(kept) :]
    if not kept:
        return LogPlan(default_bytes, kept, removed, None)
    file_bytes = _file_bytes(kept, noted_bytes)
    last = kept[-1]
    for index, file in enumerate(kept):
        expected = kept[0].base + index * file_bytes
        if file.file_bytes == 0:
            raise StoreError(f"{file.path} is empty, and files of the log follow it: restore it")
        if file.file_bytes > file_bytes or (file.file_bytes < file_bytes and file is not last):
            raise StoreError(f"{file.path} has {file.file_bytes} bytes, others have {file_bytes}")
        if file.base != expected or file.base % file_bytes:
            raise StoreError(f"{file.path} does not follow: {file_name(expected)} is missing")
    return LogPlan(file_bytes, kept, removed, last if last.file_bytes < file_bytes else None)


def _file_bytes(kept: Sequence[FoundFile], noted_bytes: int) -> int:
    lengths = Counter(file.file_bytes for file in kept if file.file_bytes)
    longest = max(lengths)
    if noted_bytes >= longest and (len(kept) == 1 or noted_bytes in lengths):
        return noted_bytes
    if len(kept) > 1:
        # That each begins where the one before ends tells most surely.
        step = kept[1].base - kept[0].base
        if step in lengths:
            return step
    return lengths.most_common(1)[0][0]


def check_not_swapped(files: FileSystem, kept: Sequence[FoundFile]) -> None:
    """Refuse a log whose files bear each other's names.

    Raises:
        StoreError: Names such a file and whose content it has.
    """
    by_base = {file.base: file.path for file in kept}
    for found in kept:
        file = files.open(found.path)
        try:
            claimed = claimed_offset(file.read(0, HEAD_BYTES))
        finally:
            file.close()
        if claimed is not None and claimed != found.base and claimed in by_base:
            raise StoreError(
                f"{found.path} holds what belongs into {by_base[claimed]}: give them their names"
            )


def carry_out(files: FileSystem, plan: LogPlan, tell: Callable[[Finding], None]) -> None:
    """Remove and lengthen what the plan says.

    Raises:
        OSError: It could not be done.
    """
    for found in reversed(plan.removed):
        files.remove(found.path)
        tell(Finding(What.REMOVED, found.path, found.base, 0, "the file was empty"))
    if plan.lengthened is not None:
        short = plan.lengthened
        file = files.open(short.path)
        try:
            file.resize(plan.file_bytes)
            file.sync()
        finally:
            file.close()
        missing = plan.file_bytes - short.file_bytes
        at = short.base + short.file_bytes
        tell(Finding(What.REPAIRED, short.path, at, missing, "the end of the file was missing"))
