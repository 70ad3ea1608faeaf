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
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and remove nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def repair(folder: Path, *, queues: bool, index: bool, dry_run: bool, yes: bool) -> None:
    """Remove from the data directory DIR what is damaged and can be built anew.

    That is consume queues in which something is wrong, and the index, which the next start builds
    from the log, and leftovers of an interrupted use. A queue is kept, and that is said, where the
    numbers of its messages could be given again. The log itself is never changed. DIR must have
    been closed: start the broker once after a crash. Nothing is removed before you said yes.
    """
    files = RealFileSystem()
    with errors_as_exits():
        find_log_files(files, folder)
        if dry_run:
            _plan(files, folder, queues=queues, index=index)
            return
        lock = files.lock(lock_path(folder))
        try:
            steps = _plan(files, folder, queues=queues, index=index)
            if steps:
                _confirm(is_given=yes)
                carry_out(files, folder, steps)
                click.echo("done")
        finally:
            lock.release()


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


def _confirm(*, is_given: bool) -> None:
    """Ask, unless it was said already.

    Raises:
        UsageError: The answer is no, or there is nobody to ask.
    """
    if is_given:
        return
    if not sys.stdin.isatty():
        raise UsageError("nothing was removed: say --yes, or run it in a terminal")
    if not click.confirm("Remove these files?"):
        raise UsageError("nothing was removed")
