"""`ternmq store repair`: repairs without a loss, and decisions of the operator."""

import logging
import sys
from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TextIO, cast

import click

from ternmq_broker.state import accepted_tables
from ternmq_broker.state.table_formats import StoredTables
from ternmq_console.cli.exit_codes import errors_as_exits
from ternmq_console.cli.options import yes_option
from ternmq_console.cli.output import print_line, print_lines
from ternmq_console.directory_owner import check_owner
from ternmq_console.store.repair_decisions import decision_lines, decisions
from ternmq_console.store.repair_decisions import leftovers as find_leftovers
from ternmq_console.store.table_check import known_topics, look_at_tables
from ternmq_model.errors import StoreError, UsageError
from ternmq_store.config import StoreConfig
from ternmq_store.disk.filesystem import FileSystem, RealFileSystem
from ternmq_store.disk.layout import lock_path
from ternmq_store.inspection.audit import StoreAudit
from ternmq_store.inspection.log_file_changes import LogFileChange, plan_changes
from ternmq_store.inspection.log_inspection import find_log_files
from ternmq_store.inspection.recovery_preview import RecoveryPreview, preview_recovery
from ternmq_store.inspection.repair import (
    KeptQueue,
    RepairStep,
    carry_out,
    choose_queues,
    lost_numbers,
    plan_repair,
    queue_paths,
)
from ternmq_store.log.log_notes import load_notes


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--queues", is_flag=True, help="Rebuild the consume queues, even if they are sound.")
@click.option("--index", is_flag=True, help="Rebuild the index, even if it is sound.")
@click.option(
    "--accept-tables",
    is_flag=True,
    help="Accept the tables in config/ as they are, if they prevent the start of the broker.",
)
@click.option(
    "--set-aside",
    metavar="FILE",
    multiple=True,
    help="Move FILE to aside/: it does not belong to the log.",
)
@click.option("--file-bytes", type=click.IntRange(1), help="Length of a log file.")
@click.option("--fill-gaps", is_flag=True, help="Fill the gaps of missing log files.")
@click.option("--leftovers", is_flag=True, help="Remove the files in aside/ and cut/.")
@click.option("--dry-run", is_flag=True, help="Print the changes, and make none.")
@yes_option
def repair(
    folder: Path,
    *,
    queues: bool,
    index: bool,
    accept_tables: bool,
    set_aside: Sequence[str],
    file_bytes: int | None,
    fill_gaps: bool,
    leftovers: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Remove damaged files of the data directory DIR that the next start can rebuild.

    These are damaged consume queues and a damaged index, which the next start rebuilds from the
    log, and leftovers of an interrupted use. The command keeps, and lists, a queue if the numbers
    of its messages could be assigned again. DIR must have been closed: start the broker once after
    a crash.

    The command lists open decisions, with the command of each alternative. A log that no start
    accepts needs --set-aside, --file-bytes or --fill-gaps. Then the command repairs no other file,
    and deletes none: it moves foreign files into the folder `aside`, and the next start serves all
    sound data. Without these options the log is never changed.

    With --accept-tables the command only accepts tables: a table without a valid generation is used
    as it is, or is lost if it cannot be read.

    The command changes no file without a confirmation.
    """
    files = RealFileSystem()
    is_decision = bool(set_aside or file_bytes or fill_gaps or leftovers)
    with errors_as_exits():
        if accept_tables and (queues or index or is_decision):
            raise UsageError("--accept-tables goes alone: repair queues and index afterwards")
        if is_decision and (queues or index):
            raise UsageError("decide about the log first, then repair queues and index")
        find_log_files(files, folder)
        if not dry_run:
            check_owner(folder)
        lock = None if dry_run else files.lock(lock_path(folder))
        try:
            if accept_tables:
                todo = _plan_tables(files, folder)
            elif is_decision:
                todo = _plan_decisions(
                    plan_changes(
                        files,
                        folder,
                        set_aside=set_aside,
                        file_bytes=file_bytes,
                        fill_gaps=fill_gaps,
                    ),
                    files.remove,
                    find_leftovers(files, folder) if leftovers else (),
                )
            else:
                todo = _plan(files, folder, queues=queues, index=index)
            if todo is not None and not dry_run:
                _confirm(is_given=yes)
                todo()
                print_line("done")
        finally:
            if lock is not None:
                lock.release()


def _plan_tables(files: FileSystem, root: Path) -> Callable[[], None] | None:
    """Print the tables that would be accepted; return the function that accepts them."""
    plan = accepted_tables.plan_acceptance(_tables(files, root))
    for each in plan:
        print_line(each.text)
    if not plan:
        print_line("nothing to accept")
        return None
    return partial(accepted_tables.carry_out, files, root, plan)


def _tables(files: FileSystem, root: Path) -> StoredTables:
    return look_at_tables(files, root, load_notes(files, root, _ignore).tables)


def _ignore(reason: str) -> None:
    """Ignore unreadable notes: `ternmq store check` reports them."""


def _plan_decisions(
    about_log: Sequence[LogFileChange], remove: Callable[[Path], None], leftovers: Sequence[Path]
) -> Callable[[], None] | None:
    """Print the changes of the log and of leftovers; return the function that makes them."""
    decisions = [
        *about_log,
        *(LogFileChange(f"remove {path}", partial(remove, path)) for path in leftovers),
    ]
    for decision in decisions:
        print_line(decision.text)
    if not decisions:
        print_line("nothing to do")
        return None

    def run() -> None:
        for decision in decisions:
            decision.run()

    return run


def _plan(files: FileSystem, root: Path, *, queues: bool, index: bool) -> Callable[[], None] | None:
    """Check the store, print removals and open decisions; return the function that removes.

    Raises:
        StoreError: The store was not closed, so the end of its log is unknown.
    """
    logging.getLogger("ternmq_store").addHandler(logging.NullHandler())
    audit = StoreAudit(files, root, known_topics=known_topics(files, root))
    areas = {finding.area for finding in audit.findings() if finding.is_problem}
    before = preview_recovery(files, root, StoreConfig())
    steps: Sequence[RepairStep] = ()
    is_planned = audit.last_use.is_clean and before.choice is None
    if is_planned:
        steps = plan_repair(
            files,
            root,
            queues=_choose(files, root, audit, before, all_of=queues),
            index=index or "index" in areas,
        )
        for step in steps:
            print_line(f"remove {step.text}:")
            for path in step.paths:
                print_line(f"  {path}")
        if not steps:
            print_line("nothing to remove")
    waiting = decisions(
        root,
        preview=before,
        found=_tables(files, root),
        bad=audit.bad,
        areas=() if is_planned else areas,
        was_closed=audit.last_use.is_clean,
        leftovers=find_leftovers(files, root),
    )
    print_lines(chain.from_iterable(map(decision_lines, waiting)))
    if not audit.last_use.is_clean and before.choice is None:
        # In a dry run, without the lock, it may as well be in use.
        raise StoreError(f"{root} was not closed: start the broker on it, stop it, and repair then")
    return partial(carry_out, files, root, steps) if steps else None


def _choose(
    files: FileSystem, root: Path, audit: StoreAudit, before: RecoveryPreview, *, all_of: bool
) -> Collection[tuple[str, int]]:
    """Return the queues to remove, after a start in memory without them; print the kept queues."""
    refused: Sequence[KeptQueue] = ()
    for with_sound in (True,) if all_of else (False, True):
        removed, kept = choose_queues(files, root, audit, all_of=with_sound)
        if with_sound == all_of:
            for one in kept:
                print_line(f"kept: queue {one.queue_id} of {one.topic}: {one.reason}")
        if not removed:
            return ()
        paths = [*queue_paths(files, root, removed)]
        after = preview_recovery(files, root, StoreConfig(), without=paths)
        lost = lost_numbers(audit, before, after)
        if not lost:
            return removed
        refused = refused or lost
    for one in refused:
        print_line(f"refused: queue {one.queue_id} of {one.topic}: {one.reason}")
    return ()


def _confirm(*, is_given: bool) -> None:
    """Ask for a confirmation unless it `is_given`.

    Raises:
        UsageError: The answer is no, or standard input is no terminal.
    """
    if is_given:
        return
    stdin = cast("TextIO | None", sys.stdin)
    if stdin is None or not stdin.isatty():
        raise UsageError("nothing was changed: add --yes, or run the command in a terminal")
    if not click.confirm("Go on?"):
        raise UsageError("nothing was changed")
