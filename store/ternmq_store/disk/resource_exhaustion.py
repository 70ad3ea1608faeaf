"""Errors of exhausted resources: they refuse a batch and are no failure of the store. Pure."""

import errno
from typing import Final

from ternmq_model.errors import StoreFull

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_TOO_MANY: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


def is_exhausted(error: OSError) -> bool:
    """Return whether `error` means too many open files or maps, or no memory."""
    return error.errno in _TOO_MANY


def is_full(error: OSError) -> bool:
    """Return whether `error` means that the disk or the user's quota is full."""
    return error.errno in _FULL


def check_full(error: OSError, what: str) -> None:
    """Raise StoreFull if `error` means that disk, files or memory are exhausted for `what`."""
    if is_full(error):
        raise StoreFull(f"no space for more of the {what}: {error}") from error
    if is_exhausted(error):
        raise StoreFull(f"no file for more of the {what}: {error}") from error


def check_only_full(error: OSError) -> None:
    """Raise `error` unless it means that disk, files or memory are exhausted."""
    if not (is_full(error) or is_exhausted(error)):
        raise error
