"""`ternmq store repair`: what can be mended without the risk of losing a message."""

import logging
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

import click

from ternmq_console.exits import errors_as_exits
from ternmq_console.store_state import known_topics
from ternmq_model.errors import StoreError, UsageError
from ternmq_store.config import StoreConfig
from ternmq_store.disk.filesystem import FileSystem, RealFileSystem
from ternmq_store.disk.layout import lock_path
from ternmq_store.inspection.audit import StoreAudit
from ternmq_store.inspection.decisions import Decision, decide
from ternmq_store.inspection.log_inspection import find_log_files
from ternmq_store.inspection.rehearsal import Rehearsal, rehearse
from ternmq_store.inspection.repair import (
    KeptQueue,
    RepairStep,
    carry_out,
    choose_queues,
    lost_numbers,
    plan_repair,
    queue_paths,
)


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--queues", is_flag=True, help="Build the consume queues anew, sound or not.")
@click.option("--index", is_flag=True, help="Build the index anew, sound or not.")
@click.option("--set-aside", metavar="FILE", multiple=True, help="FILE is none of the log.")
@click.option("--file-bytes", type=click.IntRange(1), help="How long a file of the log is.")
@click.option("--fill-gaps", is_flag=True, help="Go on without missing files of the log.")
@click.option("--leftovers", is_flag=True, help="Remove what was set aside.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def repair(
    folder: Path,
    *,
    queues: bool,
    index: bool,
    set_aside: Sequence[str],
    file_bytes: int | None,
    fill_gaps: bool,
    leftovers: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Remove from the data directory DIR what is damaged and can be built anew.

    That is consume queues in which something is wrong, and the index, which the next start builds
    from the log, and leftovers of an interrupted use. A queue is kept, and that is said, where the
    numbers of its messages could be given again. DIR must have been closed: start the broker once
    after a crash.

    A log that no start takes over needs a decision of yours: --set-aside, --file-bytes or
    --fill-gaps, as the error says. Then nothing else is repaired, and nothing deleted: what is none
    of the log is moved into the folder `aside`, and the next start serves what is sound. Without
    them the log is never changed.

    Nothing is done before you said yes.
    """
    files = RealFileSystem()

    def decided() -> Sequence[Decision]:
        return decide(
            *(files, folder),
            set_aside=set_aside,
            file_bytes=file_bytes,
            fill_gaps=fill_gaps,
            leftovers=leftovers,
        )

    is_decision = bool(set_aside or file_bytes or fill_gaps or leftovers)
    with errors_as_exits():
        find_log_files(files, folder)
        if is_decision and (queues or index):
            raise UsageError("decide about the log first, then repair queues and index")
        if dry_run:
            _tell(decided()) if is_decision else _plan(files, folder, queues=queues, index=index)
            return
        lock = files.lock(lock_path(folder))
        try:
            if is_decision:
                _decide(decided(), is_given=yes)
            elif steps := _plan(files, folder, queues=queues, index=index):
                _confirm("Remove these files?", is_given=yes)
                carry_out(files, folder, steps)
                click.echo("done")
        finally:
            lock.release()


def _tell(decisions: Sequence[Decision]) -> None:
    for decision in decisions:
        click.echo(decision.text)
    if not decisions:
        click.echo("nothing to do")


def _decide(decisions: Sequence[Decision], *, is_given: bool) -> None:
    """Say what is to be done, and do it when that was confirmed."""
    _tell(decisions)
    if decisions:
        _confirm("Do this?", is_given=is_given)
        for decision in decisions:
            decision.run()
        click.echo("done")


def _plan(files: FileSystem, root: Path, *, queues: bool, index: bool) -> Sequence[RepairStep]:
    """Check the store and say what would be removed.

    Raises:
        StoreError: It was not closed, so that nobody knows yet where its log ends.
    """
    audit = StoreAudit(files, root, known_topics=known_topics(files, root))
    if not audit.last_use.is_clean:
        # In a dry run, without the lock, it may as well be in use.
        raise StoreError(f"{root} was not closed: start the broker on it, stop it, and repair then")
    areas = {finding.area for finding in audit.findings() if finding.is_problem}
    with_index = index or "index" in areas
    chosen = _choose(files, root, audit, all_of=queues)
    steps = plan_repair(files, root, queues=chosen, index=with_index)
    for step in steps:
        click.echo(f"remove {step.text}:")
        for path in step.paths:
            click.echo(f"  {path}")
    if not steps:
        click.echo("nothing to remove")
    if "log" in areas:
        click.echo("the log has problems, which are left as they are: see `ternmq store check`")
    return steps


def _choose(
    files: FileSystem, root: Path, audit: StoreAudit, *, all_of: bool
) -> Collection[tuple[str, int]]:
    """Return the queues to remove, and say which are kept; what follows is tried in memory."""
    logging.getLogger("ternmq_store").addHandler(logging.NullHandler())
    before: Rehearsal | None = None
    refused: Sequence[KeptQueue] = ()
    for with_sound in (True,) if all_of else (False, True):
        removed, kept = choose_queues(files, root, audit, all_of=with_sound)
        if with_sound == all_of:
            for one in kept:
                click.echo(f"kept: queue {one.queue_id} of {one.topic}: {one.reason}")
        if not removed:
            return ()
        before = before or rehearse(files, root, StoreConfig())
        paths = [*queue_paths(files, root, removed)]
        after = rehearse(files, root, StoreConfig(), without=paths)
        lost = lost_numbers(audit, before, after)
        if not lost:
            return removed
        refused = refused or lost
    for one in refused:
        click.echo(f"refused: queue {one.queue_id} of {one.topic}: {one.reason}")
    return ()


def _confirm(question: str, *, is_given: bool) -> None:
    """Ask, unless it was said already.

    Raises:
        UsageError: The answer is no, or there is nobody to ask.
    """
    if is_given:
        return
    if not sys.stdin.isatty():
        raise UsageError("nothing was done: say --yes, or run it in a terminal")
    if not click.confirm(question):
        raise UsageError("nothing was done")
