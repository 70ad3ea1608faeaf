"""Owner of a data directory, the only user who may write to it."""

import os
from pathlib import Path

from ternmq_model.errors import UsageError
from ternmq_store.disk.layout import lock_path


def check_owner(root: Path) -> None:
    """Refuse the data directory of another user, who could not read new files.

    Raises:
        UsageError: The directory belongs to another user.
        OSError: The owner of the directory cannot be read.
    """
    lock = lock_path(root)
    owner = (lock if lock.exists() else root).stat().st_uid
    if owner != os.geteuid():
        raise UsageError(f"{root} belongs to the user with id {owner}: run this as that user")
