"""`ternmq store dump`: every record, unit or index entry of a data directory."""

from collections.abc import Generator, Iterable
from pathlib import Path

import click

from ternmq_console.cli.exit_codes import FAILED, errors_as_exits
from ternmq_console.cli.output import print_line, print_lines
from ternmq_console.store.rows import (
    INDEX_HEADING,
    RECORD_HEADING,
    UNIT_HEADING,
    Row,
    entry_rows,
    json_line,
    record_row,
    text_line,
    unit_rows,
)
from ternmq_model.offsets import UNIT_BYTES
from ternmq_store.disk.filesystem import FileSystem, RealFileSystem
from ternmq_store.inspection.index_inspection import (
    find_index_files,
    find_slots,
    read_index_head,
    walk_entries,
)
from ternmq_store.inspection.log_inspection import BadRange, FoundRecord, find_log_files, walk_log
from ternmq_store.inspection.queue_inspection import bad_units, find_queues, misfits
from ternmq_store.queues.unit_files import walk_units


class _Complaints:
    """Printer and counter of unreadable places. Owned by one verb."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, path: Path, offset: int | None, reason: str) -> None:
        """Print one place on standard error."""
        self.count += 1
        place = "" if offset is None else f" offset {offset}"
        print_line(f"ternmq: {path}{place}: {reason}", to_stderr=True)


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--units", "what", flag_value="units", help="Print the units of the consume queues instead."
)
@click.option(
    "--index", "what", flag_value="index", help="Print the entries of the index files instead."
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object on each line instead of a table."
)
def dump(folder: Path, what: str | None, *, as_json: bool) -> None:
    """Print the content of the data directory DIR: every record of the log, in its order.

    The command changes no file, and the directory may be in use. It reports unreadable data on
    standard error, with file and offset; then the exit code is 1.
    """
    files, complaints = RealFileSystem(), _Complaints()
    with errors_as_exits():
        log_files = find_log_files(files, folder)
        if what == "units":
            heading, rows = UNIT_HEADING, _units(files, folder, complaints)
        elif what == "index":
            heading, rows = INDEX_HEADING, _entries(files, folder, complaints)
        else:
            heading = RECORD_HEADING
            rows = _records(walk_log(files, log_files), complaints)
        if not as_json:
            print_line(heading)
        print_lines(map(json_line if as_json else text_line, rows))
    if complaints.count:
        raise SystemExit(FAILED)


def _records(pieces: Iterable[object], complaints: _Complaints) -> Generator[Row]:
    for piece in pieces:
        if isinstance(piece, BadRange):
            complaints.add(piece.file.path, piece.offset, f"{piece.size} bytes: {piece.reason}")
        elif isinstance(piece, FoundRecord):
            if piece.problem:
                complaints.add(piece.file.path, piece.offset, piece.problem)
            yield record_row(piece)


def _units(files: FileSystem, root: Path, complaints: _Complaints) -> Generator[Row]:
    queues = find_queues(files, root)
    for path, text in misfits(queues):
        complaints.add(path, None, text)
    for queue in queues:
        for found in walk_units(files, queue.files):
            bad = bad_units(found.units)
            for number in bad:
                offset, size, _ = found.units[number].item()
                place = (found.first + number) * UNIT_BYTES - found.file.base
                complaints.add(found.file.path, place, f"a unit of {size} bytes at {offset}")
            yield from unit_rows(queue, found, without=bad)


def _entries(files: FileSystem, root: Path, complaints: _Complaints) -> Generator[Row]:
    for path in find_index_files(files, root):
        head = read_index_head(files, path)
        if head is None:
            complaints.add(path, None, "the header is cut")
            continue
        slots = find_slots(files, head)
        if slots is None:
            if head.header.next_number > 1:
                complaints.add(path, None, "the entries are not where the header says")
            continue
        for found in walk_entries(files, head, slots):
            yield from entry_rows(path, slots, found)
