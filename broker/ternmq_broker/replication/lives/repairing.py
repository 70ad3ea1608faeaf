"""What a member keeps is set back from epochs that nobody began; `ternmq broker repair-epoch`.

The numbers become those that the log's masters would have begun, had nobody made one up. So all
members that have an entry get the same one in its place, each by itself, and a promotion stays
above what it replaced. Every function but `real_epochs` and `repaired` blocks; the caller holds the
directory's lock.
"""

from dataclasses import replace
from pathlib import Path
from typing import Final

from ternmq_broker.found_tables import check_refusals, config_folder, find_table
from ternmq_broker.loose_json import write_json
from ternmq_broker.replication.epochs import (
    MEMBER_STEP,
    PROMOTION_STEP,
    Epoch,
    Epochs,
    newest,
    number_after_restart,
    number_of_promotion,
)
from ternmq_broker.replication.lives.kept import Kept
from ternmq_broker.table_formats import REPLICATION
from ternmq_model.epochs import doubt_of
from ternmq_model.errors import StoreNotFound
from ternmq_model.json_checksum import add_checksum
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.reserve import replace_file_from_reserve

_BEYOND_TOLD: Final = 2 * PROMOTION_STEP
"""A promotion goes so far beyond a number that was believed when it was told."""


def is_made_up(number: int, before: int) -> bool:
    """Tell whether no master of a log can have begun `number` after `before`. Pure."""
    return bool(doubt_of(number, before) and doubt_of(number, before + _BEYOND_TOLD))


def real_epochs(epochs: Epochs) -> Epochs:
    """Return the list of a log with a real number in the place of each that is made up. Pure."""
    real: list[Epoch] = []
    for number, start in epochs:
        before = newest(tuple(real))
        if not is_made_up(number, before):
            real.append(Epoch(number, start))
        elif number % MEMBER_STEP:
            real.append(Epoch(number_after_restart(before), start))
        else:
            broker_id = number % PROMOTION_STEP // MEMBER_STEP
            real.append(Epoch(number_of_promotion(before, broker_id), start))
    return tuple(real)


def repaired(kept: Kept, *, real: int = 0) -> Kept:
    """Return what a member is to keep; the same when nothing of it is made up. Pure.

    Args:
        kept: What it keeps.
        real: The highest epoch that the logs of others have, as far as they were asked.
    """
    epochs = real_epochs(kept.epochs)
    known = max(newest(epochs), real)
    highest = known if is_made_up(kept.highest_epoch, known) else kept.highest_epoch
    if doubt_of(real, max(highest, newest(epochs))):
        highest = real
    members = tuple(
        replace(each, epoch=0) if is_made_up(each.epoch, known) else each for each in kept.members
    )
    return replace(kept, epochs=epochs, highest_epoch=highest, members=members)


def load_kept(files: FileSystem, root: Path) -> Kept:
    """Return what the member whose data directory is `root` keeps.

    Raises:
        StoreNotFound: It keeps nothing there.
        UndecidedStore: No generation of the file is right.
    """
    found = find_table(files, config_folder(root), REPLICATION, was_there=False, now_ms=0)
    check_refusals(root, [found])
    if found.table is None:
        raise StoreNotFound(f"{found.main.path} is not there: no member kept anything in {root}")
    return found.table


def save_kept(files: FileSystem, root: Path, kept: Kept) -> None:
    """Keep that, in both generations. Durable when it returns.

    Raises:
        OSError: The disk refused; either counts.
    """
    path = config_folder(root) / REPLICATION.name
    data = add_checksum(write_json(kept.to_dict()))
    replace_file_from_reserve(files, root, path, data, in_both=True)
