"""Repair of a replication record with epochs that never began; `ternmq broker repair-epoch`.

Each made-up number is replaced by the number that the master of the log would have begun otherwise.
So all members replace an entry by the same number without asking each other, and a promotion stays
above the epoch that it replaced. `load_record` and `save_record` block; the caller holds the
directory's lock.
"""

from dataclasses import replace
from pathlib import Path
from typing import Final

from ternmq_broker.state.epochs import (
    MEMBER_STEP,
    PROMOTION_STEP,
    Epoch,
    Epochs,
    newest,
    number_after_restart,
    number_of_promotion,
)
from ternmq_broker.state.fastjson import write_json
from ternmq_broker.state.replication_record import ReplicationRecord
from ternmq_broker.state.table_formats import REPLICATION
from ternmq_broker.state.table_generations import check_refusals, config_folder, find_table
from ternmq_model.epochs import EPOCH_MAX, doubt_of
from ternmq_model.errors import StoreNotFound
from ternmq_model.file_generations import previous_path
from ternmq_model.json_checksum import add_checksum
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.reserve_file import replace_file_from_reserve
from ternmq_store.disk.state_file import read_whole

_BEYOND_KNOWN: Final = 2 * PROMOTION_STEP
"""Greatest distance of a promotion's epoch from one that was plausible when it was reported."""


def is_made_up(number: int, known: int) -> bool:
    """Return whether a number is too far above `known` for an epoch that began. Pure."""
    return bool(doubt_of(number, known + _BEYOND_KNOWN))


def real_epochs(epochs: Epochs, *, real: int = EPOCH_MAX) -> Epochs:
    """Return the list of a log with a real number in the place of each that is made up. Pure.

    Args:
        epochs: Epochs of the log.
        real: Highest known epoch that began. Without it only impossible numbers count as made up,
            because registrations of strangers can raise the numbers of real epochs.
    """
    found: list[Epoch] = []
    for number, start in epochs:
        before = newest(tuple(found))
        if not is_made_up(number, max(before, real)):
            found.append(Epoch(number, start))
        elif number % MEMBER_STEP:
            found.append(Epoch(number_after_restart(before), start))
        else:
            broker_id = number % PROMOTION_STEP // MEMBER_STEP
            found.append(Epoch(number_of_promotion(before, broker_id), start))
    return tuple(found)


def repaired(record: ReplicationRecord, *, real: int) -> ReplicationRecord:
    """Return the repaired record; the same one when no number in it is made up. Pure.

    Args:
        record: Record of the member.
        real: Highest epoch that began; 0 where the own log alone is known.
    """
    epochs = real_epochs(record.epochs, real=real or EPOCH_MAX)
    known = max(newest(epochs), real)
    highest = known if is_made_up(record.highest_epoch, known) else record.highest_epoch
    if doubt_of(real, max(highest, newest(epochs))):
        highest = real
    members = tuple(
        replace(each, epoch=0) if is_made_up(each.epoch, known) else each for each in record.members
    )
    return replace(record, epochs=epochs, highest_epoch=highest, members=members)


def load_record(
    files: FileSystem, root: Path
) -> tuple[ReplicationRecord, ReplicationRecord | None]:
    """Return the record below the data directory `root`, and the record of the generation before.

    The second record is None when one of the two generations is missing or damaged.

    Raises:
        StoreNotFound: The directory has no record.
        UndecidedStore: Both generations of the file are damaged.
    """
    found = find_table(files, config_folder(root), REPLICATION, was_there=False, now_ms=0)
    check_refusals(root, [found])
    if found.table is None:
        raise StoreNotFound(f"{found.main.path} is not there: no member has a record in {root}")
    try:
        data = read_whole(files, previous_path(found.main.path))
        previous = REPLICATION.parse(data, 0)
        return found.table, None if found.main.fault else previous
    except (OSError, ValueError, LookupError, TypeError):
        return found.table, None


def save_record(files: FileSystem, root: Path, record: ReplicationRecord) -> None:
    """Save a record in both generations. Durable on return.

    Raises:
        OSError: The disk refused; either record may be on it.
    """
    path = config_folder(root) / REPLICATION.name
    data = add_checksum(write_json(record.to_dict()))
    replace_file_from_reserve(files, root, path, data, in_both=True)
