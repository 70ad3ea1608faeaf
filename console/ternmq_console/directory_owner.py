"""The owner of a data directory: only that user may write in it."""

import os
from pathlib import Path

from ternmq_model.errors import UsageError
from ternmq_store.disk.layout import lock_path


def check_owner(root: Path) -> None:
    """Refuse to write in the data directory of another user, who could not read what is written.

    Raises:
        UsageError: It belongs to another user.
        OSError: It cannot be looked at.
    """
    lock = lock_path(root)
    owner = (lock if lock.exists() else root).stat().st_uid
    if owner != os.geteuid():
        raise UsageError(f"{root} belongs to the user with id {owner}: run this as that user")
