"""What the next start does with a store, said in words. Pure."""

from collections.abc import Collection, Sequence

from ternmq_store.inspection.audit import BadPlace, LogState
from ternmq_store.log.log_notes import LastUse, LogNotes


def next_start(
    *,
    state: LogState,
    last_use: LastUse,
    notes: LogNotes,
    bad: Sequence[BadPlace],
    end: int,
    areas: Collection[str],
) -> Sequence[str]:
    """Return a sentence for each thing that the next start does.

    Args:
        state: Whether somebody uses the store, or how it was left.
        last_use: How the last use ended.
        notes: What the store noted of its log.
        bad: Where the log is bad.
        end: Where the log ends.
        areas: What problems there are, as `Finding.area` names them.
    """
    if state is LogState.IN_USE:
        return (
            "Somebody uses the store: what was written during the check may look unfinished here;"
            " check again, or a copy.",
        )
    said = [_log_words(last_use)]
    said += _bad_words(last_use, notes, bad, end)
    if "queue" in areas:
        said.append(
            "Consume queues that are missing or short are built anew from the log, and when a"
            " reader met a wrong unit; for a wrong one amid a file that nobody has read yet"
            " `ternmq store repair` lets them be built anew."
        )
    if "index" in areas:
        said.append(
            "An index that ends too early is completed from the log; for any other fault"
            " `ternmq store repair` lets it be built anew."
        )
    if "state" in areas:
        said.append("A table of which no generation can be read keeps the broker from starting.")
    return said


def _log_words(last_use: LastUse) -> str:
    if last_use is LastUse.CLEAN:
        return "The store was closed cleanly: it is opened as it is."
    if last_use is LastUse.FOREIGN_CLEAN:
        return "After an interrupted use somebody else closed the store: it is opened as it is."
    if last_use is LastUse.CRASHED:
        return "The store was not closed: the log is checked from the checkpoint to its end."
    return (
        "The store was not closed, and not by us: the log is checked from the file that its"
        " checkpoint's times point to."
    )


def _bad_words(
    last_use: LastUse, notes: LogNotes, bad: Sequence[BadPlace], end: int
) -> Sequence[str]:
    if not bad:
        return ()
    if last_use.is_clean:
        return (
            "Bad records of the log are not looked for then; readers that meet one pass over it"
            " and count it.",
        )
    flushed = notes.flushed if last_use is LastUse.CRASHED else 0
    said: list[str] = []
    if any(place.offset < flushed for place in bad):
        said.append(
            f"Bad records before {flushed}, which was on the disk, stay in place, with their units;"
            " readers pass over them."
        )
    behind = next((place.offset for place in bad if place.offset >= flushed), None)
    if behind is not None:
        said.append(
            f"If the check begins before {behind}, the log is cut there:"
            f" {max(end - behind, 0)} bytes up to {end} go, with their units."
        )
    return said
